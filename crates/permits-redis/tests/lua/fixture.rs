//! A semaphore on a real server and in the model.

use std::net::SocketAddr;

use permits_core::model::{self, ServerClock, State};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Command, Declaration, LimitChange, Operation, Recovery, Reply,
    SessionId,
};
use permits_redis::testing::{FixedClockStore, SERVER_KEY, keys_of};
use permits_store::StoreError;
use permits_testkit::{Connection, Resp, Server};
use tokio::runtime::Runtime;

use crate::dump;
use crate::operations::name;
pub(crate) use crate::operations::{
    acquire, acquire_among, change_limit, close_line, every_operation, holder, id, in_lane, pause, pin,
    release, release_all, renew, renewal, request, set,
};

/// A semaphore's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    Unused,
    /// A and B hold, a slot is free, and no request waits.
    Used,
    /// A and B hold, C and D wait, and the slot of a holder that has left is free.
    Full,
    /// A and B hold, C and D wait, and no slot is free.
    Lined,
    /// As `Lined`, in two lanes, one of which has a limit.
    Laned,
}

impl Scene {
    pub(crate) const ALL: [Self; 5] = [Self::Unused, Self::Used, Self::Full, Self::Lined, Self::Laned];
}

/// A semaphore on a real server and in the model, at one moment.
pub(crate) struct Both {
    store: FixedClockStore,
    pub(crate) connection: Connection,
    pub(crate) state: Option<State>,
    pub(crate) now_us: u64,
    pub(crate) keys: [String; 5],
    /// The server's identity: another one begins an era.
    pub(crate) run_id: &'static str,
    pub(crate) uptime_ms: u64,
    pub(crate) recovery: Recovery,
    pub(crate) declaration: Declaration,
    // Dropped after the store, which has tasks on it.
    runtime: Runtime,
    server: Server,
}

impl Both {
    pub(crate) fn start() -> Self {
        let server = Server::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let url = server.url();
        let connecting =
            FixedClockStore::connect(&url, "permits-test", SessionId::new("session").expect("it is plain"));
        let store = runtime.block_on(connecting).expect("the server runs");
        let connection = server.connect().expect("the server runs");
        let (state, now_us, keys) = (None, 0, keys_of("permits-test", &name()));
        let (run_id, recovery, declaration) = ("run", Recovery::Off, Declaration::Fallback(3));
        let mut both = Self {
            store,
            connection,
            state,
            now_us,
            keys,
            run_id,
            uptime_ms: 1_000_000_000,
            recovery,
            declaration,
            runtime,
            server,
        };
        both.set_time(4_102_444_800_000_000);
        both
    }

    /// Empties the server, and lets time pass.
    pub(crate) fn again(&mut self) {
        let now_us = self.now_us + 100_000_000;
        self.call(&["FLUSHALL"]);
        self.state = None;
        self.set_time(now_us);
    }

    pub(crate) fn set_time(&mut self, now_us: u64) {
        self.now_us = now_us;
        let (now, uptime) = (now_us.to_string(), self.uptime_ms.to_string());
        let fields = ["now_us", &now, "run_id", self.run_id, "uptime_ms", &uptime];
        self.call(&[&["HSET", SERVER_KEY], &fields[..]].concat());
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Another connection to the server.
    pub(crate) fn new_connection(&self) -> Connection {
        self.server.connect().expect("the server runs")
    }

    pub(crate) fn call(&mut self, command: &[&str]) -> Resp {
        let reply = self.connection.call(command).expect("the server runs");
        assert!(!matches!(reply, Resp::Error(_)), "{command:?}: {reply:?}");
        reply
    }

    pub(crate) fn execute(&mut self, operation: &Operation) -> Result<Reply, StoreError> {
        self.runtime.block_on(self.store.execute(&self.command(operation)))
    }

    /// Executes `operation` on both, and demands equal replies and states.
    pub(crate) fn same(&mut self, operation: &Operation) -> Answers {
        let clock = self.clock();
        let command = self.command(operation);
        let (wanted, _) = model::apply(&mut self.state, &clock, &command);
        self.refuse_writes(command.only_looks());
        let got = self.execute(operation).unwrap_or_else(|error| panic!("{operation:?}: {error}"));
        self.refuse_writes(false);
        assert_eq!(got, wanted, "{operation:?}");
        // The next command that writes notices that keys have vanished.
        if self.state.as_ref().is_none_or(|state| state.damage.is_none()) {
            self.unchanged();
        }
        got.answers
    }

    pub(crate) fn clock(&self) -> ServerClock<'static> {
        ServerClock { now_us: self.now_us, run_id: self.run_id, uptime_ms: self.uptime_ms }
    }

    pub(crate) fn acquired(&mut self, requests: Vec<AcquireRequest>) -> Vec<AcquireOutcome> {
        let Answers::Acquire(outcomes) = self.same(&Operation::Acquire { queue_max: 100, requests }) else {
            unreachable!()
        };
        outcomes
    }

    /// Demands that the server's keys hold the model's state.
    #[track_caller]
    pub(crate) fn unchanged(&mut self) {
        let dump = dump::read(&mut self.connection, &self.keys).expect("it can be read");
        assert_eq!(dump.state, self.state);
        assert_eq!(dump.check_expiry(), Ok(()));
    }

    /// A semaphore in this scene.
    pub(crate) fn in_scene(scene: Scene) -> Self {
        let mut both = Self::start();
        both.play(scene);
        both
    }

    pub(crate) fn play(&mut self, scene: Scene) {
        match scene {
            Scene::Unused => {}
            Scene::Used => {
                self.same(&acquire(&["x", "a", "b"]));
                self.same(&release("x"));
            }
            Scene::Full => {
                self.play(Scene::Used);
                self.limit_to_2();
                self.same(&acquire(&["c", "d"]));
            }
            Scene::Lined => {
                self.limit_to_2();
                self.same(&acquire(&["a", "b", "c", "d"]));
            }
            Scene::Laned => {
                self.limit_to_2();
                let requests = [("a", "p", 1), ("b", "q", 0), ("c", "p", 1), ("d", "q", 0)];
                let requests = requests.map(|(name, lane, lane_limit)| {
                    let mut request = in_lane(name, lane, 1);
                    request.terms.lane_limit = lane_limit;
                    request
                });
                self.same(&Operation::Acquire { queue_max: 10, requests: requests.into() });
            }
        }
    }

    pub(crate) fn command(&self, operation: &Operation) -> Command {
        Command {
            semaphore: name(),
            session: SessionId::new("session").expect("it is plain"),
            lease_ms: 3_000,
            recovery: self.recovery,
            declaration: self.declaration,
            operation: operation.clone(),
        }
    }

    fn limit_to_2(&mut self) {
        self.same(&change_limit("l1", LimitChange::Set(2)));
        self.same(&change_limit("l2", LimitChange::Unpin));
    }

    /// Makes the server refuse each command that may write, or accept all commands again.
    pub(crate) fn refuse_writes(&mut self, refuses: bool) {
        self.call(&["CONFIG", "SET", "min-replicas-to-write", if refuses { "1" } else { "0" }]);
    }

    pub(crate) fn fill_memory(&mut self) {
        self.call(&["CONFIG", "SET", "maxmemory", "1"]);
    }

    pub(crate) fn free_memory(&mut self) {
        self.call(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}
