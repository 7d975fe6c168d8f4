//! Frames of all kinds, and tables written by hand.
#![allow(unsafe_code, reason = "frames that cannot be unwound")]

use std::arch::global_asm;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Deed, catch_to_pass_on, deed_of_any, look_up};

/// On a plain stack.
fn can_unwind() -> bool {
    super::can_unwind(0)
}

/// Has something to drop, so that its frames have tables with cleanups.
struct Noted<'a>(&'a mut u32);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        *self.0 += 1;
    }
}

#[inline(never)]
fn through_rust(depth: u32, drops: &mut u32, f: &mut dyn FnMut() -> bool) -> bool {
    let noted = Noted(drops);
    if depth == 0 {
        f()
    } else {
        through_rust(depth - 1, noted.0, f)
    }
}

#[inline(never)]
extern "C" fn through_c(f: &mut &mut dyn FnMut() -> bool) -> bool {
    f()
}

#[inline(never)]
extern "C-unwind" fn through_c_unwind(f: &mut &mut dyn FnMut() -> bool) -> bool {
    f()
}

// Calls `f(argument)`, and has no unwind table.
global_asm!(
    ".text",
    ".globl sinew_test_without_tables",
    ".type sinew_test_without_tables, @function",
    "sinew_test_without_tables:",
    "sub rsp, 8",
    "call rsi",
    "add rsp, 8",
    "ret",
    ".size sinew_test_without_tables, . - sinew_test_without_tables",
);

unsafe extern "C-unwind" {
    #[link_name = "sinew_test_without_tables"]
    fn through_assembly(argument: *mut (), f: unsafe extern "C-unwind" fn(*mut ()) -> bool)
    -> bool;
}

unsafe extern "C-unwind" fn ask(answer: *mut ()) -> bool {
    // SAFETY: the test passes a bool.
    unsafe { *answer.cast::<bool>() = can_unwind() };
    true
}

fn caught(f: impl FnOnce() -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(f)).unwrap()
}

#[test]
fn plain_frames_are_passed_until_the_one_that_catches() {
    let mut drops = 0;
    assert!(caught(|| through_rust(20, &mut drops, &mut can_unwind)));
    assert_eq!(drops, 21);
    assert!(caught(|| through_c_unwind(&mut (&mut can_unwind as _))));
}

#[test]
fn a_function_that_must_not_unwind_is_seen_wherever_it_lies() {
    assert!(!caught(|| through_c(&mut (&mut can_unwind as _))));
    let mut drops = 0;
    let mut inner = || through_rust(3, &mut drops, &mut can_unwind);
    assert!(!caught(|| through_c(&mut (&mut inner as _))));
    // Caught further in.
    let mut inner = || caught(can_unwind);
    assert!(caught(|| through_c(&mut (&mut inner as _))));
}

#[test]
fn a_frame_that_passes_on_what_it_catches_is_none_that_catches() {
    let mut inner = || catch_to_pass_on(can_unwind).unwrap();
    assert!(!caught(|| through_c(&mut (&mut inner as _))));
    let mut twice = || catch_to_pass_on(|| catch_to_pass_on(can_unwind).unwrap()).unwrap();
    assert!(!caught(|| through_c(&mut (&mut twice as _))));
    assert!(caught(|| through_c_unwind(&mut (&mut twice as _))));
    let mut kept = || catch_to_pass_on(|| caught(can_unwind)).unwrap();
    assert!(caught(|| through_c(&mut (&mut kept as _))));
    let payload = catch_to_pass_on(|| panic!("out")).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"out"));
}

#[test]
fn a_frame_without_tables_ends_the_walk() {
    let mut answer = true;
    // SAFETY: `ask` expects a bool.
    let asked = caught(|| unsafe { through_assembly((&raw mut answer).cast(), ask) });
    assert!(asked);
    assert!(!answer);
}

