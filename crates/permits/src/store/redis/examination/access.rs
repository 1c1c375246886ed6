//! What this user may do: every command that is ever needed is tried, in a form that changes nothing.

use std::collections::BTreeMap;

use redis::aio::ConnectionLike;
use redis::{RedisError, RedisResult, Value};
use tokio::time::timeout;

use super::TIMEOUT;
use crate::entropy;
use crate::examine::{Finding, Severity};
use crate::protocol::Name;
use crate::store::redis::acl::{Denial, attempts, denial};
use crate::store::redis::address::Server;
use crate::store::redis::error;
use crate::store::redis::keys;
use crate::store::redis::server::subscriber::Subscriber;

/// Tries every command, in one go.
pub(super) async fn rights(
    connection: &mut impl ConnectionLike,
    prefix: &str,
    scratch: &Name,
    in_cluster: bool,
) -> RedisResult<Vec<Finding>> {
    let key = &keys::keys(prefix, scratch)[0];
    let channel = keys::channel(
        prefix,
        in_cluster.then_some(scratch),
        &entropy::session_id().expect("the examination has begun with one"),
    );
    let attempts = attempts(in_cluster, key, &channel);
    let mut pipeline = redis::pipe();
    let mut tried = Vec::new();
    for attempt in attempts {
        if let Some(command) = attempt.command {
            pipeline.add_command(command);
            tried.push((attempt.name, attempt.needed));
        }
    }
    let replies = connection.req_packed_commands(&pipeline, 0, tried.len()).await?;
    let mut denied: BTreeMap<(bool, Denial), Vec<&str>> = BTreeMap::new();
    for ((name, needed), reply) in tried.iter().zip(&replies) {
        let Value::ServerError(error) = reply else { continue };
        if let Some(denial) = denial(error.code(), error.details().unwrap_or_default()) {
            denied.entry((*needed, denial)).or_default().push(name);
        }
    }
    let findings =
        denied.iter().map(|((needed, denial), names)| forbidden(*needed, *denial, names, prefix, in_cluster));
    let findings: Vec<Finding> = findings.collect();
    if findings.iter().any(|finding| finding.severity == Severity::Problem) {
        return Ok(findings);
    }
    let all = format!(
        "all {} commands that are needed may be run",
        tried.iter().filter(|(_, needed)| *needed).count()
    );
    Ok(std::iter::once(Finding::fine("rights", all)).chain(findings).collect())
}

fn forbidden(needed: bool, denial: Denial, names: &[&str], prefix: &str, in_cluster: bool) -> Finding {
    let list = names.join(", ");
    let observed = match denial {
        Denial::Command => format!("this user may not run {list}"),
        Denial::Keys => format!("this user may not use keys {} with {list}", keys::pattern(prefix)),
        Denial::Channel => {
            format!(
                "this user may not use channels {} with {list}",
                keys::channel_pattern(prefix, in_cluster)
            )
        }
        Denial::Unknown => format!("the server does not know {list}"),
    };
    if !needed {
        let what = names.iter().map(|name| match *name {
            "WAIT" => "WAIT is for grants that replicas are to confirm",
            "SCAN" => "SCAN lists semaphores (permits list, permits top)",
            _ => "SELECT is for another database than 0",
        });
        let meaning = format!("No permit needs it: {}.", what.collect::<Vec<_>>().join("; "));
        return Finding::note("rights", observed, meaning);
    }
    let rule = match denial {
        Denial::Command => {
            names.iter().map(|name| format!("+{}", name.to_lowercase())).collect::<Vec<_>>().join(" ")
        }
        Denial::Keys => format!("~{}", keys::pattern(prefix)),
        Denial::Channel => format!("&{}", keys::channel_pattern(prefix, in_cluster)),
        Denial::Unknown => {
            let meaning = "They were renamed or removed (rename-command): give them their names back, and take \
                           them from users by ACL instead.";
            return Finding::problem("rights", observed, meaning);
        }
    };
    let meaning = format!(
        "Permits cannot be acquired. Allow it: ACL SETUSER name {rule}. All that is needed is printed by permits \
         doctor --acl."
    );
    Finding::problem("rights", observed, meaning)
}

/// What of a user's rights this error is about, if it is.
pub(super) fn denial_of(error: &RedisError) -> Option<Denial> {
    denial(error.code()?, error.detail().unwrap_or_default())
}

/// Whether sessions may listen: on a connection of its own, because one that listens does nothing else.
pub(super) async fn may_not_subscribe(
    server: &Server,
    prefix: &str,
    scratch: &Name,
    in_cluster: bool,
) -> Option<Finding> {
    let channel = keys::channel(
        prefix,
        in_cluster.then_some(scratch),
        &entropy::session_id().expect("the examination has begun with one"),
    );
    let verb = if in_cluster { "SSUBSCRIBE" } else { "SUBSCRIBE" };
    let subscribing = async {
        let (mut subscriber, _messages) = Subscriber::connect(server, in_cluster).await?;
        subscriber.subscribe(&channel).await
    };
    let said = match timeout(TIMEOUT, subscribing).await {
        Ok(Ok(())) => return None,
        // Another node's channel: rights are looked at first.
        Ok(Err(error)) if error.redirect_node().is_some() => return None,
        Ok(Err(error)) => match denial_of(&error) {
            Some(denial) => return Some(forbidden(true, denial, &[verb], prefix, in_cluster)),
            None => error::text(&error),
        },
        Err(_) => format!("no answer within {TIMEOUT:?}"),
    };
    let meaning = "Sessions hear of their grants on a second connection, which does nothing else. Does the \
                   server, or a proxy before it, allow no more connections, or not speak RESP3?";
    Some(Finding::problem("connection", format!("{verb}: {said}"), meaning))
}
