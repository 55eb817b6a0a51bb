//! Who has a seat, who waits for one, and whose turn it is. No clock, no tasks: whoever leaves seats the next.

use super::table::{Class, FlowTable, Level, SEATS};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Requests that wait in one server, whatever its levels say.
const WAITING_MAX: usize = 1000;
/// Requests of exempt users at once: they never wait, but are told to come back beyond this.
const EXEMPT_MAX: u32 = SEATS;
/// Levels and schemas that are counted apart.
const COUNTED_MAX: usize = 256;

/// Why a request finds no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    QueueFull,
    ConcurrencyLimit,
    TimeOut,
}

impl Rejection {
    pub(super) const ALL: [(Self, &'static str); 3] =
        [(Self::QueueFull, "queue-full"), (Self::ConcurrencyLimit, "concurrency-limit"), (Self::TimeOut, "time-out")];
}

/// Upper bounds of waiting times, as upstream's.
pub(super) const WAIT_SECONDS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

/// What is counted of one schema at one level.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub executing: u32,
    pub waiting: u32,
    pub dispatched: u64,
    pub rejected: [u64; Rejection::ALL.len()],
    pub wait_sum: f64,
    pub wait_buckets: [u64; WAIT_SECONDS.len()],
}

#[derive(Default)]
pub(super) struct Seats {
    /// As of the latest request.
    table: Option<Arc<FlowTable>>,
    levels: BTreeMap<Arc<str>, LevelState>,
    /// By level and schema.
    pub(super) counts: BTreeMap<(Arc<str>, Arc<str>), Counts>,
    waiting: usize,
    next_waiter: u64,
}

#[derive(Default)]
struct LevelState {
    level: Option<Arc<Level>>,
    in_use: u32,
    flows: BTreeMap<u64, VecDeque<Waiter>>,
    /// Flows with somebody waiting, in turn.
    turn: VecDeque<u64>,
    waiting: usize,
}

struct Waiter {
    id: u64,
    schema: Arc<str>,
    seat: oneshot::Sender<Seat>,
}

pub(super) type Shared = Arc<Mutex<Seats>>;

/// A request in work; dropping it seats the next.
pub(crate) struct Seat {
    /// `None` once it was given back.
    seats: Option<Shared>,
    level: Arc<str>,
    schema: Arc<str>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(seats) = self.seats.take() {
            lock(&seats).leave(&seats, &self.level, &self.schema);
        }
    }
}

/// A request that waits; dropping it takes it out of its queue.
pub(super) struct Waiting {
    seats: Shared,
    level: Arc<str>,
    flow: u64,
    id: u64,
    pub(super) seat: oneshot::Receiver<Seat>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.seats).forget(&self.level, self.flow, self.id);
    }
}

pub(super) enum Entry {
    Seated(Seat),
    Waits(Waiting),
    Rejected,
}

/// Nothing under this lock panics halfway through a change.
pub(super) fn lock(seats: &Shared) -> std::sync::MutexGuard<'_, Seats> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn enter(seats: &Shared, table: &Arc<FlowTable>, class: &Class) -> Entry {
    let mut inner = lock(seats);
    inner.follow(table);
    let level = &class.level;
    inner.levels.entry(level.name.clone()).or_default().level = Some(level.clone());
    // Nobody overtakes those who wait already.
    let waits = inner.levels[&level.name].waiting > 0;
    if !waits && inner.has_room(level) {
        inner.take(&level.name, &class.schema);
        return Entry::Seated(Seat { seats: Some(seats.clone()), level: level.name.clone(), schema: class.schema.clone() });
    }
    let state = &inner.levels[&level.name];
    let of_flow = state.flows.get(&class.flow).map_or(0, VecDeque::len);
    let rejection = match level.queuing {
        None => Some(Rejection::ConcurrencyLimit),
        Some(bounds) if of_flow >= bounds.flow_max || state.waiting >= bounds.level_max || inner.waiting >= WAITING_MAX => {
            Some(Rejection::QueueFull)
        }
        Some(_) => None,
    };
    if let Some(rejection) = rejection {
        inner.count(&level.name, &class.schema).rejected[rejection as usize] += 1;
        return Entry::Rejected;
    }
    let (sender, receiver) = oneshot::channel();
    let id = inner.next_waiter;
    inner.next_waiter += 1;
    inner.waiting += 1;
    inner.count(&level.name, &class.schema).waiting += 1;
    let state = inner.levels.entry(level.name.clone()).or_default();
    state.waiting += 1;
    let queue = state.flows.entry(class.flow).or_default();
    if queue.is_empty() {
        state.turn.push_back(class.flow);
    }
    queue.push_back(Waiter { id, schema: class.schema.clone(), seat: sender });
    Entry::Waits(Waiting { seats: seats.clone(), level: level.name.clone(), flow: class.flow, id, seat: receiver })
}

impl Seats {
    /// Levels that are gone are forgotten once nobody is in them.
    fn follow(&mut self, table: &Arc<FlowTable>) {
        if self.table.as_ref().is_some_and(|known| Arc::ptr_eq(known, table)) {
            return;
        }
        self.table = Some(table.clone());
        self.levels.retain(|name, state| table.levels.contains_key(name) || state.in_use > 0 || state.waiting > 0);
        self.counts.retain(|(level, _), counts| table.levels.contains_key(level) || counts.executing > 0 || counts.waiting > 0);
    }

