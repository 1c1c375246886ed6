//! A call for each of the semaphores of a verb, many at once.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use permits::{AdminError, Client, Inspection, Limit};
use serde_json::json;

use crate::args::{Chosen, Common, Targets};
use crate::exit::{self, Failure};
use crate::inspected::ListRow;
use crate::{connect, names, report};

/// The most inspections in flight at once: enough to hide the round trips, and few enough that a server
/// serves other clients in between.
pub(crate) const CONCURRENCY: usize = 64;

/// A semaphore that is in use, or one whose keys cannot be read, with the reason.
pub(crate) type Listed = Result<Inspection, Unreadable>;

/// A semaphore whose keys belong to another program, are damaged or have another layout.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl From<&Listed> for ListRow {
    fn from(listed: &Listed) -> Self {
        match listed {
            Ok(inspection) => inspection.into(),
            Err(Unreadable { name, reason }) => {
                Self { name: name.clone(), unreadable: Some(reason.clone()), ..Self::default() }.ranked()
            }
        }
    }
}

/// Makes a change of each semaphore of `targets` and prints its line. `make` returns `None` if it found
/// nothing to change.
///
/// `what` is the change in the question for several, such as `pause for 1 h`. With `warns`, a name that
/// the store did not know is reported after the change, because the search for similar names takes time.
///
/// If the change of one of several semaphores fails, the others are still changed, unless the store cannot be
/// reached.
pub(crate) async fn change(
    common: &Common,
    targets: &Targets,
    what: &str,
    warns: bool,
    make: impl AsyncFn(&Client, String) -> Result<Option<String>, AdminError>,
) -> Result<u8, Failure> {
    let chosen = targets.names.chosen()?;
    let client = connect::author(common, &targets.author).await?;
    if let Chosen::One(name) = chosen {
        let is_known = !warns || names::is_known_name(&client, name).await?;
        let Some(line) = make(&client, name.to_owned()).await? else {
            let is_known = names::is_known_name(&client, name).await?;
            return Err(if is_known { nothing(name) } else { names::unknown_failure(&client, name).await });
        };
        if !is_known {
            report::say_with(names::unknown(&client, name).await, json!({ "semaphore": name }));
        }
        return Ok(exit::print_lines(&line));
    }
    let names = chosen.names(&client).await?;
    names::confirm(targets, what, &names)?;
    let all = names.len();
    let (mut code, mut failed, mut changed) = (exit::SUCCESS, Vec::new(), 0);
    let make = async |name: String| (name.clone(), make(&client, name).await);
    let mut made = stream::iter(names).map(make).buffered(CONCURRENCY);
    while let Some((name, made)) = made.next().await {
        match made {
            Ok(Some(line)) => {
                changed += 1;
                code = code.max(exit::print_lines(&line));
            }
            Ok(None) => {}
            Err(AdminError::Store(error)) if error.is_temporary() => {
                let failure = Failure::from(AdminError::Store(error));
                let message = format!("{name}: {}; {changed} of {all} were changed", failure.message);
                return Err(Failure { message, ..failure });
            }
            Err(error) => {
                let failure = Failure::from(error);
                report::say(format_args!("{name}: {}", failure.message));
                failed.push(failure.code);
            }
        }
    }
    match failed.first() {
        Some(code) => {
            let message = format!("{} of {all} semaphores could not be changed", failed.len());
            Err(Failure::new(*code, message))
        }
        None if changed == 0 => Err(nothing(&format!("{all} semaphores"))),
        None => Ok(code),
    }
}

/// The failure of a revocation that found nothing.
fn nothing(of: &str) -> Failure {
    Failure::new(exit::NO_MATCH, format!("{of}: there is no holder and no waiter"))
}

/// Inspects each semaphore of `chosen`, with at most `listed` holders and waiters. Below a prefix, one that
/// cannot be read is reported, and the others are still returned.
pub(crate) async fn inspect(
    client: &Client,
    chosen: Chosen<'_>,
    listed: u32,
) -> Result<Vec<Inspection>, Failure> {
    let inspect = async |name: String| client.semaphore(name, Limit::Stored)?.inspect_up_to(listed).await;
    let names = chosen.names(client).await?;
    let inspections = stream::iter(names).map(inspect).buffered(CONCURRENCY);
    let ours = inspections.filter_map(async |inspected| match (inspected, chosen) {
        (Err(AdminError::Store(error)), Chosen::Under(_)) if error.concerns_one_semaphore() => {
            report::say(format_args!("not shown: {}", report::with_causes(&error)));
            None
        }
        (inspected, _) => Some(inspected),
    });
    Ok(ours.try_collect().await?)
}

/// Inspects each semaphore of `names`, and makes a `T` of each that is in use or cannot be read. Fails with
/// an error that concerns the store as a whole.
pub(crate) async fn inspect_listed<T, F: Future<Output = Result<Inspection, AdminError>>>(
    names: Vec<String>,
    inspect: impl Fn(String) -> F,
    make: impl Fn(Listed) -> T,
) -> Result<Vec<T>, AdminError> {
    let inspections = stream::iter(names).map(|name| {
        let inspected = inspect(name.clone());
        async move {
            match inspected.await {
                Ok(inspection) => Ok(names::is_used(&inspection).then_some(Ok(inspection))),
                Err(AdminError::Store(error)) if error.concerns_one_semaphore() => {
                    Ok(Some(Err(Unreadable { name, reason: report::with_causes(&error) })))
                }
                Err(error) => Err(error),
            }
        }
    });
    let listed = inspections.buffered(CONCURRENCY).try_filter_map(async |listed| Ok(listed));
    listed.map_ok(make).try_collect().await
}
