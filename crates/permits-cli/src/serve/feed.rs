//! [`Feed`]: the state of the store, for all clients together.
//!
//! A loop reads the semaphores, stores a [`StoreSnapshot`] and broadcasts the changes since the snapshot
//! before. However many clients there are, the store gets one read when it is due by the rule of
//! [`reader`](crate::reader). While no client wants data, each read waits for [`IDLE`] longer, and
//! fills the graphs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::body::Bytes;
use permits::{AdminError, Client, Ended, Inspection, LaneInfo, Limit, Waits};
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::{sleep_until, timeout};

use super::history::{History, Passed, Recorded};
use crate::clock::{milliseconds, unix_ms};
use crate::each::Listed;
use crate::exit::Failure;
use crate::inspected::{Author, ListRow};
use crate::order::need;
use crate::reader::{MAX_SEMAPHORES, Reading, StoreReader, rest};
use crate::report;
use crate::status::MAX_LISTED;

/// How much longer a read waits while no client asks for one.
const IDLE: Duration = Duration::from_secs(10);

/// The longest read. A longer one counts as failed.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest wait of a request for a read. Then the request is answered from the snapshot before.
const FRESH_TIMEOUT: Duration = Duration::from_secs(5);

/// The most lanes of a semaphore that have metrics.
const MAX_LANES: usize = 10;

/// The least number of holders and waiters of each semaphore that are asked for: a waiter of each lane that
/// is listed is among so many.
const LEAST_LISTED: u32 = 32;

/// The most changes that a slow client may miss before it gets all rows again.
const CHANGES: usize = 16;

/// The state of the store at one time.
#[derive(Debug)]
pub(super) struct StoreSnapshot {
    /// Rises by one with each snapshot.
    pub(super) number: u64,
    /// The time of the read in milliseconds since 1970, by this machine's clock; 0 without any.
    pub(super) at_ms: u64,
    /// The duration of the read.
    pub(super) duration: Duration,
    /// The reason for which the last read failed. Then the rows, the time and the duration come from the last
    /// read that did not fail.
    pub(super) error: Option<String>,
    pub(super) rows: Rows,
    /// The number of semaphores that were not read, because there are too many.
    pub(super) omitted: usize,
    /// Replies, made once for all clients.
    pub(super) texts: Texts,
    finished: Instant,
    next: Instant,
}

/// The replies that have the data of all semaphores. However slowly clients take one, it is in memory once.
#[derive(Debug, Default)]
pub(super) struct Texts {
    pub(super) list: OnceLock<Bytes>,
    /// The event `all`.
    pub(super) all: OnceLock<Bytes>,
    /// The metrics in either format.
    pub(super) metrics: [OnceLock<Bytes>; 2],
}

/// A semaphore as clients get it.
#[derive(Debug, Clone)]
pub(super) struct FeedRow {
    pub(super) json: ListRow,
    /// The largest lanes, up to [`MAX_LANES`].
    pub(super) lanes: Vec<LaneInfo>,
    /// The place in the order of those that get metrics and history, from 0 on.
    pub(super) place: usize,
    /// The time of the last grant that is known, in milliseconds since 1970, by the youngest holder or by a
    /// read that found grants since the read before; 0 if there is none.
    granted_ms: u64,
    /// A hash of everything that counts as a change: of all but the times, which change with each read.
    fingerprint: u64,
}

/// The semaphores by name.
type Rows = BTreeMap<String, FeedRow>;

/// The changes from one snapshot to the next.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) snapshot: Arc<StoreSnapshot>,
    /// The time of the snapshot before.
    pub(super) since_ms: u64,
    /// The names of new and changed rows.
    pub(super) changed: Vec<String>,
    pub(super) removed: Vec<String>,
    /// The text of the change, made once for all clients.
    pub(super) text: OnceLock<Bytes>,
}

/// Reads the store and knows its last state.
pub(super) struct Feed {
    pub(super) reader: StoreReader,
    /// The store's URL without passwords.
    pub(super) store: String,
    latest: watch::Sender<Arc<StoreSnapshot>>,
    changes: broadcast::Sender<Arc<Change>>,
    history: Mutex<History>,
    /// A client wants a newer snapshot when one is due.
    wanted: Notify,
    /// A change was made here: the next read is due at once.
    due: Notify,
    /// The names and reasons of semaphores that could not be read, as reported.
    unreadable: Mutex<BTreeSet<(String, String)>>,
}