    pub(super) fn count(&mut self, level: &Arc<str>, schema: &Arc<str>) -> &mut Counts {
        let key = (level.clone(), schema.clone());
        let key = if self.counts.len() >= COUNTED_MAX && !self.counts.contains_key(&key) { ("other".into(), "other".into()) } else { key };
        self.counts.entry(key).or_default()
    }

    fn in_use(&self, level: &str) -> u32 {
        self.levels.get(level).map_or(0, |state| state.in_use)
    }

    /// Whether one more request of the level may be in work: on a seat of its own, or on one that others do not need.
    fn has_room(&self, level: &Level) -> bool {
        let in_use = self.in_use(&level.name);
        if level.exempt {
            return in_use < EXEMPT_MAX;
        }
        // One goes on where there is no seat at all: a level is slow at worst, and not shut.
        if in_use < level.nominal.max(1) {
            return true;
        }
        let within = level.borrowed_max.is_none_or(|max| in_use < level.nominal.saturating_add(max));
        let Some(table) = self.table.as_ref().filter(|_| within) else { return false };
        let (mut lent, mut borrowed) = (0, 0);
        for other in table.levels.values().filter(|other| !other.exempt) {
            let used = self.in_use(&other.name);
            lent += other.lendable.min(other.nominal.saturating_sub(used));
            borrowed += used.saturating_sub(other.nominal);
        }
        borrowed < lent
    }

    fn take(&mut self, level: &Arc<str>, schema: &Arc<str>) {
        self.levels.entry(level.clone()).or_default().in_use += 1;
        let counts = self.count(level, schema);
        counts.executing += 1;
        counts.dispatched += 1;
    }

    fn leave(&mut self, shared: &Shared, level: &Arc<str>, schema: &Arc<str>) {
        if let Some(state) = self.levels.get_mut(level) {
            state.in_use = state.in_use.saturating_sub(1);
        }
        let counts = self.count(level, schema);
        counts.executing = counts.executing.saturating_sub(1);
        if self.waiting == 0 {
            return;
        }
        self.seat_waiting(shared, level);
        let others: Vec<Arc<str>> = self.levels.iter().filter(|(_, state)| state.waiting > 0).map(|(name, _)| name.clone()).collect();
        for other in others {
            self.seat_waiting(shared, &other);
        }
    }

    /// Seats those of a level for whom there is room, flow by flow.
    fn seat_waiting(&mut self, shared: &Shared, name: &Arc<str>) {
        loop {
            let Some(level) = self.levels.get(name).filter(|state| state.waiting > 0).and_then(|state| state.level.clone()) else { return };
            if !self.has_room(&level) {
                return;
            }
            let Some(waiter) = self.next(name) else { return };
            self.take(name, &waiter.schema);
            let seat = Seat { seats: Some(shared.clone()), level: name.clone(), schema: waiter.schema.clone() };
            if let Err(mut unwanted) = waiter.seat.send(seat) {
                // Given back by hand: its own way would wait for the lock that is held here.
                unwanted.seats = None;
                if let Some(state) = self.levels.get_mut(name) {
                    state.in_use -= 1;
                }
                let counts = self.count(name, &waiter.schema);
                counts.executing -= 1;
                counts.dispatched -= 1;
            }
        }
    }

    /// The first of the flow whose turn it is.
    fn next(&mut self, level: &Arc<str>) -> Option<Waiter> {
        let state = self.levels.get_mut(level)?;
        let flow = state.turn.pop_front()?;
        let queue = state.flows.get_mut(&flow)?;
        let waiter = queue.pop_front()?;
        if queue.is_empty() {
            state.flows.remove(&flow);
        } else {
            state.turn.push_back(flow);
        }
        state.waiting -= 1;
        self.waiting -= 1;
        let counts = self.count(level, &waiter.schema);
        counts.waiting = counts.waiting.saturating_sub(1);
        Some(waiter)
    }

    fn forget(&mut self, level: &Arc<str>, flow: u64, id: u64) {
        let Some(state) = self.levels.get_mut(level) else { return };
        let Some(queue) = state.flows.get_mut(&flow) else { return };
        let Some(at) = queue.iter().position(|waiter| waiter.id == id) else { return };
        let Some(waiter) = queue.remove(at) else { return };
        if queue.is_empty() {
            state.flows.remove(&flow);
            state.turn.retain(|other| *other != flow);
        }
        state.waiting -= 1;
        self.waiting -= 1;
        let counts = self.count(level, &waiter.schema);
        counts.waiting = counts.waiting.saturating_sub(1);
    }

    pub(super) fn waited(&mut self, level: &Arc<str>, schema: &Arc<str>, waited: Duration) {
        let seconds = waited.as_secs_f64();
        let counts = self.count(level, schema);
        counts.wait_sum += seconds;
        for (bucket, bound) in counts.wait_buckets.iter_mut().zip(WAIT_SECONDS) {
            *bucket += u64::from(seconds <= bound);
        }
    }

