//! `permits hold`: holds permits for a program in any language that can start a process.
//!
//! The protocol is docs/languages/any.md: each line to the program is an event, and each line from it a wish.
//! A permit is released when the program says so, closes its end, or ends. Until then it is kept, also
//! through a Ctrl-C, which reaches the whole process group: the program may still use the resource.
//!
//! The same machine serves one permit, any number of permits (`--many`) and the permits of several programs
//! (`--listen`). A program is a [`Connection`], with an [`Acquisition`] for each of its requests.
//! `permits hold NAME` is a connection whose only request comes from the command line: [`Form`] has the
//! differences.
//!
//! Everything runs on the main thread. Each request has a task, which sleeps until the library, the program
//! or the end of the process wakes it. Requests that arrive together are begun together, and travel together.
//!
//! | what a program may do | bound |
//! |---|---|
//! | make requests | [`MAX_REQUESTS`](connection::MAX_REQUESTS) at once, of all programs |
//! | inspect, list or change semaphores | [`MAX_CALLS`](calls::MAX_CALLS) at once |
//! | read events slowly | see [`outbox`] |
//! | write long lines, or many | see [`lines`] |
//! | connect to the socket | see [`socket`] |

mod acquisition;
mod calls;
mod connection;
mod ending;
mod events;
mod lines;
mod outbox;
mod request;
mod socket;

use std::rc::Rc;

use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;

use crate::acquire::{Caller, LEAVE_TIMEOUT, Requested, close, connect};
use crate::args::value::{Group, Listen};
use crate::args::{Common, Hold};
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::run::LOST_TIMEOUT;
use crate::run::signals::Signals;
pub(crate) use acquisition::NO_LIMIT;
use acquisition::{Acquisition, Stage};
use connection::{Connection, Form};
use ending::{End, Ending};
use events::Event;
use lines::Lines;
use outbox::Writer;
use request::Id;
pub(crate) use request::One;
use socket::Socket;

/// Holds permits until the programs let go of them.
pub(crate) async fn hold(common: &Common, options: &Hold) -> Result<u8, Failure> {
    let caller = Caller::Verb("hold");
    match (&options.listen, &options.name) {
        (Some(at), _) => listen(common, at, options.group.as_ref(), caller.label(None)?).await,
        (None, None) => many(common, caller.label(None)?).await,
        (None, Some(name)) => {
            one(Requested::new(common, name, &options.request, &options.others.also, caller)?).await
        }
    }
}

/// Holds the permit of the command line, together with the permits of `--also`.
async fn one(requested: Requested<'static>) -> Result<u8, Failure> {
    let requested = Rc::new(requested);
    let output = Output::start().map_err(Failure::system)?;
    let mut ending = Ending::listen().map_err(Failure::system)?;
    let lines = Lines::standard().map_err(Failure::system)?;
    let hold = async {
        let connection = Connection::new(Form::One, Writer::Standard(output));
        let (name, counts) = (requested.name.clone(), !requested.request.at_least.is_zero());
        let stage = Stage::Requested(requested.clone());
        let held = connection.begin(Acquisition::new(Id::ONE, name, counts, stage), None);
        connection.run(lines, ending.next()).await;
        held.await.expect("it does not panic")
    };
    let held = LocalSet::new().run_until(hold).await;
    if let Some(client) = requested.client() {
        let _ = timeout(LOST_TIMEOUT, client.close()).await;
    }
    held.map(End::code)
}

/// Holds permits for the program that started this process.
async fn many(common: &Common, label: String) -> Result<u8, Failure> {
    let output = Output::start().map_err(Failure::system)?;
    let mut ending = Ending::listen().map_err(Failure::system)?;
    let lines = Lines::standard().map_err(Failure::system)?;
    let client = tokio::select! {
        biased;
        end = ending.next() => return Ok(end.code()),
        client = connect(common, label, None) => client,
    };
    let client = match client {
        Ok(client) => client,
        Err(failure) => {
            output.write(&Event::failed(&failure));
            output.flush();
            return Err(failure);
        }
    };
    let hold = async {
        let form = Form::Many(client.clone(), Rc::default());
        let connection = Connection::new(form, Writer::Standard(output));
        connection.run(lines, ending.next()).await
    };
    let end = LocalSet::new().run_until(hold).await;
    close(client, LEAVE_TIMEOUT).await;
    Ok(end.code())
}

/// Holds permits for the programs that connect to a socket.
async fn listen(common: &Common, at: &Listen, group: Option<&Group>, label: String) -> Result<u8, Failure> {
    let mut signals = Signals::ending().map_err(Failure::system)?;
    let start = async {
        let socket = match (at, group) {
            (Listen::Systemd, None) => Socket::inherited()?,
            (Listen::Systemd, Some(_)) => {
                let reason = "--group is for a socket that permits makes: the .socket unit has SocketGroup= and SocketMode=";
                return Err(Failure::new(exit::USAGE, reason));
            }
            // Bind while no other thread can make files: the umask, which sets the mode of the socket, is the
            // process's.
            (Listen::At(path), group) => Socket::bind(path, group).await?,
        };
        Ok((socket, connect(common, label, None).await?))
    };
    let (socket, client) = tokio::select! {
        biased;
        signal = signals.next() => return Ok(End::Signal(signal).code()),
        started = start => started?,
    };
    let form = Form::Many(client.clone(), Rc::default());
    exit::print(format!("listening on {socket}\n"));
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
                    connections.spawn_local(program(form.clone(), stream, ending.subscribe()));
                }
            }
        };
        drop(socket);
        ending.send_replace(Some(end));
        while connections.join_next().await.is_some() {}
        end
    };
    let end = LocalSet::new().run_until(serve).await;
    close(client, LEAVE_TIMEOUT).await;
    Ok(end.code())
}

/// Serves a program that has connected, until the program or this process ends.
async fn program(form: Form, stream: UnixStream, mut ending: watch::Receiver<Option<End>>) {
    let (input, output) = stream.into_split();
    let ending = async {
        let end = ending.wait_for(Option::is_some).await;
        end.ok().and_then(|end| *end).expect("its sender waits for this connection")
    };
    Connection::new(form, Writer::Socket(output)).run(Lines::of(input), ending).await;
}
