//! A permit that moves from one process to another: this program acquires it, and starts itself again as the
//! process that does the work and releases the permit.
//!
//! `cargo run --example hand_over`

use std::error::Error;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use permits::Client;
use permits::PermitHandle;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        None => hand_over(),
        Some(url) => adopt(&url),
    }
}

fn hand_over() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let url = format!("local:{}/permits", directory.path().display());
    let client = Client::connect(&url).wait()?;
    let build = client.semaphore("build", 1)?;
    let permit = build.acquire().wait()?;
    println!("process {}: token {}", std::process::id(), permit.token());

    // The unit stays taken until the permit is adopted, for at most one lease.
    let handle = permit.hand_over().wait()?;
    assert!(build.try_acquire().wait().is_err_and(|error| error.is_not_now()));

    // The handle goes through standard input, because other users can read the arguments of a process. A
    // handle is as good as the permit.
    let mut child = Command::new(std::env::current_exe()?).arg(&url).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no pipe")?.write_all(handle.to_string().as_bytes())?;
    assert!(child.wait()?.success());
    build.try_acquire().wait()?.release().wait()?; // The other process has released it.
    client.close().wait()?;
    Ok(())
}

fn adopt(url: &str) -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let client = Client::connect(url).wait()?;
    let permit = client.adopt(&text.parse::<PermitHandle>()?).wait()?;
    println!("process {}: token {}", std::process::id(), permit.token());
    permit.release().wait()?;
    client.close().wait()?;
    Ok(())
}
