//! The record of real servers and real clients, over faults, passes both kinds of checks. Every change of the record
//! is found.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use permits::{AcquireOptions, Client, Permit};
use permits_testkit::history::{
    self, ClientEvent, History, Record, Recorder, Replayed, Rules, Violation, deadline, merge, replay, verify,
};
use permits_testkit::mutants::record;
use permits_testkit::{Connection, Server, random, wait};
use tokio::time::sleep;

/// The time limit of all waits, on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

const CLIENTS: usize = 4;

/// The turns of each client from one fault to the next.
const TURNS: usize = 30;

/// Clients of one server in this process, and their history.
struct Fixture {
    recorder: Recorder,
    server: Server,
    clients: Vec<Client>,
    seen: Mutex<History>,
    turns: AtomicUsize,
    seed: u64,
}

impl Fixture {
    async fn new(server: Server) -> Self {
        history::record();
        let recorder = Recorder::listen(&server);
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let client = Client::builder(server.url()).label(format!("client{number}"));
            let client = client.lease(Duration::from_millis(1500)).connect().await;
            clients.push(client.expect("the server is up"));
        }
        let seed = random::seed();
        Self { recorder, server, clients, seen: Mutex::default(), turns: AtomicUsize::new(0), seed }
    }

    fn note(&self, number: usize, tag: &str, what: ClientEvent) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).note(number, tag, what);
    }

    /// All clients take their turns, and the fault happens in the middle.
    async fn turns(&self, administered: bool, fault: impl FnOnce(&Server)) {
        let begun = self.turns.load(Ordering::Relaxed);
        let turns = (0..CLIENTS).map(|number| self.turns_of(number, administered));
        let fault = async {
            while self.turns.load(Ordering::Relaxed) < begun + CLIENTS * TURNS / 2 {
                sleep(Duration::from_millis(1)).await;
            }
            fault(&self.server);
        };
        tokio::join!(fault, futures(turns));
    }

    async fn turns_of(&self, number: usize, administered: bool) {
        let begun = self.turns.load(Ordering::Relaxed);
        let mut random = fastrand::Rng::with_seed(self.seed ^ (1000 * begun + number) as u64);
        for turn in 0..TURNS {
            self.turns.fetch_add(1, Ordering::Relaxed);
            if administered && random.u8(0..4) == 0 {
                self.administer(number, &mut random).await;
            } else {
                self.hold(number, &format!("{begun}.{turn}"), &mut random).await;
            }
        }
    }

    /// Acquires, works for some steps, and releases.
    async fn hold(&self, number: usize, tag: &str, random: &mut fastrand::Rng) {
        let weight = random.u32(1..3);
        let options = AcquireOptions::new().weight(weight).holder(format!("holder {number}"));
        let options = options.wait(Duration::from_millis(random.u64(0..60)));
        self.note(number, tag, ClientEvent::Asked { weight });
        let permit = match self.clients[number].semaphore("shared", 3).acquire_with(options).await {
            Ok(permit) => permit,
            Err(error) => return self.note(number, tag, ClientEvent::Failed(error.to_string())),
        };
        let (at, until) = deadline(|| permit.remaining());
        let (token, slot) = (permit.token(), permit.slot());
        let acquired = ClientEvent::Acquired { token, slot, until };
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).note_at(at, number, tag, acquired);
        for _ in 0..random.u32(0..4) {
            sleep(Duration::from_millis(random.u64(0..6))).await;
            if random.u8(0..6) == 0 {
                // The outcome shows at the next step.
                let _ = permit.renew().await;
            }
            if !self.step(number, tag, &permit) {
                return self.note(number, tag, ClientEvent::Lost("seen".to_owned()));
            }
        }
        self.note(number, tag, ClientEvent::Releasing);
        let outcome = permit.release().await;
        self.note(number, tag, ClientEvent::Released(outcome.map_err(|error| error.to_string())));
    }

    fn step(&self, number: usize, tag: &str, permit: &Permit) -> bool {
        let (at, until) = deadline(|| permit.remaining());
        let is_held = permit.is_held();
        let what = if is_held { ClientEvent::Held { until } } else { ClientEvent::NotHeld };
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).note_at(at, number, tag, what);
        is_held
    }

    /// Commands of an operator, which may fail.
    async fn administer(&self, number: usize, random: &mut fastrand::Rng) {
        let semaphore = self.clients[number].open("shared");
        match random.u8(0..7) {
            0 => drop(semaphore.set_limit(random.u32(1..5)).await),
            1 => drop(semaphore.unpin().await),
            2 => {
                let _ = semaphore.pause().await;
                sleep(Duration::from_millis(3)).await;
                while semaphore.resume().await.is_err() {}
            }
            3 => drop(semaphore.revoke(&format!("holder {}", random.usize(0..CLIENTS)), "late").await),
            _ => drop(semaphore.inspect().await),
        }
    }

    /// Lets the limit be declared again, and closes all clients.
    async fn end(&mut self) {
        let semaphore = self.clients[0].semaphore("shared", 3);
        semaphore.unpin().await.expect("the server is up");
        for (number, client) in self.clients.drain(..).enumerate() {
            client.close().await.expect("the server is up");
            self.seen.get_mut().unwrap_or_else(PoisonError::into_inner).note(
                number,
                "-",
                ClientEvent::Closed(Ok(())),
            );
        }
    }

    fn seen(&mut self) -> &History {
        self.seen.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn futures(all: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        all.retain_mut(|one| one.as_mut().poll(context).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
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

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_server_that_keeps_its_state_passes_both_checks() {
    let mut scene = Fixture::new(keeping()).await;
    scene.turns(false, flush_scripts).await;
    scene.turns(false, restart).await;
    scene.turns(false, |_| {}).await;
    scene.end().await;
    let replayed = explained(replay(&scene.recorder.records()));
    explained(replayed.check_kept());
    explained(replayed.check_at_rest());
    let grants = scene.seen().grants();
    assert!(grants.len() > 50, "{} grants", grants.len());
    explained(replayed.check_deadlines(&grants));
    explained(verify(scene.seen(), &Rules::limit(3)));
    println!("{} commands, {} events, {} grants", replayed.commands, replayed.events, grants.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_over_losses_is_replayed_and_every_change_of_it_is_found() {
    let mut scene = Fixture::new(Server::start()).await;
    scene.turns(true, flush_scripts).await;
    scene.turns(true, |server| assert_eq!(server.command(&["FLUSHALL"]).text(), "OK")).await;
    scene.turns(true, restart).await;
    scene.end().await;
    let records = scene.recorder.records();
    let replayed = explained(replay(&records));
    explained(replayed.check_at_rest());
    let lost = |restarted| replayed.losses.iter().filter(|loss| loss.restarted == restarted).count();
    assert_eq!((lost(false), lost(true), replayed.losses.len()), (1, 1, 2), "{:?}", replayed.losses);
    change_each(&records, &replayed, &mut fastrand::Rng::with_seed(scene.seed));
}

/// Changes one thing at a time, and demands that each is found.
fn change_each(records: &[Record], sound: &Replayed, random: &mut fastrand::Rng) {
    const CHANGES: usize = 300;
    let mut found = 0;
    let mut tried = 0;
    while tried < CHANGES {
        let number = random.usize(0..records.len() - 1);
        let sequence = records[number].reply.sequence;
        let is_followed = sequence > 0 && records[number + 1].reply.sequence == sequence + 1;
        let mut spoilt = records[..number + 2].to_vec();
        let what = match random.u8(0..10) {
            // Without a successor in the same state, the change has no effect.
            0..3 if !is_followed => continue,
            0 => {
                spoilt.remove(number);
                "missing".to_owned()
            }
            1 => {
                spoilt.swap(number, number + 1);
                "late".to_owned()
            }
            2 => {
                spoilt.insert(number, records[number].clone());
                "twice".to_owned()
            }
            _ => {
                let mut changes = record::mutants(&records[number]);
                let (what, changed) = changes.swap_remove(random.usize(0..changes.len()));
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
    let listens = wait::until(LIMIT, || {
        let list = admin.call(&["CLIENT", "LIST", "TYPE", "pubsub"]).expect("it is up").text().to_owned();
        let ours = list.lines().find(|line| line.contains(Recorder::NAME));
        id = ours.and_then(|line| line.split(' ').next()?.strip_prefix("id=").map(str::to_owned));
        id.is_some()
    });
    assert!(listens, "the recorder does not return");
    id.expect("it was found")
}

/// The connection of the recorder is killed, with the messages on it; it returns some time later.
#[tokio::test(flavor = "multi_thread")]
async fn commands_without_a_listener_are_recorded() {
    const ROUNDS: usize = 50;
    let scene = Fixture::new(Server::start()).await;
    let mut admin = scene.server.connect().expect("it is up");
    let semaphore = scene.clients[0].open("shared");
    semaphore.set_limit(3).await.expect("it is up");
    for round in 0..ROUNDS {
        let id = listening(&mut admin);
        drop(semaphore.inspect().await.expect("it is up"));
        assert_eq!(admin.call(&["CLIENT", "KILL", "ID", &id]).expect("it is up").int(), 1, "round {round}");
        drop(semaphore.inspect().await.expect("it is up"));
    }
    let replayed = explained(replay(&scene.recorder.records()));
    explained(replayed.check_kept());
    assert_eq!(replayed.commands, 1 + 2 * ROUNDS);
}

/// A server answers before it publishes: in half of the rounds the last record is not published yet when the server
/// dies.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_a_killed_server_did_not_publish_are_read_when_it_is_back() {
    const ROUNDS: usize = 20;
    let scene = Fixture::new(keeping()).await;
    let semaphore = scene.clients[0].open("shared");
    semaphore.set_limit(3).await.expect("it is up");
    for _ in 0..ROUNDS {
        while semaphore.inspect().await.is_err() {}
        restart(&scene.server);
    }
    let replayed = explained(replay(&scene.recorder.records()));
    explained(replayed.check_kept());
    assert!(replayed.commands > ROUNDS, "{} commands", replayed.commands);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_has_published_all() {
    let scene = Fixture::new(Server::start()).await;
    let semaphore = scene.clients[0].open("shared");
    for _ in 0..100 {
        drop(semaphore.inspect().await.expect("it is up"));
    }
    assert_eq!(scene.recorder.records().len(), 100);
    scene.server.kill();
    assert_eq!(scene.recorder.records().len(), 100);
}

/// A replica's listeners receive the primary's messages: one of the two is enough, and both are no more.
#[tokio::test(flavor = "multi_thread")]
async fn two_recorders_make_one_history() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let is_linked = || replica.info("master_link_status").as_deref() == Some("up");
    assert!(wait::until(LIMIT, is_linked), "the replica does not find its primary");
    let second = Recorder::listen(&replica);
    let mut scene = Fixture::new(primary).await;
    scene.turns(true, flush_scripts).await;
    scene.end().await;
    let first = scene.recorder.records();
    assert!(wait::until(LIMIT, || second.records().len() == first.len()), "the replica does not tell all");
    let merged = merge([first.clone(), second.records()]);
    assert_eq!(merged, first);
    explained(explained(replay(&merged)).check_kept());
}
