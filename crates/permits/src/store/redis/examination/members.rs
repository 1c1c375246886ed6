//! Which servers an address stands for, and what is wrong with who says so.

use super::super::address::{Address, Sentinels, Server};
use super::super::cluster;
use super::super::sentinel::SentinelGroup;
use crate::examine::Finding;

/// The servers that semaphores live on.
pub(super) async fn of(address: &Address) -> (Vec<Server>, Vec<Finding>) {
    match address {
        Address::Server(server) => (vec![server.clone()], Vec::new()),
        Address::Sentinels(sentinels) => of_sentinels(sentinels).await,
        Address::Cluster(seeds) => of_cluster(seeds).await,
    }
}

async fn of_sentinels(sentinels: &Sentinels) -> (Vec<Server>, Vec<Finding>) {
    let group = SentinelGroup::new(sentinels.clone());
    let (answer, reasons) = group.poll_all().await;
    let (all, silent) = (group.count(), reasons.len());
    let mut findings = Vec::new();
    if !reasons.is_empty() && answer.is_some() {
        let meaning = "The others are enough to connect. A failover needs the quorum and a majority of all \
                       sentinels: see to it that they run and know each other (SENTINEL CKQUORUM).";
        findings.push(Finding::note(
            "sentinels",
            format!("{silent} of {all}: {}", reasons.join("; ")),
            meaning,
        ));
    }
    match answer {
        Some(server) => {
            let observed = format!("{} of {all} answer, and name {server}", all - silent);
            findings.insert(0, Finding::fine("sentinels", observed));
            (vec![server], findings)
        }
        None => {
            let meaning = "Nobody can tell which server it is now. Are the sentinels running there, is this what \
                           they call the service, and do they have a password of their own (sentinel_password)?";
            findings.push(Finding::problem("sentinels", reasons.join("; "), meaning));
            (Vec::new(), findings)
        }
    }
}

async fn of_cluster(seeds: &[Server]) -> (Vec<Server>, Vec<Finding>) {
    let (slots, _) = match cluster::ask_for_map(seeds.iter().cloned()).await {
        Ok(map) => map,
        Err(error) => {
            let meaning = "None of the nodes in the URL tells which nodes there are. One that runs is enough; are \
                           they in cluster mode, and does the password count for all of them?";
            return (Vec::new(), vec![Finding::problem("cluster", error.to_string(), meaning)]);
        }
    };
    let nodes = slots.nodes();
    let missing = slots.missing();
    let observed = format!("{} primaries serve {} slots", nodes.len(), slots.served());
    let finding = if missing == 0 {
        Finding::fine("cluster", observed)
    } else {
        let meaning = "Semaphores in the other slots cannot be used, and unless cluster-require-full-coverage is no, \
                       none can: bring the nodes back that had them.";
        Finding::problem("cluster", format!("{observed}, {missing} are served by nobody"), meaning)
    };
    let servers = nodes.iter().filter_map(|(host, port)| seeds[0].at(host, *port).ok()).collect();
    (servers, vec![finding])
}
