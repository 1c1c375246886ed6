//! Whoever stops waiting leaves nothing behind, however far the acquisition has come.
//!
//! Each [`Stage`] of an acquisition is crossed with each [`Outcome`]; every pair is a test. A [`Proxy`] between
//! client and server holds the acquisition at its stage. Afterwards a second client must get all units at once:
//! leases here are so long that only giving back explains it.
//!
//! Behind the table stand the same for other calls, for permits that outlive what they were acquired on, and
//! a storm of acquisitions that are dropped at random points.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Lost, Permit, Recovery, Semaphore, blocking};
use permits_testkit::{Proxy, Server, random, wait};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// More than anything here should take on a busy machine, and less than the lease.
const LIMIT: Duration = Duration::from_secs(20);

/// So long that nothing here comes back because a lease has ended.
const LEASE: Duration = Duration::from_secs(60);

/// The wait limit of those acquisitions that are to run into it. Their stage must be reached before.
const WAIT: Duration = Duration::from_secs(1);

/// How many units there are.
const UNITS: u32 = 2;

/// How far an acquisition has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The future was made and not polled.
    BeforeTheFirstPoll,
    /// The store cannot be reached.
    BeforeItIsSent,
    /// The request is on its way.
    OnItsWay,
    /// The store has granted it, and its reply is on its way.
    GrantedWithTheReplyOnItsWay,
    /// The store has put it in line, and its reply is on its way.
    InLineWithTheReplyOnItsWay,
    /// It stands in line.
    InLine,
    /// The store has granted it to the waiter, and the message is on its way.
    GrantedWithTheMessageOnItsWay,
    /// The answer has come, and the future was not polled since.
    GrantedAndNotDelivered,
    /// The permit is there.
    Held,
}

/// What becomes of it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    FutureDropped,
    WaitPassed,
    ClientClosed,
    RuntimeDropped,
    ConnectionCut,
    ConnectionCutAndFutureDropped,
}

macro_rules! crossed {
    ($($stage:ident: $variant:ident,)*) => {
        $(mod $stage {
            use crate::{Outcome, Stage, cross};

            #[test]
            fn a_dropped_future_leaves_nothing() {
                cross(Stage::$variant, Outcome::FutureDropped);
            }

            #[test]
            fn a_wait_that_runs_out_leaves_nothing() {
                cross(Stage::$variant, Outcome::WaitPassed);
            }

            #[test]
            fn a_closed_client_leaves_nothing() {
                cross(Stage::$variant, Outcome::ClientClosed);
            }

            #[test]
            fn a_dropped_runtime_leaves_nothing() {
                cross(Stage::$variant, Outcome::RuntimeDropped);
            }

            #[test]
            fn a_cut_connection_does_not_stop_it() {
                cross(Stage::$variant, Outcome::ConnectionCut);
            }

            #[test]
            fn a_cut_connection_and_a_dropped_future_leave_nothing() {
                cross(Stage::$variant, Outcome::ConnectionCutAndFutureDropped);
            }
        })*
    };
}

crossed! {
    before_the_first_poll: BeforeTheFirstPoll,
    before_it_is_sent: BeforeItIsSent,
    on_its_way: OnItsWay,
    granted_with_the_reply_on_its_way: GrantedWithTheReplyOnItsWay,
    in_line_with_the_reply_on_its_way: InLineWithTheReplyOnItsWay,
    in_line: InLine,
    granted_with_the_message_on_its_way: GrantedWithTheMessageOnItsWay,
    granted_and_not_delivered: GrantedAndNotDelivered,
    held: Held,
}

fn cross(stage: Stage, outcome: Outcome) {
    let scene = Scene::new();
    let options = AcquireOptions::new();
    let options = if outcome == Outcome::WaitPassed { options.wait(WAIT) } else { options };
    let mut user = User::new(&scene);
    scene.reach(stage, &mut user, options);
    match outcome {
        Outcome::FutureDropped => user.drop_future(),
        Outcome::WaitPassed => scene.let_the_wait_pass(stage, &user),
        Outcome::ClientClosed => scene.close(stage, &user),
        Outcome::RuntimeDropped => drop(user.runtime.take()),
        Outcome::ConnectionCut => {
            scene.proxy.cut();
            scene.heal();
            scene.unblock();
            user.gate.open();
            let permit = user.result().expect("it is asked for again");
            assert!(permit.is_held());
            user.block_on(permit.release()).expect("it is held");
        }
        Outcome::ConnectionCutAndFutureDropped => {
            scene.proxy.cut();
            user.drop_future();
        }
    }
    scene.heal();
    scene.all_units_come_back();
}

