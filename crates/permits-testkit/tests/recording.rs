//! The record of real servers and worker processes, over faults, passes both kinds of checks. Every change of
//! the record is found.

use std::time::Duration;

use permits::{Client, Semaphore};
use permits_testkit::history::{
    self, ClientEvent, Record, Recorder, Replayed, Rules, Violation, merge, replay, verify,
};
use permits_testkit::mutants::record;
use permits_testkit::sound::Named as _;
use permits_testkit::worker::{
    Mix, Wait, Work, Worker, WorkerPool, WorkerSettings, run_if_started, test_command,
};
use permits_testkit::{Connection, Server, random, wait};

/// The limit that the workers declare.
const LIMIT: u32 = 3;

/// The grants from one fault to the next.
const GRANTS: usize = 40;

/// Not a test: a pool starts this executable again with this name, as a worker.
#[test]
#[ignore = "the other tests start it, as a process of its own"]
fn worker_process() {
    run_if_started();
}

/// A server, the record of its commands, its workers, and an operator in this process.
struct Fixture {
    recorder: Recorder,
    operator: Client,
    workers: Vec<Worker>,
    pool: WorkerPool,
    server: Server,
    random: fastrand::Rng,
}

impl Fixture {
    fn new(server: Server) -> Self {
        history::record();
        let recorder = Recorder::listen(&server);
        let operator = Client::connect(&server.url()).wait().expect("the server is up");
        let lease = Duration::from_millis(1500);
        let mut random = random::rng();
        let settings = WorkerSettings {
            semaphores: vec!["shared".to_owned()],
            seed: random.u64(..),
            step: Some(Duration::from_millis(3)),
            recorded: true,
            ..WorkerSettings::new(LIMIT, lease)
        };
        let pool = WorkerPool::new(|| test_command("worker_process"), settings);
        Self { recorder, operator, workers: Vec::new(), pool, server, random }
    }

    fn semaphore(&self) -> Semaphore {
        self.operator.named("shared", permits::Limit::Stored)
    }

    /// Starts the workers, which acquire and release until the end.
    fn start_workers(&mut self) {
        let millis = |from, to| Duration::from_millis(from)..Duration::from_millis(to);
        let work = Work {
            weight: Mix(vec![(1, 1), (1, 2)]),
            wait: Mix(vec![(1, Wait::Granted), (3, Wait::Timeout(millis(0, 60)))]),
            ..Work::brief(2, Duration::from_millis(20))
        };
        for number in 0..3 {
            let url = self.server.url();
            let mut worker =
                self.pool.start_connected(&format!("worker{number}"), &url, self.pool.settings.lease);
            worker.work(&work);
            self.workers.push(worker);
        }
    }

    /// Lets the workers acquire, meanwhile executes an operator's commands, and then causes a fault.
    fn load(&mut self, administered: bool, fault: impl FnOnce(&Server)) {
        let acquired = || self.pool.count(|event| matches!(event, ClientEvent::Acquired { .. }));
        let before = acquired();
        let (semaphore, mut random) = (self.semaphore(), self.random.fork());
        let loaded = wait::until(|| {
            if administered {
                administer(&semaphore, &mut random);
            }
            acquired() >= before + GRANTS
        });
        assert!(loaded, "the workers acquire nothing");
        fault(&self.server);
    }

    /// Closes all workers, and lets the limit be declared again. Returns the record.
    fn end(&mut self) -> Vec<Record> {
        while self.semaphore().unpin().wait().is_err() {}
        let closed = self.pool.close(std::mem::take(&mut self.workers));
        closed.unwrap_or_else(|reason| panic!("{reason}"));
        self.recorder.records()
    }
}

/// A command of an operator, which may fail.
fn administer(semaphore: &Semaphore, random: &mut fastrand::Rng) {
    match random.u8(0..7) {
        0 => drop(semaphore.set_limit(random.u32(2..5)).wait()),
        1 => drop(semaphore.unpin().wait()),
        2 => {
            let _ = semaphore.pause("").wait();
            while semaphore.resume().wait().is_err() {}
        }
        3 => {
            let seen = semaphore.inspect_up_to(1).wait();
            let holder = seen.ok().and_then(|seen| Some(seen.holders.first()?.holder.clone()));
            drop(semaphore.revoke(&holder.unwrap_or_else(|| "none".to_owned()), "late").wait());
        }
        _ => drop(semaphore.inspect().wait()),
    }
}

fn restart(server: &Server) {
    server.kill();
    server.restart();
}

/// A server that keeps everything that it has answered.
fn keeping() -> Server {
    Server::builder().append_only().arg("appendfsync", "always").start()
}

fn flush_scripts(server: &Server) {
    assert_eq!(server.command(&["SCRIPT", "FLUSH"]).text(), "OK");
}

fn explained<T>(verdict: Result<T, Violation>) -> T {
    verdict.unwrap_or_else(|violation| panic!("{violation}"))
}

#[test]
fn the_record_of_a_server_that_keeps_its_state_passes_both_checks() {
    let mut fixture = Fixture::new(keeping());
    fixture.start_workers();
    fixture.load(false, flush_scripts);
    fixture.load(false, restart);
    fixture.load(false, |_| {});
    let replayed = explained(replay(&fixture.end()));
    explained(replayed.check_kept());
    explained(replayed.check_at_rest());
    explained(replayed.check_deadlines(&fixture.pool.grants()));
    explained(verify(&fixture.pool.history(), &Rules::limit(LIMIT)));
    println!("{} commands, {} events", replayed.commands, replayed.events);
}