impl Feed {
    pub(super) fn new(client: Client, store: String, interval: Duration, under: Vec<String>) -> Self {
        let now = Instant::now();
        let nothing = StoreSnapshot {
            number: 0,
            at_ms: 0,
            duration: Duration::ZERO,
            error: Some("the store has not been read yet".to_owned()),
            rows: BTreeMap::new(),
            omitted: 0,
            texts: Texts::default(),
            finished: now,
            next: now,
        };
        Self {
            reader: StoreReader { client, interval, under },
            store,
            latest: watch::Sender::new(Arc::new(nothing)),
            changes: broadcast::Sender::new(CHANGES),
            history: Mutex::default(),
            wanted: Notify::new(),
            due: Notify::new(),
            unreadable: Mutex::default(),
        }
    }

    /// Reads the store until the session has ended.
    pub(super) async fn run(&self) -> Failure {
        loop {
            let earlier = self.latest.borrow().clone();
            let read = match timeout(READ_TIMEOUT, self.read(&earlier)).await {
                Ok(Err(AdminError::Ended(Ended::Closed))) => return AdminError::Ended(Ended::Closed).into(),
                Ok(read) => read.map_err(|error| report::with_causes(&error)),
                Err(_) => Err(format!("the store was not read within {} s", READ_TIMEOUT.as_secs())),
            };
            match &read {
                Err(reason) if earlier.error.as_ref() != Some(reason) => {
                    report::say(format_args!("cannot read the store: {reason}"));
                }
                Ok(_) if earlier.has_failed() => report::say("the store can be read again"),
                _ => {}
            }
            self.publish(&earlier, read);
            self.pause().await;
        }
    }

    /// Waits until the next read is due and wanted.
    async fn pause(&self) {
        let (next, rested) = {
            let latest = self.latest.borrow();
            (latest.next, latest.finished + rest(latest.duration))
        };
        // A change does not wait for the interval. But many changes don't fill the time with reads.
        let hurried = async {
            self.due.notified().await;
            sleep_until(rested.into()).await;
        };
        tokio::select! {
            biased;
            () = hurried => return,
            () = sleep_until(next.into()) => {}
        }
        if self.changes.receiver_count() > 0 {
            return;
        }
        tokio::select! {
            () = sleep_until((next + IDLE).into()) => {}
            () = self.wanted.notified() => {}
            () = self.due.notified() => {}
        }
    }

    /// Reads the rows, and the number of semaphores that were not inspected.
    async fn read(&self, earlier: &StoreSnapshot) -> Result<Reading<(Rows, usize)>, AdminError> {
        let inspect = |name: String| {
            let held = earlier.rows.get(&name).map_or(0, |row| row.json.held);
            inspect(&self.reader.client, name, held)
        };
        let read = async {
            let (names, rows) = self.reader.semaphores(inspect, |listed| FeedRow::from(&listed)).await?;
            rows.iter().for_each(|row| self.report_if_unreadable(&row.json));
            let rows = rows.into_iter().map(|row| (row.json.name.clone(), row)).collect();
            Ok((rows, names.len().saturating_sub(MAX_SEMAPHORES)))
        };
        self.reader.read(read).await
    }

    /// Reports a semaphore that cannot be read, once for each reason.
    fn report_if_unreadable(&self, row: &ListRow) {
        let ListRow { name, unreadable: Some(reason), .. } = row else { return };
        let mut reported = lock(&self.unreadable);
        if reported.len() < MAX_SEMAPHORES && reported.insert((name.clone(), reason.clone())) {
            report::say(format_args!("{name:?} is UNREADABLE: {reason}"));
        }
    }