/// A server, a proxy before it, and an observer that goes straight to the server.
struct Scene {
    observer: blocking::Client,
    blocker: Mutex<Option<blocking::Permit>>,
    proxy: Proxy,
    server: Server,
}

impl Scene {
    fn new() -> Self {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let builder = permits::Client::builder(server.url()).recovery(Recovery::Off).lease(LEASE);
        let observer = blocking::Client::connect_with(builder).expect("the server is up");
        // So that the server knows the scripts, and one request has one reply.
        let permit = observer.semaphore("exports", UNITS).acquire().expect("it is free");
        permit.release().expect("it is held");
        Self { observer, blocker: Mutex::default(), proxy, server }
    }

    /// A client that reaches the server through the proxy.
    async fn client(&self, lease: Duration) -> permits::Client {
        let builder = permits::Client::builder(self.proxy.url()).recovery(Recovery::Off).lease(lease);
        builder.connect().await.expect("the server is up")
    }

    fn semaphore(&self) -> blocking::Semaphore {
        self.observer.semaphore("exports", UNITS)
    }

    /// Takes all units, so that others have to wait.
    fn block(&self) {
        let permit = self.semaphore().acquire_with(AcquireOptions::new().weight(UNITS)).expect("all is free");
        *self.blocker.lock().expect("no panic") = Some(permit);
    }

    /// Gives back what was taken by [`Scene::block`].
    fn unblock(&self) {
        if let Some(permit) = self.blocker.lock().expect("no panic").take() {
            permit.release().expect("it is held");
        }
    }

    fn is_blocked(&self) -> bool {
        self.blocker.lock().expect("no panic").is_some()
    }

    #[track_caller]
    fn settles(&self, held: u64, waiting: u64) {
        let mut seen = None;
        let settled = wait::until(LIMIT, || {
            let now = self.semaphore().inspect().expect("the server is up");
            let settled = (now.held, now.waiting) == (held, waiting);
            seen = Some(now);
            settled
        });
        assert!(settled, "not {held} held and {waiting} waiting, but {seen:?}");
    }

    /// Begins an acquisition and brings it to `stage`.
    fn reach(&self, stage: Stage, user: &mut User, options: AcquireOptions) {
        match stage {
            Stage::BeforeTheFirstPoll => {
                user.gate.shut();
                user.start(options);
                user.gate.is_knocked_at();
            }
            Stage::BeforeItIsSent => {
                self.proxy.refuse(true);
                // Both connections have been tried again, so the session knows.
                assert!(wait::until(LIMIT, || self.proxy.refused() > 4));
                user.start(options);
                user.gate.is_passed();
            }
            Stage::OnItsWay => {
                self.proxy.stall(true);
                user.start(options);
                user.gate.is_passed();
            }
            Stage::GrantedWithTheReplyOnItsWay => {
                self.proxy.delay_replies(Duration::MAX / 4);
                user.start(options);
                self.settles(1, 0);
            }
            Stage::InLineWithTheReplyOnItsWay => {
                self.block();
                self.proxy.delay_replies(Duration::MAX / 4);
                user.start(options);
                self.settles(UNITS.into(), 1);
            }
            Stage::InLine => self.stand_in_line(user, options),
            Stage::GrantedWithTheMessageOnItsWay => {
                self.stand_in_line(user, options);
                self.proxy.delay_replies(Duration::MAX / 4);
                self.unblock();
                self.settles(1, 0);
            }
            Stage::GrantedAndNotDelivered => {
                self.stand_in_line(user, options);
                user.gate.shut();
                self.unblock();
                user.gate.is_knocked_at();
            }
            Stage::Held => {
                user.start(options);
                user.is_answered();
            }
        }
    }

    fn stand_in_line(&self, user: &mut User, options: AcquireOptions) {
        self.block();
        user.start(options);
        self.settles(UNITS.into(), 1);
        // Answered behind the acquisition: so the session knows where it stands.
        user.block_on(user.semaphore.inspect()).expect("the server is up");
    }

    fn let_the_wait_pass(&self, stage: Stage, user: &User) {
        match stage {
            // A wait begins with the first poll; an answer in time is not taken back.
            Stage::BeforeTheFirstPoll | Stage::GrantedAndNotDelivered | Stage::Held => {
                thread::sleep(WAIT + WAIT / 10);
                user.gate.open();
                let permit = user.result().expect("it is granted in time");
                assert!(permit.is_held());
            }
            _ => match user.result() {
                Err(AcquireError::TimedOut { waited }) => assert!(waited >= WAIT, "{waited:?}"),
                other => panic!("not a wait that ran out: {other:?}"),
            },
        }
    }

