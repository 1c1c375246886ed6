//! Real forks. A child reports by its exit code, and does nothing that could wait for a thread of its parent.

#![expect(unsafe_code, reason = "fork is what is tested")]

use std::num::NonZeroU64;
use std::thread;

use crate::Process;

/// Forks. Returns true if `holds` returned true in the child.
#[track_caller]
fn in_child(holds: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only runs `holds`, which uses atomics and system calls, and ends without a
    // destructor.
    match unsafe { libc::fork() } {
        -1 => panic!("the system can fork"),
        // SAFETY: it ends the child.
        0 => unsafe { libc::_exit(i32::from(!holds())) },
        child => {
            let mut status = 0;
            // SAFETY: `status` outlives the call, and the child is this test's own.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status == 0
        }
    }
}

/// A child, and the child of a child, have numbers that no process before them has, whether those have read
/// their numbers or not.
#[track_caller]
fn assert_changes(number: fn() -> NonZeroU64) {
    let own = number();
    assert!(in_child(|| {
        let child = number();
        child != own && number() == child && in_child(|| ![own, child].contains(&number()))
    }));
    assert!(in_child(|| in_child(|| number() != own)), "a child forks before it has read its number");
    assert_eq!(number(), own, "a fork changes nothing for the parent");
}

#[test]
fn a_fork_changes_the_number() {
    assert_changes(|| Process::current().number());
    assert_changes(super::at_fork::number);
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn without_memory_that_a_fork_clears_the_pid_is_the_number() {
    // Run this in a child, so that the other tests keep their numbers.
    assert!(in_child(|| {
        super::wiped::tests::use_pid();
        let own = Process::current();
        own.number() == super::pid() && !own.is_forked() && in_child(|| own.is_forked())
    }));
}

#[test]
fn children_that_several_threads_fork_at_once_are_all_noticed() {
    let own = Process::current();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| assert!(in_child(|| own.is_forked()))));
        }
    });
    assert!(!own.is_forked());
}
