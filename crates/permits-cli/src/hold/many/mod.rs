//! `permits hold --many` and `--listen`: any number of permits, for one program or several, with one client.
//!
//! Everything runs on the main thread. Each request has a task, which sleeps until the library, the program
//! or the end of the process wakes it. Requests that arrive together are begun together, and travel together.
//!
//! | what a program may do | bound |
//! |---|---|
//! | make requests | [`MAX_REQUESTS`](store::MAX_REQUESTS) at once, of all programs |
//! | read events slowly | see [`outbox`] |
//! | write long lines, or many | see [`lines`](super::lines) |
//! | connect to the socket | see [`socket`] |

mod acquisition;
mod connection;
mod outbox;
mod request;
mod socket;
mod store;

use std::path::Path;
use std::rc::Rc;

use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};

use super::ending::{End, Ending};
use super::events::Event;
use super::lines::Lines;
use crate::acquire::Caller;
use crate::args::Common;
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::run::signals::Signals;
use connection::Connection;
use outbox::Writer;
use socket::Socket;
use store::{Store, connect};

/// Holds permits for the program that started this process.
pub(super) async fn hold(common: &Common) -> Result<u8, Failure> {
    let label = Caller::Verb("hold").label(None)?;
    let output = Output::start().map_err(Failure::system)?;
    let mut ending = Ending::listen().map_err(Failure::system)?;
    let lines = Lines::standard().map_err(Failure::system)?;
    let client = tokio::select! {
        biased;
        end = ending.next() => return Ok(end.code()),
        client = connect(common, label) => client,
    };
    let client = match client {
        Ok(client) => client,
        Err(failure) => {
            let (exit_code, reason) = (failure.code, failure.message.as_str());
            output.write(&Event::Failed { exit_code, reason, retry_after_ms: None });
            output.flush();
            return Err(failure);
        }
    };
    let store = Store::new(client);
    let writer = Writer::Standard(output);
    let ending = async { ending.next().await };
    let end = LocalSet::new().run_until(Connection::run(store.clone(), lines, writer, ending)).await;
    store.close().await;
    Ok(end.code())
}

/// Holds permits for the programs that connect to the socket at `path`.
pub(super) async fn listen(common: &Common, path: &Path) -> Result<u8, Failure> {
    let label = Caller::Verb("hold").label(None)?;
    let mut signals = Signals::ending().map_err(Failure::system)?;
    // Before there are other threads, which may make files: its mode is set by the umask.
    let socket = tokio::select! {
        biased;
        signal = signals.next() => return Ok(End::Signal(signal).code()),
        socket = Socket::bind(path) => socket?,
    };
    let client = tokio::select! {
        biased;
        signal = signals.next() => return Ok(End::Signal(signal).code()),
        client = connect(common, label) => client?,
    };
    let store = Store::new(client);
    exit::print(format!("listening on unix:{}\n", path.display()));
    let serve = async {
        let (ending, _) = watch::channel(None);
        let mut connections = JoinSet::new();
        let end = loop {
            let open = connections.len();
            tokio::select! {
                biased;
                signal = signals.next() => break End::Signal(signal),
                Some(_) = connections.join_next() => {}
                stream = socket.accept(open) => {
                    connections.spawn_local(program(store.clone(), stream, ending.subscribe()));
                }
            }
        };
        drop(socket);
        ending.send_replace(Some(end));
        while connections.join_next().await.is_some() {}
        end
    };
    let end = LocalSet::new().run_until(serve).await;
    store.close().await;
    Ok(end.code())
}

/// Serves a program that has connected, until its end or that of this process.
async fn program(store: Rc<Store>, stream: UnixStream, mut ending: watch::Receiver<Option<End>>) {
    let (input, output) = stream.into_split();
    let ending = async {
        let end = ending.wait_for(Option::is_some).await;
        end.ok().and_then(|end| *end).expect("its sender waits for this connection")
    };
    Connection::run(store, Lines::of(input), Writer::Socket(output), ending).await;
}