    fn close(&self, stage: Stage, user: &User) {
        let runtime = user.runtime.as_ref().expect("it is not dropped");
        let closing = runtime.spawn(user.client.clone().close());
        match stage {
            Stage::GrantedAndNotDelivered | Stage::Held => {
                user.block_on(closing).expect("closing does not panic").expect("the server is up");
                user.gate.open();
                let permit = user.result().expect("it was granted before");
                assert!(!permit.is_held());
                assert_eq!(user.block_on(permit.lost()), Lost::Closed);
            }
            _ => {
                if stage == Stage::BeforeTheFirstPoll {
                    assert!(wait::until(LIMIT, || closing.is_finished()));
                }
                user.gate.open();
                // Told at once, however the network is.
                assert_eq!(user.result().map(drop), Err(AcquireError::Closed));
                self.heal();
                user.block_on(closing).expect("closing does not panic").expect("the server is up");
            }
        }
    }

    /// Ends every fault.
    fn heal(&self) {
        self.proxy.stall(false);
        self.proxy.refuse(false);
        self.proxy.delay_replies(Duration::ZERO);
    }

    /// Held 0, an empty line, all units at once for another; and no key but idle state.
    fn all_units_come_back(&self) {
        if self.is_blocked() {
            // While nothing is free, so that nobody left the line by being granted.
            self.settles(UNITS.into(), 0);
            self.unblock();
        }
        let all = AcquireOptions::new().weight(UNITS).wait(LIMIT);
        let permit = self.semaphore().acquire_with(all).expect("all units are given back");
        permit.release().expect("it is held");
        self.settles(0, 0);
        // A request that was held on its way may arrive now, be granted, and be given back.
        let mut left = Vec::new();
        let only_state = wait::until(LIMIT, || {
            let keys = self.server.command(&["KEYS", "*"]);
            left = keys.array().iter().map(|key| key.text().to_owned()).collect();
            left.iter().all(|key| key == "permits:{exports}:state")
        });
        assert!(only_state, "{left:?} are left");
        for key in &left {
            assert!(self.server.command(&["PTTL", key]).int() > 0, "idle state expires");
        }
    }
}

type Acquiring = Pin<Box<dyn Future<Output = Result<Permit, AcquireError>> + Send>>;

/// A program that acquires a unit, on a runtime of its own.
struct User {
    runtime: Option<Runtime>,
    client: permits::Client,
    semaphore: Semaphore,
    gate: Arc<Gate>,
    answered: Arc<AtomicBool>,
    hand_out: Arc<Notify>,
    task: Mutex<Option<JoinHandle<Result<Permit, AcquireError>>>>,
}

impl User {
    fn new(scene: &Scene) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_time().build().expect("a runtime");
        let client = runtime.block_on(scene.client(LEASE));
        let semaphore = client.semaphore("exports", UNITS);
        Self {
            runtime: Some(runtime),
            client,
            semaphore,
            gate: Arc::default(),
            answered: Arc::default(),
            hand_out: Arc::default(),
            task: Mutex::default(),
        }
    }

    /// Begins to acquire, in a task that keeps the permit until it is asked for it.
    fn start(&mut self, options: AcquireOptions) {
        let semaphore = self.semaphore.clone();
        let inner: Acquiring = Box::pin(async move { semaphore.acquire_with(options).await });
        let gated = Gated { inner, gate: self.gate.clone() };
        let (answered, hand_out) = (self.answered.clone(), self.hand_out.clone());
        let task = async move {
            let result = gated.await;
            answered.store(true, SeqCst);
            hand_out.notified().await;
            result
        };
        let runtime = self.runtime.as_ref().expect("it is not dropped");
        *self.task.lock().expect("no panic") = Some(runtime.spawn(task));
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let runtime = self.runtime.as_ref().expect("it is not dropped");
        let patient = async { tokio::time::timeout(LIMIT, future).await };
        runtime.block_on(patient).expect("it does not hang")
    }

    #[track_caller]
    fn is_answered(&self) {
        assert!(wait::until(LIMIT, || self.answered.load(SeqCst)), "it is not answered");
    }

    /// The result, taken out of the task.
    #[track_caller]
    fn result(&self) -> Result<Permit, AcquireError> {
        self.is_answered();
        self.hand_out.notify_one();
        let task = self.task.lock().expect("no panic").take().expect("it was started");
        self.block_on(task).expect("acquiring does not panic")
    }

    /// Drops the future, or the permit that it has become.
    fn drop_future(&self) {
        let task = self.task.lock().expect("no panic").take().expect("it was started");
        task.abort();
        assert!(self.block_on(task).is_err_and(|error| error.is_cancelled()));
    }
}