#[test]
fn a_record_over_losses_is_replayed_and_every_change_of_it_is_found() {
    let mut fixture = Fixture::new(Server::start());
    fixture.start_workers();
    fixture.load(true, flush_scripts);
    fixture.load(true, |server| assert_eq!(server.command(&["FLUSHALL"]).text(), "OK"));
    fixture.load(true, restart);
    let records = fixture.end();
    let replayed = explained(replay(&records));
    explained(replayed.check_at_rest());
    let lost = |restarted| replayed.losses.iter().filter(|loss| loss.restarted == restarted).count();
    assert_eq!((lost(false), lost(true), replayed.losses.len()), (1, 1, 2), "{:?}", replayed.losses);
    change_each(&records, &replayed, &mut fixture.random);
}

/// Changes one thing at a time, and demands that each is found.
fn change_each(records: &[Record], sound: &Replayed, rng: &mut fastrand::Rng) {
    let wanted = 100 * random::cases();
    let mut found = 0;
    let mut tried = 0;
    while tried < wanted {
        let number = rng.usize(0..records.len() - 1);
        let sequence = records[number].reply.sequence;
        let changes_nothing = records[number].command.only_looks();
        let is_followed =
            !changes_nothing && sequence > 0 && records[number + 1].reply.sequence == sequence + 1;
        let mut spoilt = records[..number + 2].to_vec();
        let what = match rng.u8(0..10) {
            // Without a successor in the same state, the change has no effect.
            0..3 if !is_followed => continue,
            0 => {
                spoilt.remove(number);
                "missing"
            }
            1 => {
                spoilt.swap(number, number + 1);
                "late"
            }
            2 => {
                spoilt.insert(number, records[number].clone());
                "twice"
            }
            _ => {
                let mut changes = record::mutants(records, number);
                let (what, changed) = changes.swap_remove(rng.usize(0..changes.len()));
                spoilt[number] = changed;
                what
            }
        };
        tried += 1;
        let mut losses = sound.losses.clone();
        losses.retain(|loss| loss.record < number + 2);
        if replay(&spoilt).is_ok_and(|replayed| replayed.losses == losses) {
            println!("not found: {what}, of {:?}", records[number]);
        } else {
            found += 1;
        }
    }
    println!("{found} of {tried} changes of {} records were found", records.len());
    assert_eq!(found, tried);
}

/// The id of the recorder's connection, when it listens.
fn listening(admin: &mut Connection) -> String {
    let mut id = None;
    let listens = wait::until(|| {
        let list = admin.call(&["CLIENT", "LIST", "TYPE", "pubsub"]).expect("it is up").text().to_owned();
        let ours = list.lines().find(|line| line.contains(Recorder::NAME));
        id = ours.and_then(|line| line.split(' ').next()?.strip_prefix("id=").map(str::to_owned));
        id.is_some()
    });
    assert!(listens, "the recorder does not return");
    id.expect("it was found")
}

/// The connection of the recorder is killed, with the messages on it; it returns some time later.
#[test]
fn commands_without_a_listener_are_recorded() {
    const ROUNDS: usize = 50;
    let fixture = Fixture::new(Server::start());
    let mut admin = fixture.server.connect().expect("it is up");
    let semaphore = fixture.semaphore();
    semaphore.set_limit(3).wait().expect("it is up");
    for round in 0..ROUNDS {
        let id = listening(&mut admin);
        drop(semaphore.inspect().wait().expect("it is up"));
        assert_eq!(admin.call(&["CLIENT", "KILL", "ID", &id]).expect("it is up").int(), 1, "round {round}");
        drop(semaphore.inspect().wait().expect("it is up"));
    }
    let replayed = explained(replay(&fixture.recorder.records()));
    explained(replayed.check_kept());
    assert_eq!(replayed.commands, 1 + 2 * ROUNDS);
}

/// A server answers before it publishes: in half of the rounds the last record is not published yet when the
/// server dies.
#[test]
fn records_that_a_killed_server_did_not_publish_are_read_when_it_is_back() {
    const ROUNDS: usize = 20;
    let fixture = Fixture::new(keeping());
    let semaphore = fixture.semaphore();
    semaphore.set_limit(3).wait().expect("it is up");
    for _ in 0..ROUNDS {
        while semaphore.inspect().wait().is_err() {}
        restart(&fixture.server);
    }
    let replayed = explained(replay(&fixture.recorder.records()));
    explained(replayed.check_kept());
    assert!(replayed.commands > ROUNDS, "{} commands", replayed.commands);
}

#[test]
fn a_server_that_is_down_has_published_all() {
    let fixture = Fixture::new(Server::start());
    for _ in 0..100 {
        drop(fixture.semaphore().inspect().wait().expect("it is up"));
    }
    assert_eq!(fixture.recorder.records().len(), 100);
    fixture.server.kill();
    assert_eq!(fixture.recorder.records().len(), 100);
}

/// A replica's listeners receive the primary's messages: one of the two is enough, and both are no more.
#[test]
fn two_recorders_make_one_history() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let is_linked = || replica.info("master_link_status").as_deref() == Some("up");
    assert!(wait::until(is_linked), "the replica does not find its primary");
    let second = Recorder::listen(&replica);
    let mut fixture = Fixture::new(primary);
    fixture.start_workers();
    fixture.load(true, flush_scripts);
    let first = fixture.end();
    let all_heard = wait::until(|| second.records().len() == first.len());
    assert!(all_heard, "the replica does not publish all");
    let merged = merge([first.clone(), second.records()]);
    assert_eq!(merged, first);
    explained(explained(replay(&merged)).check_kept());
}