    /// In use at each level of the table.
    pub(super) fn usage(&self) -> Vec<(Arc<Level>, u32)> {
        let levels = self.table.iter().flat_map(|table| table.levels.values());
        levels.map(|level| (level.clone(), self.in_use(&level.name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Levels of so many shares; 600 shares in all, so that a share is a seat.
    fn table(levels: &[(&str, i64, i64, Value)]) -> Arc<FlowTable> {
        let level = |(name, shares, lendable, response): &(&str, i64, i64, Value)| {
            Arc::new(json!({"metadata": {"name": name}, "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response,
            }}}))
        };
        Arc::new(FlowTable::of(&[Vec::new(), levels.iter().map(level).collect()]))
    }

    fn queue(hand: i64, length: i64) -> Value {
        json!({"type": "Queue", "queuing": {"queues": 4, "handSize": hand, "queueLengthLimit": length}})
    }

    fn class(table: &FlowTable, level: &str, flow: u64) -> Class {
        Class { schema: "s".into(), schema_uid: "".into(), level: table.levels[level].clone(), flow }
    }

    fn seated(entry: Entry) -> Seat {
        match entry {
            Entry::Seated(seat) => seat,
            _ => panic!("no seat"),
        }
    }

    fn waits(entry: Entry) -> Waiting {
        match entry {
            Entry::Waits(waiting) => waiting,
            _ => panic!("does not wait"),
        }
    }

    #[test]
    fn flows_take_turns() {
        let table = table(&[("l", 1, 0, queue(1, 10)), ("rest", 594, 0, queue(1, 1))]);
        let seats = Shared::default();
        let enter = |flow| enter(&seats, &table, &class(&table, "l", flow));
        let first = seated(enter(1));
        let mut greedy: Vec<Waiting> = (0..3).map(|_| waits(enter(1))).collect();
        let mut other = waits(enter(2));
        drop(first);
        let second = greedy[0].seat.try_recv().expect("the first of the first flow");
        assert!(other.seat.try_recv().is_err());
        drop(second);
        let third = other.seat.try_recv().expect("the other flow comes before the second of the first");
        // Who does not wait any more is passed over.
        drop(greedy.remove(1));
        drop(third);
        assert!(greedy[1].seat.try_recv().is_ok());
    }

    #[test]
    fn a_seat_that_nobody_takes_is_passed_on() {
        let table = table(&[("l", 1, 0, queue(2, 10)), ("rest", 594, 0, queue(1, 1))]);
        let seats = Shared::default();
        let enter = |flow| enter(&seats, &table, &class(&table, "l", flow));
        let first = seated(enter(1));
        let (gone, mut waiting) = (waits(enter(1)), waits(enter(1)));
        drop(first);
        // It has its seat and goes without looking.
        drop(gone);
        assert!(waiting.seat.try_recv().is_ok());
    }

    #[test]
    fn queues_have_bounds_and_some_levels_have_none() {
        let table = table(&[("q", 1, 0, queue(1, 2)), ("r", 1, 0, json!({"type": "Reject"})), ("rest", 593, 0, queue(1, 1))]);
        let seats = Shared::default();
        let _held = [seated(enter(&seats, &table, &class(&table, "q", 1))), seated(enter(&seats, &table, &class(&table, "r", 1)))];
        let _waiting: Vec<_> = (0..2).map(|_| waits(enter(&seats, &table, &class(&table, "q", 1)))).collect();
        assert!(matches!(enter(&seats, &table, &class(&table, "q", 1)), Entry::Rejected));
        assert!(matches!(enter(&seats, &table, &class(&table, "q", 2)), Entry::Waits(_)));
        assert!(matches!(enter(&seats, &table, &class(&table, "r", 1)), Entry::Rejected));
    }

    #[test]
    fn idle_seats_are_lent_and_come_back_to_their_owner() {
        let table = table(&[("small", 1, 0, queue(1, 10)), ("big", 4, 50, queue(1, 10)), ("rest", 590, 0, queue(1, 1))]);
        let seats = Shared::default();
        let enter = |level: &str| enter(&seats, &table, &class(&table, level, 1));
        // Its own seat, and the two that may be lent.
        let mut small: Vec<Seat> = (0..3).map(|_| seated(enter("small"))).collect();
        let mut waiting = waits(enter("small"));
        let _big: Vec<Seat> = (0..4).map(|_| seated(enter("big"))).collect();
        drop(small.pop());
        assert!(waiting.seat.try_recv().is_err(), "nothing is free to be lent");
        small.clear();
        assert!(waiting.seat.try_recv().is_ok());
    }

    #[test]
    fn exempt_requests_do_not_wait_and_have_a_bound() {
        let table = table(&[]);
        let seats = Shared::default();
        let enter = || enter(&seats, &table, &class(&table, "exempt", 1));
        let held: Vec<Seat> = (0..EXEMPT_MAX).map(|_| seated(enter())).collect();
        assert!(matches!(enter(), Entry::Rejected));
        drop(held);
        assert_eq!(lock(&seats).in_use("exempt"), 0);
    }
}
