//! The rights of the user: tries every command that the library sends, in a form that changes nothing.

use std::collections::BTreeMap;

use super::connection::reply;
use crate::acl::{Denial, attempts, denial};
use crate::protocol::Name;
use crate::resp::{RespError, RespResult, Value, cmd};
use crate::server::connection::Connection;
use crate::{error as redis_error, keys};
use permits_store::Finding;
use permits_store::self_test::new_session_id;

/// The rights to be tried.
pub(super) struct Rights<'a> {
    pub(super) prefix: &'a str,
    /// A semaphore without keys.
    pub(super) scratch: &'a Name,
    pub(super) in_cluster: bool,
}

impl Rights<'_> {
    /// Tries every command but subscriptions, in one pipeline.
    pub(super) async fn commands(&self, connection: &Connection) -> RespResult<Vec<Finding>> {
        let key = &keys::keys(self.prefix, self.scratch)[0];
        let (mut commands, mut tried) = (Vec::new(), Vec::new());
        for attempt in attempts(self.in_cluster, key, &self.channel()) {
            if let Some(command) = attempt.command {
                commands.push(command);
                tried.push((attempt.name, attempt.needed));
            }
        }
        let replies = connection.query_all(&commands).await;
        let mut denied: BTreeMap<(bool, Denial), Vec<&str>> = BTreeMap::new();
        for ((name, needed), reply) in tried.iter().zip(&replies) {
            let Err(error) = reply else { continue };
            if error.code().is_none() {
                return Err(error.clone());
            }
            if let Some(denial) = denial_of(error) {
                denied.entry((*needed, denial)).or_default().push(name);
            }
        }
        let findings: Vec<Finding> = denied
            .iter()
            .map(|((needed, denial), names)| match needed {
                true => self.denied(*denial, names),
                false => self.denied_and_optional(*denial, names),
            })
            .collect();
        if findings.iter().any(Finding::is_problem) {
            return Ok(findings);
        }
        let needed = tried.iter().filter(|(_, needed)| *needed).count();
        let all = format!("all {needed} commands that are needed may be run");
        Ok(std::iter::once(Finding::fine("rights", all)).chain(findings).collect())
    }

    /// Tries to subscribe, and to end the subscription.
    pub(super) async fn subscription(&self, connection: &Connection) -> Option<Finding> {
        let verbs =
            if self.in_cluster { ["SSUBSCRIBE", "SUNSUBSCRIBE"] } else { ["SUBSCRIBE", "UNSUBSCRIBE"] };
        for verb in verbs {
            let error = match reply::<Value>(connection, cmd(verb).arg(self.channel())).await {
                Ok(Ok(_)) => continue,
                // The channel belongs to another node. The server checks rights before it redirects.
                Ok(Err(error)) if error.redirect_node().is_some() => return None,
                Ok(Err(error)) | Err(error) => error,
            };
            if let Some(denial) = denial_of(&error) {
                return Some(self.denied(denial, &[verb]));
            }
            let advice = "Sessions receive their grants as messages on their connection. Does a proxy before the server not pass \
                          subscriptions on?";
            return Some(Finding::problem(
                "connection",
                format!("{verb}: {}", redis_error::text(&error)),
                advice,
            ));
        }
        None
    }

    /// The finding about denied commands that every session needs.
    fn denied(&self, denial: Denial, names: &[&str]) -> Finding {
        let rule = match denial {
            Denial::Command => {
                names.iter().map(|name| format!("+{}", name.to_lowercase())).collect::<Vec<_>>().join(" ")
            }
            Denial::Keys => format!("~{}", keys::pattern(self.prefix)),
            Denial::Channel => format!("&{}", keys::channel_pattern(self.prefix, self.in_cluster)),
            Denial::Database => "db=NUMBER, the database of the URL".to_owned(),
            Denial::Unknown if names.iter().any(|name| ["EVAL", "EVALSHA"].contains(name)) => {
                let advice = format!("Permits cannot be acquired: {}.", redis_error::LUA_IS_OFF);
                return Finding::problem("rights", self.observed(denial, names), advice);
            }
            Denial::Unknown => {
                let advice = "They were renamed or removed (rename-command): give them their names back, and deny \
                              them to users by ACL instead.";
                return Finding::problem("rights", self.observed(denial, names), advice);
            }
        };
        let advice = format!(
            "Permits cannot be acquired. Allow it: ACL SETUSER name {rule}. permits doctor --acl prints all rights \
             that are needed."
        );
        Finding::problem("rights", self.observed(denial, names), advice)
    }

    /// The finding about denied commands that only some programs need.
    fn denied_and_optional(&self, denial: Denial, names: &[&str]) -> Finding {
        let purposes = names.iter().map(|name| match *name {
            "WAIT" => "WAIT confirms grants on replicas",
            "SCAN" => "SCAN lists semaphores (permits serve, list, top, --under)",
            _ => "SELECT is for another database than 0",
        });
        let advice = format!("No permit needs it: {}.", purposes.collect::<Vec<_>>().join("; "));
        Finding::note("rights", self.observed(denial, names), advice)
    }

    fn observed(&self, denial: Denial, names: &[&str]) -> String {
        let list = names.join(", ");
        match denial {
            Denial::Command => format!("this user may not run {list}"),
            Denial::Keys => {
                format!("this user may not use keys {} with {list}", keys::pattern(self.prefix))
            }
            Denial::Channel => {
                let pattern = keys::channel_pattern(self.prefix, self.in_cluster);
                format!("this user may not use channels {pattern} with {list}")
            }
            Denial::Database => format!("this user may not use this database with {list}"),
            Denial::Unknown => format!("the server does not know {list}"),
        }
    }

    /// A channel without subscribers.
    fn channel(&self) -> String {
        keys::channel(self.prefix, self.in_cluster.then_some(self.scratch), &new_session_id())
    }
}

/// The right that this error denies, if it is a denial.
pub(super) fn denial_of(error: &RespError) -> Option<Denial> {
    denial(error.code()?, error.detail().unwrap_or_default())
}
