//! `permits`: a distributed semaphore on the command line.
//!
//! Each verb has a file, and uses only the public interface of the library. This file parses the arguments,
//! calls the verb, and turns its result into an exit code of [`exit`]. The command's own messages go to
//! standard error through [`report`]. Standard output belongs to the verb, and to the program that
//! `permits run` runs.
//!
//! The runtime lives on the main thread, because the kernel ties a child's parent-death signal to the
//! *thread* that forked it, and the main thread lives as long as the process.

#[cfg(not(unix))]
compile_error!("the permits command needs Unix: process groups, signals, and a terminal with job control");

mod acquire;
mod administer;
mod args;
mod clock;
mod connect;
mod doctor;
mod each;
mod exit;
mod fields;
mod files;
mod generate;
mod handle;
mod help;
mod hold;
mod inspected;
mod list;
mod names;
mod order;
mod output;
mod password;
mod posix;
mod reader;
mod report;
mod revoke;
mod run;
mod serve;
mod status;
mod stdout;
mod table;
mod text;
mod top;
mod units;
mod watch;

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use permits::Change;
use tracing::level_filters::LevelFilter;

use args::{Args, Close, Pause, Verb};
use exit::Failure;
use report::Filter;

/// The environment variable with the filter of events.
const LOG: &str = "PERMITS_LOG";

fn main() -> ExitCode {
    report::start();
    let code = code();
    report::flush();
    ExitCode::from(code)
}

/// Runs the verb. Returns the exit code.
fn code() -> u8 {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return print_from_parser(error),
    };
    report::set_format(args.common.log_format);
    let installed = filter(&args).map(report::install);
    match installed.and_then(|()| runtime()).and_then(|runtime| runtime.block_on(dispatch(args))) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// Prints a result of the parser: help and version as an answer, everything else as wrong usage.
fn print_from_parser(error: clap::Error) -> u8 {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let more = "Examples, stores and exit codes: permits --help, permits help VERB, permits man VERB";
        report::print_raw(&Args::command().after_help(more).render_help().to_string());
        return exit::USAGE;
    }
    let error = args::with_tip(error);
    let text = error.render().to_string();
    if error.use_stderr() {
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        text.lines().filter(|line| !line.trim().is_empty()).for_each(report::say);
        return exit::USAGE;
    }
    exit::print(&text)
}

/// The events of the library that are shown. `RUST_LOG` is not read: it is for the command that `permits run`
/// starts.
fn filter(args: &Args) -> Result<Filter, Failure> {
    let level = match (args.common.verbose, &args.verb) {
        (0, verb) => {
            if let Some(directives) = std::env::var_os(LOG) {
                let parsed = Filter::parse(&directives.to_string_lossy());
                return parsed.map_err(|part| {
                    Failure::new(
                        exit::USAGE,
                        format!("{LOG}: {part:?} is no level and no permits::target=level"),
                    )
                });
            }
            if matches!(verb, Verb::Doctor(_)) {
                // The doctor's findings repeat the library's warnings.
                return Ok(Filter::from(LevelFilter::ERROR));
            }
            // The command reports the loss of its permit itself.
            let filter = Filter::from(LevelFilter::WARN);
            return Ok(filter.without("permits::lost").without("permits::revoked"));
        }
        (1, _) => LevelFilter::INFO,
        (2, _) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    Ok(Filter::from(level))
}

/// The runtime of the verb. tokio panics if there are no descriptors for its pair of sockets, which wakes it
/// for signals. So as many as a runtime has are opened first.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let pairs: io::Result<Vec<_>> = (0..3).map(|_| UnixStream::pair()).collect();
    drop(pairs.map_err(|error| Failure::call("socketpair", &error))?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| match refused_call() {
        Some((call, error)) => Failure::call(call, &error),
        None => Failure::system(error),
    })
}

/// The call of a runtime's start that the system refuses, which tokio's error does not name.
#[cfg(target_os = "linux")]
fn refused_call() -> Option<(&'static str, io::Error)> {
    use rustix::event::{EventfdFlags, epoll, eventfd};

    let polls = epoll::create(epoll::CreateFlags::CLOEXEC);
    let wakes = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let calls = [("epoll_create1", polls), ("eventfd2", wakes)];
    calls.into_iter().find_map(|(call, made)| made.err().map(|error| (call, error.into())))
}

#[cfg(not(target_os = "linux"))]
fn refused_call() -> Option<(&'static str, io::Error)> {
    None
}

async fn dispatch(args: Args) -> Result<u8, Failure> {
    let common = &args.common;
    match args.verb {
        Verb::Run(options) => run::run(common, options).await,
        Verb::Hold(options) => hold::hold(common, &options).await,
        Verb::Acquire(options) => handle::acquire(common, &options).await,
        Verb::Renew(options) => handle::renew(common, options).await,
        Verb::Release(options) => handle::release(common, options).await,
        Verb::Status(options) => status::status(common, &options).await,
        Verb::List(options) => list::list(common, &options).await,
        Verb::Top(options) => top::top(common, options).await,
        Verb::Watch(options) => watch::watch(common, &options).await,
        Verb::Serve(options) => serve::serve(common, options).await,
        Verb::Limit(options) => administer::limit(common, options).await,
        Verb::Alert(options) => administer::alert(common, options).await,
        Verb::Lane(options) => administer::lane(common, options).await,
        Verb::Pause(Pause { changed, time, reason }) => {
            administer::change(common, &changed, Change::Pause { time, reason }).await
        }
        Verb::Resume(changed) => administer::change(common, &changed, Change::Resume).await,
        Verb::Close(Close { changed, reason }) => {
            administer::change(common, &changed, Change::CloseLine { reason }).await
        }
        Verb::Open(changed) => administer::change(common, &changed, Change::OpenLine).await,
        Verb::Revoke(options) => revoke::revoke(common, &options).await,
        Verb::Delete(options) => administer::delete(common, options).await,
        Verb::Doctor(options) => doctor::doctor(common, &options).await,
        Verb::Completions(options) => generate::completions(&options),
        Verb::Man(options) => generate::man(&options),
    }
}