/// Decides whether a future is polled, and knows when it should be.
#[derive(Default)]
struct Gate {
    shut: AtomicBool,
    knocked: AtomicBool,
    passed: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Gate {
    fn shut(&self) {
        self.shut.store(true, SeqCst);
    }

    fn open(&self) {
        self.shut.store(false, SeqCst);
        if let Some(waker) = self.waker.lock().expect("no panic").take() {
            waker.wake();
        }
    }

    /// Returns when the future should have been polled, but for the gate.
    #[track_caller]
    fn is_knocked_at(&self) {
        assert!(wait::until(LIMIT, || self.knocked.load(SeqCst)), "nothing woke it");
    }

    /// Returns when the future has been polled.
    #[track_caller]
    fn is_passed(&self) {
        assert!(wait::until(LIMIT, || self.passed.load(SeqCst)), "it is not polled");
    }
}

/// A future behind a gate.
struct Gated {
    inner: Acquiring,
    gate: Arc<Gate>,
}

impl Future for Gated {
    type Output = Result<Permit, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let gate = self.gate.clone();
        // Before the look at the switch: whoever opens it after that finds the waker.
        *gate.waker.lock().expect("no panic") = Some(context.waker().clone());
        if gate.shut.load(SeqCst) {
            gate.knocked.store(true, SeqCst);
            return Poll::Pending;
        }
        let result = self.inner.as_mut().poll(context);
        gate.passed.store(true, SeqCst);
        result
    }
}

#[test]
fn a_hand_over_that_is_dropped_releases() {
    let scene = Scene::new();
    let user = User::new(&scene);
    let permit = user.block_on(user.semaphore.acquire()).expect("it is free");
    scene.proxy.delay_replies(Duration::MAX / 4);
    let mut handing_over = Box::pin(permit.hand_over());
    assert!(poll_once(handing_over.as_mut()).is_none(), "it needs the store");
    drop(handing_over);
    scene.heal();
    scene.all_units_come_back();
}

#[test]
fn a_release_that_is_dropped_goes_on() {
    let scene = Scene::new();
    let user = User::new(&scene);
    for polled in [false, true] {
        let permit = user.block_on(user.semaphore.acquire()).expect("it is free");
        let mut releasing = Box::pin(permit.release());
        if polled {
            // Ready or not: it is on its way.
            poll_once(releasing.as_mut());
        }
        drop(releasing);
        scene.all_units_come_back();
    }
}

#[test]
fn an_adoption_that_is_dropped_releases() {
    let scene = Scene::new();
    let user = User::new(&scene);
    let permit = scene.semaphore().acquire().expect("it is free");
    let handle = permit.hand_over().expect("it is held");
    scene.proxy.delay_replies(Duration::MAX / 4);
    let mut adopting = Box::pin(user.client.adopt(&handle));
    assert!(poll_once(adopting.as_mut()).is_none(), "it needs the store");
    drop(adopting);
    scene.heal();
    scene.all_units_come_back();
}

#[test]
fn a_connect_that_is_dropped_leaves_no_connection() {
    let scene = Scene::new();
    let mut connecting = Box::pin(scene.client(LEASE));
    assert!(poll_once(connecting.as_mut()).is_none(), "it needs the server");
    assert!(wait::until(LIMIT, || scene.proxy.accepted() > 0));
    drop(connecting);
    assert!(wait::until(LIMIT, || scene.proxy.connections() == 0));
    scene.all_units_come_back();
}

fn poll_once<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ready) => Some(ready),
        Poll::Pending => None,
    }
}

#[test]
fn permits_outlive_the_runtime_that_acquired_them() {
    let scene = Scene::new();
    let lease = Duration::from_millis(600);
    let runtime = Runtime::new().expect("a runtime");
    let permits: Vec<Permit> = runtime.block_on(async {
        let semaphore = scene.client(lease).await.semaphore("exports", UNITS);
        let both = tokio::join!(semaphore.acquire(), semaphore.acquire());
        vec![both.0.expect("it is free"), both.1.expect("it is free")]
    });
    drop(runtime);
    thread::sleep(lease + lease / 10);
    assert!(permits.iter().all(Permit::is_held), "they are renewed without it: {permits:?}");
    scene.settles(2, 0);
    // Here is no runtime either.
    thread::spawn(move || drop(permits)).join().expect("dropping does not panic");
    scene.all_units_come_back();
}

