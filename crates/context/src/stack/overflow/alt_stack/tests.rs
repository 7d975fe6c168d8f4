//! Unit tests of `alt_stack`.
#![expect(unsafe_code, reason = "exercises the unsafe parts of the module")]

use super::*;

/// Where the calling thread's alternate stack is, and its size; `None` without one.
fn current() -> Option<(usize, usize)> {
    let now = exchange(None).unwrap();
    (now.ss_flags & libc::SS_DISABLE == 0).then_some((now.ss_sp.addr(), now.ss_size))
}

/// Runs on a thread of its own: an alternate stack belongs to a thread.
fn on_thread(body: fn()) {
    std::thread::spawn(body).join().unwrap();
}

#[test]
fn it_is_large_guarded_and_restores_the_one_before() {
    on_thread(|| {
        let before = current();
        let alt_stack = AltStack::ensure().unwrap();
        let (start, bytes) = current().unwrap();
        assert!(bytes >= ROOM_BYTES + signal_frame_bytes());
        let own = alt_stack.own.as_ref().unwrap();
        assert_eq!(
            start,
            own.start.addr().get() + page_bytes(),
            "a page below is the guard"
        );
        drop(alt_stack);
        assert_eq!(current(), before);
    });
}

#[test]
fn a_second_one_uses_the_first() {
    on_thread(|| {
        let first = AltStack::ensure().unwrap();
        let here = current();
        let second = AltStack::ensure().unwrap();
        assert!(second.own.is_none());
        drop(second);
        assert_eq!(current(), here);
        drop(first);
        assert_ne!(current(), here);
    });
}

#[test]
fn none_before_means_none_afterwards() {
    on_thread(|| {
        let old = exchange(None).unwrap();
        let none = libc::stack_t {
            ss_sp: ptr::null_mut(),
            ss_flags: libc::SS_DISABLE,
            ss_size: 0,
        };
        exchange(Some(&none)).unwrap();
        drop(AltStack::ensure().unwrap());
        assert_eq!(current(), None);
        exchange(Some(&libc::stack_t {
            ss_flags: old.ss_flags & libc::SS_DISABLE,
            ..old
        }))
        .unwrap();
    });
}

/// Whoever replaced ours may restore it: its memory must still be there.
#[test]
fn one_dropped_out_of_order_stays_mapped() {
    on_thread(|| {
        let alt_stack = AltStack::ensure().unwrap();
        let (start, _) = current().unwrap();
        let mut other = vec![0_u8; 1 << 16];
        let replaced = exchange(Some(&libc::stack_t {
            ss_sp: other.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: other.len(),
        }))
        .unwrap();
        drop(alt_stack);
        assert_eq!(current().unwrap().0, other.as_ptr().addr());
        exchange(Some(&replaced)).unwrap();
        let place = std::ptr::with_exposed_provenance_mut::<u8>(start);
        // SAFETY: leaked by the drop above, so still mapped and used by nobody.
        unsafe { place.write_volatile(1) };
    });
}
