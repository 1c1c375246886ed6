//! The cost of a grant of a kept permit: no memory, no other thread; and other tasks have their turn.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use permits::{Client, Semaphore};

/// The allocator of the system, which counts for each thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: it passes everything on to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The result of a future that does not wait.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

/// A semaphore whose permits are kept, in the memory that all tests share.
fn kept(client: &Client, name: &str) -> Semaphore {
    client.semaphore(name, 1).expect("valid").keep(Duration::from_secs(5))
}

#[tokio::test]
async fn a_loop_of_local_grants_lets_other_tasks_of_its_thread_run() {
    let client = Client::connect("memory:").await.expect("it needs no server");
    let semaphore = kept(&client, "turns");
    drop(semaphore.acquire().await);
    let other = tokio::spawn(async {});
    // The grants are fewer than the tokens of a grant, so that no acquisition waits for the store.
    for _ in 0..2_000 {
        drop(semaphore.acquire().await.expect("it is kept"));
        if other.is_finished() {
            return;
        }
    }
    panic!("the other task did not run");
}

#[test]
fn a_kept_permit_is_granted_and_released_at_once_and_without_memory() {
    let client = Client::connect("memory:").wait().expect("it needs no server");
    let semaphore = kept(&client, "memory");
    let holder = semaphore.acquire().wait().expect("it is free").holder().to_owned();
    let before = COUNT.get();
    for turn in 0..1000 {
        let permit = at_once(semaphore.acquire()).expect("it is kept");
        assert!(permit.is_held() && permit.holder() == holder);
        if turn % 2 == 0 {
            at_once(permit.release()).expect("it is held");
        }
    }
    assert_eq!(COUNT.get() - before, 0, "allocations of 1,000 cycles");
}
