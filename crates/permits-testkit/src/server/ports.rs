//! Ports that belong to one process until it ends, and to one server of it.
//!
//! A test kills a server, and its clients try the address again and again. If the port went back to the
//! system meanwhile, the next server of another test could be given it, and the clients would go on there:
//! with the wrong server, without an error. So a process owns a block of ports. The first port of a block is
//! its lock: a socket stays bound there until the process ends, however it ends. The tests in Python and
//! Node use the same blocks (`support.py`, `support.ts`). The process hands out each of the other ports once.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// The first port of the range. The range is below the one from which systems serve outgoing connections:
/// there, a client that reconnects could be given the very port of a server that is down, and prevent its
/// restart.
const FIRST: u16 = 11_000;

/// The number of blocks.
const BLOCKS: u16 = 500;

/// The ports of a block, its lock included.
const BLOCK: u16 = 20;

/// The distance of the port on which a node of a cluster listens for the other nodes. The option to set it is
/// younger than the oldest server that these tests serve.
pub(crate) const BUS_OFFSET: u16 = 10_000;

/// The blocks of this process: their locks, and the ports of the newest that are left.
static OWNED: Mutex<Owned> = Mutex::new(Owned { locks: Vec::new(), left: Vec::new() });

struct Owned {
    locks: Vec<TcpListener>,
    left: Vec<u16>,
}

/// An address on loopback that no other server gets while this process lives. If `second` is true, the server
/// takes another port, at [`BUS_OFFSET`].
pub(super) fn own(second: bool) -> SocketAddr {
    let mut owned = OWNED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        while let Some(port) = owned.left.pop() {
            // A program that knows nothing of blocks may have taken it.
            if listener(port).is_some() && (!second || listener(port + BUS_OFFSET).is_some()) {
                return SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            }
        }
        // The search starts somewhere else in each process, so that processes seldom try the same blocks.
        let start = RandomState::new().build_hasher().finish() % u64::from(BLOCKS);
        let start = u16::try_from(start).expect("it is less than the number of blocks");
        let mut first_ports = (0..BLOCKS).map(|step| FIRST + (start + step) % BLOCKS * BLOCK);
        let (lock, first) = first_ports
            .find_map(|first| Some((listener(first)?, first)))
            .expect("one of hundreds of blocks is free");
        owned.locks.push(lock);
        owned.left = (first + 1..first + BLOCK).rev().collect();
    }
}

/// A listener on a port of loopback, unless the port is taken.
fn listener(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// More ports than a block has, each with nobody listening on it.
    #[test]
    fn a_port_is_handed_out_once_and_its_block_stays_locked() {
        let ports: BTreeSet<u16> = (0..3 * BLOCK).map(|_| own(false).port()).collect();
        assert_eq!(ports.len(), usize::from(3 * BLOCK), "{ports:?}");
        for port in ports {
            let first = port - (port - FIRST) % BLOCK;
            assert_ne!(port, first, "the first port of a block is its lock");
            assert!(listener(first).is_none(), "the block of {port} is locked");
        }
    }
}