/// The tables of other compilers: a C++ function with a typed catch, then a catch-all; ULEB call sites, types of four bytes.
#[test]
fn chains_of_actions_are_followed() {
    // Types, backwards from the end: number 1 is some type, number 2 is null.
    let table: [u8; 28] = [
        0xff, // landing pads are relative to the function
        0x9b, 26, // types: indirect, relative, four bytes; how far their end is
        0x01, 12, // call sites: ULEB, twelve bytes
        0, 16, 40, 1, // [0, 16): the chain at 1
        16, 16, 0, 0, // [16, 32): passes
        40, 8, 60, 5, // [40, 48): the chain at 5
        1, 1, 2, 0, // at 1: type 1, else the next: type 2
        0, 0, // at 5: a cleanup
        0, // filler
        0, 0, 0, 0, // type 2
    ];
    let mut whole = [0_u8; 33];
    whole[..28].copy_from_slice(&table);
    whole[28..32].copy_from_slice(&[9, 9, 9, 9]); // type 1
    whole[2] = 29;
    let look = |offset: usize| {
        // SAFETY: a whole table.
        unsafe { look_up(whole.as_ptr(), 1000, 1000 + offset) }
    };
    assert_eq!(look(3), Deed::Catch);
    assert_eq!(look(20), Deed::Pass);
    assert_eq!(look(41), Deed::Pass);
    assert_eq!(look(35), Deed::Refuse, "no entry");
    assert_eq!(look(50), Deed::Refuse, "after the last");
    // The second link gone: only a type that a panic is not of.
    whole[18] = 0;
    let look = |offset: usize| {
        // SAFETY: a whole table.
        unsafe { look_up(whole.as_ptr(), 1000, 1000 + offset) }
    };
    assert_eq!(look(3), Deed::Pass);
    // A filter.
    whole[17] = 0x7f;
    // SAFETY: a whole table.
    assert_eq!(unsafe { look_up(whole.as_ptr(), 1000, 1003) }, Deed::Refuse);
}

/// A function that was left by a switch, of which no line tells: what its calls would do, the first above all.
#[test]
fn a_function_that_lets_no_call_through_refuses_at_a_switch() {
    // No types but for a null one, number 1; three call sites: each is [from, bytes, landing, action].
    const BARE: u8 = 9;
    let table = |actions: [u8; 3]| {
        let mut whole = vec![
            0xff, // landing pads are relative to the function
            0x9b, 26, // types: four bytes each; how far their end is
            0x01, 12, // call sites: ULEB, twelve bytes
        ];
        for (place, action) in (0..).zip(actions) {
            let [landing, action] = if action == BARE {
                [0, 0]
            } else {
                [100, action]
            };
            whole.extend([place * 20, 10, landing, action]);
        }
        // At 1: a filter. At 3: type 1, which is null. At 5: a cleanup.
        whole.extend([0x7f, 0, 1, 0, 0, 0]);
        // Filler, then the type.
        whole.extend([0, 0, 0, 0, 0, 0]);
        assert_eq!(whole.len(), 29);
        whole
    };
    let cases = [
        ([1, 1, 1], Deed::Refuse),
        ([1, 5, 0], Deed::Refuse),
        ([5, 1, 1], Deed::Pass),
        ([0, 1, 1], Deed::Pass),
        ([3, 5, 1], Deed::Pass),
        ([3, 1, 5], Deed::Pass),
        ([3, 1, 3], Deed::Refuse),
        ([3, 3, 3], Deed::Catch),
        // Without a landing pad.
        ([BARE, BARE, BARE], Deed::Pass),
        ([BARE, BARE, 1], Deed::Refuse),
        ([BARE, 1, 5], Deed::Pass),
        ([1, BARE, 5], Deed::Refuse),
        ([BARE, 3, 1], Deed::Pass),
        ([3, BARE, 3], Deed::Pass),
    ];
    for (actions, deed) in cases {
        let whole = table(actions);
        // SAFETY: a whole table.
        assert_eq!(unsafe { deed_of_any(whole.as_ptr()) }, deed, "{actions:?}");
        // SAFETY: as above.
        let at_gap = unsafe { look_up(whole.as_ptr(), 1000, 1015) };
        assert_eq!(at_gap, Deed::Refuse);
    }
}
