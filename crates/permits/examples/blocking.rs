//! Threads in place of tasks: the same semaphore without async, and requests for more than one unit.
//!
//! `cargo run --example blocking`, or with a server: `cargo run --example blocking -- redis://127.0.0.1/`.

use std::error::Error;
use std::thread;
use std::time::Duration;

use permits::AcquireOptions;
use permits::Client;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = Client::connect(&url).wait()?;
    // Four units of memory. A small report takes one unit, a large report takes three.
    let memory = client.semaphore("memory of the report server", 4)?;

    thread::scope(|scope| {
        let reports = [1, 3, 1, 3, 1, 1].into_iter().enumerate().map(|(number, weight)| {
            let memory = &memory;
            scope.spawn(move || -> Result<(), Box<dyn Error + Send + Sync>> {
                let permit = memory.acquire_with(AcquireOptions::new().weight(weight)).wait()?;
                println!("report {number}: {} of 4 units", permit.weight());
                thread::sleep(Duration::from_millis(50));
                permit.release().wait()?;
                Ok(())
            })
        });
        let reports: Vec<_> = reports.collect();
        reports.into_iter().try_for_each(|report| report.join().expect("a report panicked"))
    })?;

    client.close().wait()?;
    Ok(())
}