    fn publish(&self, earlier: &StoreSnapshot, read: Result<Reading<(Rows, usize)>, String>) {
        let (mut at_ms, finished) = (unix_ms(SystemTime::now()), Instant::now());
        let (Reading { found: (mut rows, omitted), duration, next }, error) = match read {
            Ok(reading) => (reading, None),
            Err(reason) => {
                let found = (earlier.rows.clone(), earlier.omitted);
                let next = finished + self.reader.interval;
                at_ms = earlier.at_ms;
                (Reading { found, duration: earlier.duration, next }, Some(reason))
            }
        };
        if error.is_none() {
            self.rank(&mut rows, earlier);
            let mut ranked: Vec<&mut FeedRow> = rows.values_mut().collect();
            ranked.sort_unstable_by_key(|row| row.place);
            let mut passed = Vec::with_capacity(ranked.len());
            for row in &mut ranked {
                let since = earlier.passed_until(&row.json);
                let before = earlier.rows.get(&row.json.name).map_or(0, |row| row.granted_ms);
                // The clock of this machine may have been set back.
                let last = before.max(row.granted_ms).min(at_ms);
                row.granted_ms = if since.grants > 0 { at_ms } else { last };
                passed.push(since);
            }
            lock(&self.history).record(at_ms, ranked.iter().map(|row| &row.json).zip(passed.iter().copied()));
        }
        let number = earlier.number + 1;
        let texts = Texts::default();
        let snapshot = StoreSnapshot { number, at_ms, duration, error, rows, omitted, texts, finished, next };
        let change = Change::between(earlier, Arc::new(snapshot));
        self.latest.send_replace(change.snapshot.clone());
        // The send fails if no client listens.
        if let Some(change) = change.worth_sending(earlier) {
            let _ = self.changes.send(Arc::new(change));
        }
    }

    /// Gives each row its place: rows under the prefixes first, then in the order of need. Rows of equal need
    /// keep the order before, so that series of metrics do not come and go.
    fn rank(&self, rows: &mut Rows, earlier: &StoreSnapshot) {
        let mut ranked: Vec<_> = rows
            .values_mut()
            .map(|row| {
                let name = &row.json.name;
                let before = earlier.rows.get(name).map_or(usize::MAX, |row| row.place);
                ((!self.reader.is_first(name), Reverse(need(&row.json)), before), row)
            })
            .collect();
        // Stable, so that new rows are in the order of their names.
        ranked.sort_by_key(|(key, _)| *key);
        for (place, (_, row)) in ranked.into_iter().enumerate() {
            row.place = place;
        }
    }

    /// The newest snapshot, read again if it is older than the interval. If the store does not answer in
    /// bounded time, the snapshot before.
    pub(super) async fn fresh(&self) -> Arc<StoreSnapshot> {
        let mut latest = self.latest.subscribe();
        if latest.borrow_and_update().next <= Instant::now() {
            self.wanted.notify_one();
            let _ = timeout(FRESH_TIMEOUT, latest.changed()).await;
        }
        latest.borrow().clone()
    }

    /// Fails with the reason if the last read has failed, and if that is due, a further one too.
    pub(super) async fn check(&self) -> Result<(), String> {
        let has_failed = self.latest.borrow().has_failed();
        if !has_failed { Ok(()) } else { self.fresh().await.error.clone().map_or(Ok(()), Err) }
    }

    /// The reason why the last read has failed, if it has.
    pub(super) fn failure(&self) -> Option<String> {
        let latest = self.latest.borrow();
        latest.error.clone().filter(|_| latest.has_failed())
    }

    /// The newest snapshot, and all changes after it.
    pub(super) async fn follow(&self) -> (Arc<StoreSnapshot>, broadcast::Receiver<Arc<Change>>) {
        let changes = self.changes.subscribe();
        // Subscribe first, so that no change is lost between the two. A change that the snapshot contains
        // already is known by its number.
        (self.fresh().await, changes)
    }

    /// Makes the next read due, because this process has changed a semaphore.
    pub(super) fn hurry(&self) {
        self.due.notify_one();
    }

    /// The points of a semaphore in the last `window`, or without a name the points of the store.
    pub(super) fn recorded(&self, name: Option<&str>, window: Duration) -> Recorded {
        lock(&self.history).recorded(name, window)
    }
}

impl StoreSnapshot {
    /// True if the last read has failed, and not if there was none.
    fn has_failed(&self) -> bool {
        self.error.is_some() && self.number > 0
    }

