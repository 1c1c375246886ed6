//! The servers of an address, and the faults of the sentinels or the cluster that list them.

use crate::address::{Address, Sentinels, Server};
use crate::cluster::{ask_for_map, members::Members};
use crate::sentinel::SentinelGroup;
use permits_store::Finding;

/// The servers that semaphores live on.
pub(super) async fn servers_of(address: &Address) -> (Vec<Server>, Vec<Finding>) {
    match address {
        Address::Server(server) => (vec![server.clone()], Vec::new()),
        Address::Sentinels(sentinels) => of_sentinels(sentinels).await,
        Address::Cluster(seeds) => of_cluster(seeds).await,
    }
}

async fn of_sentinels(sentinels: &Sentinels) -> (Vec<Server>, Vec<Finding>) {
    let group = SentinelGroup::new(sentinels.clone());
    let (answer, others, reasons) = group.poll_all().await;
    let (all, silent) = (group.count(), reasons.len());
    let Some(server) = answer else {
        let advice = "No sentinel names the primary. Are the sentinels running at these addresses, is the service's \
                      name right, and do they have a password of their own (sentinel_password)?";
        return (Vec::new(), vec![Finding::problem("sentinels", reasons.join("; "), advice)]);
    };
    let observed = format!("{} of {all} name {server}", all - silent - others.len());
    let mut findings = vec![Finding::fine("sentinels", observed)];
    if !others.is_empty() {
        let advice = "During a failover they differ for some seconds. If it stays so, these sentinels were cut off, or \
                      watch another deployment under this name: clients follow the newest configuration.";
        findings.push(Finding::note("sentinels", others.join("; "), advice));
    }
    if silent > 0 {
        let advice = "The others are enough to connect. A failover needs the quorum and a majority of all sentinels: \
                      make sure that they run and know each other (SENTINEL CKQUORUM).";
        findings.push(Finding::note(
            "sentinels",
            format!("{silent} of {all}: {}", reasons.join("; ")),
            advice,
        ));
    }
    (vec![server], findings)
}

async fn of_cluster(seeds: &[Server]) -> (Vec<Server>, Vec<Finding>) {
    let (slots, _) = match ask_for_map(std::iter::empty(), seeds, &Members::default()).await {
        Ok(map) => map,
        Err(error) => {
            let advice = "None of the nodes in the URL lists the cluster's nodes. One running node is enough; are they \
                          in cluster mode, and is the password the same on all of them?";
            return (Vec::new(), vec![Finding::problem("cluster", error.to_string(), advice)]);
        }
    };
    let nodes = slots.nodes();
    let missing = slots.missing();
    let observed = format!("{} primaries serve {} hash slots", nodes.len(), slots.served());
    let finding = if missing == 0 {
        Finding::fine("cluster", observed)
    } else {
        let advice = "Semaphores in the other hash slots cannot be used, and unless cluster-require-full-coverage is \
                      no, none can: bring back the nodes that had them.";
        Finding::problem("cluster", format!("{observed}, no node serves the other {missing}"), advice)
    };
    let servers = nodes.iter().map(|(host, port)| seeds[0].at(host, *port)).collect();
    (servers, vec![finding])
}
