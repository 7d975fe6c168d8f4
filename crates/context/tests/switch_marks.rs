//! Every address that a switch jumps to begins with the instruction that indirect-branch tracking asks for.
#![expect(unsafe_code, reason = "drives raw contexts; reads code")]
#![expect(clippy::print_stdout, reason = "says what it skips")]

mod marks;

use std::cell::UnsafeCell;
use std::ptr;

use sinew_context::frame::prepare;
use sinew_context::stack::{Stack, StackConfig};
use sinew_context::{Context, arch, switch, switch_final};

/// `endbr64`.
const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

struct Flows {
    body: UnsafeCell<Context>,
    caller: UnsafeCell<Context>,
}

unsafe extern "C" fn body(flows: usize, value: usize) -> ! {
    let flows = ptr::with_exposed_provenance::<Flows>(flows);
    // SAFETY: the test's, which waits for the end of this.
    let flows = unsafe { &*flows };
    // SAFETY: the caller was saved by the switch that runs this.
    let value = unsafe { switch(flows.body.get(), flows.caller.get(), value + 1) };
    // SAFETY: as above.
    unsafe { switch_final(flows.caller.get(), value + 1) }
}

fn marked(ip: usize) -> bool {
    // SAFETY: the address of code.
    let found = unsafe { ptr::with_exposed_provenance::<[u8; 4]>(ip).read() };
    found == MARK
}

// contract: C22
#[test]
fn resume_points_are_marked() {
    let stack = Stack::new(&StackConfig::default()).expect("a stack");
    let flows = Flows {
        body: UnsafeCell::new(Context::EMPTY),
        caller: UnsafeCell::new(Context::EMPTY),
    };
    let argument = (&raw const flows).expose_provenance();
    // SAFETY: the stack is the flow's until it has ended, below.
    let first = unsafe { prepare(stack.base().as_ptr(), body, argument, flows.caller.get()) };
    assert_eq!(first.ip, arch::start as unsafe extern "C" fn() as usize);
    assert!(marked(first.ip), "the first frame");
    // SAFETY: nobody uses it yet.
    unsafe { *flows.body.get() = first };
    // SAFETY: it has not run.
    let value = unsafe { switch(flows.caller.get(), flows.body.get(), 1) };
    assert_eq!(value, 2);
    // SAFETY: it is suspended.
    let suspended = unsafe { *flows.body.get() };
    assert!(marked(suspended.ip), "where the body goes on");
    // SAFETY: it was saved above, and this flow has not switched since.
    let resumer = unsafe { *flows.caller.get() };
    assert!(marked(resumer.ip), "where the resumer went on");
    // SAFETY: it is suspended.
    let value = unsafe { switch(flows.caller.get(), flows.body.get(), 5) };
    assert_eq!(value, 6);
    assert!(!marked(suspended.ip + 1), "the check can fail");
}

// contract: C22
#[test]
fn every_resume_point_in_the_disassembly_is_marked() {
    let Some(found) = marks::find() else { return };
    // This file's two switches and those of the crate, at least.
    assert!(found.marked >= 3, "{found:?}");
    assert!(found.unmarked.is_empty(), "{found:?}");
    assert_eq!(found.start.as_deref(), Some("endbr64"), "{found:?}");
}

#[test]
fn a_missing_mark_is_found() {
    let disassembly = |landing: &str| {
        format!(
            "\n0000000000001000 <some::function>:\n    1000:\tlea    0x9(%rip),%rax        # 1010 <some::function+0x10>\n    \
             1007:\tjmp    *%rax\n    1009:\tcs nopw 0x0(%rax,%rax,1)\n    1010:\t{landing}\n    1014:\tret\n\n"
        )
    };
    let found = marks::find_in(&disassembly("endbr64"));
    assert_eq!((found.marked, found.unmarked.len()), (1, 0));
    let found = marks::find_in(&disassembly("nop"));
    assert_eq!(found.unmarked, ["some::function"]);
}