    /// The time since the read.
    pub(super) fn age(&self) -> Duration {
        self.finished.elapsed()
    }

    /// The number of semaphores that cannot be read.
    pub(super) fn unreadable(&self) -> usize {
        self.rows.values().filter(|row| row.json.unreadable.is_some()).count()
    }

    /// The longest time for which requests of a semaphore have waited while the semaphore granted nothing, of
    /// all semaphores that are not paused and whose waits [count](ListRow::counted_wait).
    pub(super) fn longest_stall_ms(&self) -> u64 {
        let stall = |row: &FeedRow| {
            let waited = row.json.counted_wait().filter(|_| !row.json.paused)?;
            Some(milliseconds(waited).min(self.at_ms.saturating_sub(row.granted_ms)))
        };
        self.rows.values().filter_map(stall).max().unwrap_or(0)
    }

    /// The grants and waits of a semaphore between this snapshot and `later`. None if that is unknown: this
    /// snapshot may lack the semaphore, or its numbers, although the store had it, and a counter falls when
    /// the store has lost its last changes or all.
    fn passed_until(&self, later: &ListRow) -> Passed {
        let is_complete = self.error.is_none() && self.omitted == 0;
        let (grants, waits) = match self.rows.get(&later.name) {
            Some(row) if row.json.unreadable.is_some() => return Passed::default(),
            Some(row) => (row.json.counts.grants, row.json.waits),
            // The semaphore is new, so its counters began at 0.
            None if is_complete => (0, Waits::default()),
            None => return Passed::default(),
        };
        let waits = later.waits.since(&waits).filter(|waits| waits.number() > 0);
        Passed { grants: later.counts.grants.saturating_sub(grants), waits }
    }
}

impl From<&Listed> for FeedRow {
    fn from(listed: &Listed) -> Self {
        let json = ListRow::from(listed);
        let mut hasher = DefaultHasher::new();
        let recovering_ms = u64::from(json.recovering_ms > 0);
        let (oldest_holder_age_ms, oldest_waiter_age_ms) = (None, None);
        let pause_remaining_ms = json.pause_remaining_ms.map(|_| 0);
        let timeless_author =
            |author: &Option<Author>| author.clone().map(|author| Author { age_ms: 0, ..author });
        let timeless = ListRow {
            recovering_ms,
            pause_remaining_ms,
            paused_by: timeless_author(&json.paused_by),
            closed_by: timeless_author(&json.closed_by),
            oldest_holder_age_ms,
            oldest_waiter_age_ms,
            ..json.clone()
        };
        timeless.hash(&mut hasher);
        let (mut lanes, mut granted_ms) = (Vec::new(), 0);
        if let Ok(inspection) = listed {
            let youngest = inspection.holders.iter().map(|info| info.age).min();
            let now_ms = unix_ms(SystemTime::now());
            granted_ms = youngest.map_or(0, |age| now_ms.saturating_sub(milliseconds(age)));
            lanes.extend(inspection.lanes.iter().take(MAX_LANES).cloned());
            // The store orders holders by the end of their leases, which changes with every renewal.
            let mut holders: Vec<_> =
                inspection.holders.iter().map(|info| (info.token, info.cooling)).collect();
            holders.sort_unstable();
            holders.hash(&mut hasher);
            inspection.waiters.first().map(|info| &info.holder).hash(&mut hasher);
        }
        Self { json, lanes, place: 0, granted_ms, fingerprint: hasher.finish() }
    }
}

impl Change {
    fn between(earlier: &StoreSnapshot, snapshot: Arc<StoreSnapshot>) -> Self {
        let fingerprint = |name: &String| earlier.rows.get(name).map(|row| row.fingerprint);
        let is_new = |(name, row): &(&String, &FeedRow)| fingerprint(name) != Some(row.fingerprint);
        let changed = snapshot.rows.iter().filter(is_new).map(|(name, _)| name.clone()).collect();
        let is_gone = |name: &&String| !snapshot.rows.contains_key(*name);
        let removed = earlier.rows.keys().filter(is_gone).cloned().collect();
        Self { snapshot, since_ms: earlier.at_ms, changed, removed, text: OnceLock::new() }
    }

