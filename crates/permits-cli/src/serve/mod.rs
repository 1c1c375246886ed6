//! `permits serve`: metrics, JSON and a page over HTTP.
//!
//! [`feed`] reads the store, once for all clients; [`history`] keeps the last hour. [`api`], [`events`],
//! [`metrics`] and [`page`] answer requests from that, [`write`](mod@write) changes semaphores; [`app`] is
//! their state. [`acquire`](mod@acquire) gives permits to programs that cannot keep a process.
//! [`access`] decides which requests are answered, [`listener`] and [`body`] bound what they cost.
//!
//! Nothing here trusts a request before [`access`] has seen it, and no reply contains the URL's password,
//! because the store's name is the redacted one of [`connect`](crate::connect).

mod access;
mod acquire;
mod api;
mod app;
mod body;
mod events;
mod feed;
mod history;
mod listener;
mod metrics;
mod page;
mod problem;
mod reply;
mod write;

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::acquire::{LEAVE_TIMEOUT, close};
use crate::args::{Common, Serve};
use crate::connect::{Target, user_and_host};
use crate::exit::{self, Failure};
use crate::files;
use crate::report;
use crate::run::signals::Signals;
use access::{Access, Token};
use acquire::{Door, MAX_WAITING, Tokens};
use app::App;
use feed::Feed;

/// Store timeout, also of the first connection.
const STORE_TIMEOUT: Duration = Duration::from_secs(3);

/// The same with `--acquire`: requests that wait keep their places for so long, as those of `permits hold`.
const STORE_TIMEOUT_OF_WAITERS: Duration = Duration::from_secs(10);

/// Serves until a signal arrives.
pub(crate) async fn serve(common: &Common, options: Serve) -> Result<u8, Failure> {
    let target = Target::of(common)?;
    let unless_set = if options.acquire { STORE_TIMEOUT_OF_WAITERS } else { STORE_TIMEOUT };
    let store_timeout = common.store_timeout.unwrap_or(unless_set);
    let token = options.token_file.as_deref().map(Token::read).transpose()?;
    if options.allow_write && token.is_none() {
        let remedy = "give a file with one by --token-file PATH; create it with: openssl rand -hex 32 >token && \
            chmod 600 token";
        let reason = "--allow-write needs a token, because every user of a machine can reach its addresses";
        return Err(Failure::new(exit::USAGE, format!("{reason}: {remedy}")));
    }
    if !options.listen.ip().to_canonical().is_loopback() && token.is_none() {
        let remedy =
            "give a token with --token-file PATH, or listen on 127.0.0.1 behind a proxy with a login";
        let message = format!("{} can be reached from other machines: {remedy}", options.listen);
        return Err(Failure::new(exit::USAGE, message));
    }
    let tokens = tokens(&options, &target)?;
    let mut signals = Signals::ending().map_err(Failure::system)?;
    // The port is bound before the store is connected: a port in use is a mistake of this call.
    let listener = bind(options.listen)?;
    let address = listener.local_addr().map_err(Failure::system)?;
    if io::stderr().is_terminal() || common.verbose > 0 {
        report::say(format_args!("store {}", target.store));
    }
    let store = target.store.clone();
    let target = target.with_label(format!("serve by {}", user_and_host()));
    let client = tokio::select! {
        biased;
        _ = signals.next() => return Ok(exit::SUCCESS),
        client = target.connect(store_timeout) => client?,
    };
    let feed = Arc::new(Feed::new(client.clone(), store, options.interval, options.under));
    let access = Access::new(address.ip(), options.hosts, token, options.allow_write);
    let app = Arc::new(App::new(feed.clone(), access, options.max_semaphores));
    let more = if tokens.is_some() { MAX_WAITING } else { 0 };
    let door = tokens.map(|tokens| Arc::new(Door::new(app.clone(), tokens)));
    let router = api::router(app.clone(), door);
    let most = files::places(listener::MAX_CONNECTIONS + more);
    exit::print(format!("listening on http://{address}/\n"));
    let mut reading = pin!(feed.run());
    tokio::select! {
        failure = reading.as_mut() => Err(failure),
        never = listener::serve(listener, router, most, app.ending.subscribe()) => match never {},
        _ = signals.next() => {
            // A reply in progress may wait for a read.
            tokio::select! {
                _ = reading => {}
                () = app.end() => {}
            }
            // Requests that waited leave the line.
            close(client, LEAVE_TIMEOUT).await;
            Ok(exit::SUCCESS)
        }
    }
}

/// The tokens of `--acquire`.
fn tokens(options: &Serve, target: &Target) -> Result<Option<Tokens>, Failure> {
    if !options.acquire {
        return Ok(None);
    }
    let Some(path) = &options.acquire_tokens else {
        let remedy = "give a file with one a line by --acquire-tokens PATH; create it with: \
            openssl rand -hex 32 >tokens && chmod 600 tokens";
        let reason = "--acquire needs tokens, because every user of a machine can reach its addresses";
        return Err(Failure::new(exit::USAGE, format!("{reason}: {remedy}")));
    };
    if target.store.starts_with("memory:") {
        let message = "memory: ends with this process, and so would the permits: use local: or a server";
        return Err(Failure::new(exit::USAGE, message));
    }
    Tokens::new(path.clone(), options.allow.clone()).map(Some)
}

fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    listener::bind(address).map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => ": end the other program, or take another port with --listen",
            io::ErrorKind::PermissionDenied => ": take a port above 1023 with --listen",
            _ => "",
        };
        Failure::new(exit::SYSTEM, format!("cannot listen on {address}: {error}{remedy}"))
    })
}