#[test]
fn a_blocked_runtime_loses_no_permit() {
    let scene = Scene::new();
    let lease = Duration::from_millis(500);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let semaphore = scene.client(lease).await.semaphore("exports", UNITS);
        let permit = semaphore.acquire().await.expect("it is free");
        let lost = permit.cancellation_token();
        thread::sleep(3 * lease);
        assert!(permit.is_held() && !lost.is_cancelled());
        let seen = semaphore.inspect().await.expect("the server is up");
        assert_eq!(seen.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [permit.token()]);
        permit.release().await.expect("it is held");
    });
    scene.all_units_come_back();
}

#[test]
fn a_storm_of_dropped_acquisitions_leaves_nothing() {
    storm(3000, false);
}

#[test]
fn a_storm_over_a_connection_that_is_cut_leaves_nothing() {
    storm(1000, true);
}

/// Acquires many times, by 64 tasks of 2 clients, each time giving up at a random point.
fn storm(acquisitions: u32, cutting: bool) {
    let seed = random::seed();
    for round in 0..random::cases() {
        storm_of(acquisitions, cutting, seed.wrapping_add(u64::from(round) << 32));
    }
}

fn storm_of(acquisitions: u32, cutting: bool, seed: u64) {
    let scene = Arc::new(Scene::new());
    let runtime = Runtime::new().expect("a runtime");
    let inside = Arc::new(AtomicU32::new(0));
    let got = Arc::new(AtomicU32::new(0));
    let ended = Arc::new(AtomicBool::new(false));
    // Kept to the end: what was dropped is given back by clients that live on.
    let clients = runtime.block_on(async { [scene.client(LEASE).await, scene.client(LEASE).await] });
    let cutter = cutting.then(|| {
        let (scene, ended) = (scene.clone(), ended.clone());
        thread::spawn(move || {
            while !wait::until(Duration::from_millis(40), || ended.load(SeqCst)) {
                scene.proxy.cut();
            }
        })
    });
    runtime.block_on(async {
        let tasks: Vec<_> = (0..64)
            .map(|number| {
                let semaphore = clients[number % 2].semaphore("exports", UNITS);
                let (inside, got) = (inside.clone(), got.clone());
                let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
                tokio::spawn(async move {
                    for _ in 0..acquisitions / 64 {
                        give_up_at_random(&semaphore, &mut random, &inside, &got).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            tokio::time::timeout(3 * LIMIT, task).await.expect("nobody hangs").expect("no task panics");
        }
        ended.store(true, SeqCst);
        assert!(got.load(SeqCst) > 0, "some were granted");
    });
    scene.all_units_come_back();
    cutter.map(thread::JoinHandle::join).transpose().expect("cutting does not panic");
}

async fn give_up_at_random(
    semaphore: &Semaphore,
    random: &mut fastrand::Rng,
    inside: &AtomicU32,
    got: &AtomicU32,
) {
    let pause = |random: &mut fastrand::Rng| Duration::from_micros(random.u64(0..3000));
    let weight = random.u32(1..=UNITS);
    let options = AcquireOptions::new().weight(weight);
    let options = if random.bool() { options } else { options.wait(pause(random)) };
    // Some have timeout: on a busy machine nobody else is granted anything.
    let timeout = if random.u8(0..8) == 0 { LIMIT } else { pause(random) };
    let acquiring = semaphore.acquire_with(options);
    if random.u8(0..4) == 0 {
        let mut acquiring = Box::pin(acquiring);
        for _ in 0..random.u8(0..4) {
            if poll_once(acquiring.as_mut()).is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        return;
    }
    match tokio::time::timeout(timeout, acquiring).await {
        Ok(Ok(permit)) => {
            got.fetch_add(1, SeqCst);
            let before = inside.fetch_add(weight, SeqCst);
            assert!(before + weight <= UNITS, "{before} units are held, and {weight} more");
            if random.bool() {
                tokio::time::sleep(pause(random) / 4).await;
            }
            assert!(permit.is_held());
            inside.fetch_sub(weight, SeqCst);
            if random.bool() {
                permit.release().await.expect("it is held");
            }
        }
        Ok(Err(error)) => assert!(error.is_not_now(), "{error}"),
        Err(_) => {}
    }
}