    /// `None` if nothing has changed.
    fn worth_sending(self, earlier: &StoreSnapshot) -> Option<Self> {
        let store_changed = earlier.error != self.snapshot.error || earlier.omitted != self.snapshot.omitted;
        (store_changed || !self.changed.is_empty() || !self.removed.is_empty()).then_some(self)
    }
}

/// Inspects a semaphore with all its holders, up to 1,000, because the oldest may be any of them, and with as
/// many waiters, at least one of each lane: the oldest is the first of its lane. `held` is the expected
/// number of units.
async fn inspect(client: &Client, name: String, held: u64) -> Result<Inspection, AdminError> {
    let semaphore = client.semaphore(name, Limit::Stored)?;
    let most = |needed: u64| u32::try_from(needed).unwrap_or(u32::MAX).clamp(LEAST_LISTED, MAX_LISTED);
    let listed = most(held);
    let inspection = semaphore.inspect_up_to(listed).await?;
    // The list of lanes is complete if it is shorter than the least that is asked for.
    let has_all_lanes = inspection.lanes.len() < LEAST_LISTED as usize;
    let needed = if has_all_lanes { most(inspection.held) } else { MAX_LISTED };
    if needed <= listed { Ok(inspection) } else { semaphore.inspect_up_to(needed).await }
}

/// The value, also if a task panicked while it had the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::history::tests::row;

    /// A snapshot with one semaphore, if it has grants.
    fn snapshot(grants: Option<u64>, omitted: usize, error: Option<&str>) -> StoreSnapshot {
        let now = Instant::now();
        let rows = grants.map(|grants| {
            let json = with_grants(grants);
            (json.name.clone(), FeedRow { json, lanes: Vec::new(), place: 0, granted_ms: 0, fingerprint: 0 })
        });
        StoreSnapshot {
            number: 1,
            at_ms: 0,
            duration: Duration::ZERO,
            error: error.map(str::to_owned),
            rows: rows.into_iter().collect(),
            omitted,
            texts: Texts::default(),
            finished: now,
            next: now,
        }
    }

    fn with_grants(grants: u64) -> ListRow {
        let mut row = row("a", 1);
        row.counts.grants = grants;
        row
    }

    #[test]
    fn a_read_that_fails_has_the_time_of_the_values() {
        let client = Client::connect("memory:").wait().expect("it needs no server");
        let feed = Feed::new(client, String::new(), Duration::ZERO, Vec::new());
        let earlier = StoreSnapshot { at_ms: 7, ..snapshot(Some(5), 0, None) };
        for reason in ["timed out", "refused"] {
            feed.publish(&earlier, Err(reason.to_owned()));
            let latest = feed.latest.borrow();
            assert_eq!((latest.at_ms, latest.rows.len(), latest.error.as_deref()), (7, 1, Some(reason)));
        }
    }

    #[test]
    fn grants_are_the_increase_of_a_counter_that_may_begin_again() {
        for (earlier, later, grants) in [
            (snapshot(Some(5), 0, None), 7, 2),
            (snapshot(Some(5), 0, None), 5, 0),
            // The store has lost its state, or a replica without the last changes has taken over.
            (snapshot(Some(1_000), 0, None), 3, 0),
            (snapshot(Some(1_000), 0, None), 990, 0),
            // The semaphore is new.
            (snapshot(None, 0, None), 3, 3),
            // The semaphore may have been there.
            (snapshot(None, 1, None), 3_000, 0),
            (snapshot(None, 0, Some("not read yet")), 3_000, 0),
            // The last read that succeeded has these numbers.
            (snapshot(Some(5), 0, Some("cannot be reached")), 7, 2),
        ] {
            assert_eq!(earlier.passed_until(&with_grants(later)).grants, grants, "{earlier:?}, {later}");
        }
        let mut unreadable = snapshot(Some(0), 0, None);
        unreadable.rows.values_mut().for_each(|row| row.json.unreadable = Some("damaged".to_owned()));
        assert_eq!(unreadable.passed_until(&with_grants(3_000)).grants, 0);
    }
}
