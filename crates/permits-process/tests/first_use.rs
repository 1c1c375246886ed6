//! The first use in a program, alone in a program of its own.

use std::collections::HashSet;
use std::sync::Barrier;
use std::thread;

use permits_process::Process;

#[test]
fn threads_that_are_the_first_to_ask_at_once_are_of_one_process() {
    let threads = 8;
    let barrier = Barrier::new(threads);
    let asked: HashSet<Process> = thread::scope(|scope| {
        let ask = || {
            barrier.wait();
            Process::current()
        };
        let asking: Vec<_> = (0..threads).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    assert_eq!(asked, HashSet::from([Process::current()]));
}
