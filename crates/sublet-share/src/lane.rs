//! Places for few, and a queue for the others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Who has a place keeps it until it is given back; then it belongs to whoever waits longest.
#[derive(Debug, Default)]
pub struct Lane {
    /// Held for moves of a few words.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Places in use, those included that were given to somebody who did not come yet.
    taken: usize,
    next: u64,
    waiting: BTreeMap<u64, Waker>,
}

/// Somebody's standing with a lane.
#[derive(Debug, Default)]
pub struct Ticket(Option<u64>);

impl Lane {
    /// Takes a place, or notes who is to be woken when there is one.
    pub fn enter(&self, ticket: &mut Ticket, places: usize, waker: &Waker) -> bool {
        let mut state = self.state();
        match ticket.0 {
            // The place was given while this one waited.
            Some(number) if !state.waiting.contains_key(&number) => {
                ticket.0 = None;
                true
            }
            Some(number) if state.taken < places => {
                // More places than before.
                state.waiting.remove(&number);
                state.taken += 1;
                ticket.0 = None;
                true
            }
            Some(number) => {
                state.waiting.insert(number, waker.clone());
                false
            }
            None if state.taken < places && state.waiting.is_empty() => {
                state.taken += 1;
                true
            }
            None => {
                let number = state.next;
                state.next += 1;
                state.waiting.insert(number, waker.clone());
                ticket.0 = Some(number);
                // Nobody is left to wake those who wait while places are free.
                let free = state.taken < places;
                drop(state);
                if free {
                    self.pass_on(places);
                }
                false
            }
        }
    }

    /// Gives a place back.
    pub fn leave(&self, places: usize) {
        self.state().taken -= 1;
        self.pass_on(places);
    }

    /// Forgets somebody who waits no longer; a place that was given to them is the next one's.
    pub fn withdraw(&self, ticket: &mut Ticket, places: usize) {
        let Some(number) = ticket.0.take() else { return };
        if self.state().waiting.remove(&number).is_none() {
            self.leave(places);
        }
    }

    fn pass_on(&self, places: usize) {
        loop {
            let mut state = self.state();
            if state.taken >= places {
                return;
            }
            let Some((_, waker)) = state.waiting.pop_first() else { return };
            state.taken += 1;
            drop(state);
            waker.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.state().taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn whoever_waits_longest_is_next() {
        let lane = Lane::default();
        let bells: Vec<Arc<Bell>> = (0..3).map(|_| Arc::default()).collect();
        let rung = |at: usize| bells[at].0.load(Ordering::SeqCst);
        let mut tickets: Vec<Ticket> = (0..3).map(|_| Ticket::default()).collect();
        let enter = |at: usize, tickets: &mut Vec<Ticket>| lane.enter(&mut tickets[at], 1, &bells[at].clone().into());
        assert!(enter(0, &mut tickets));
        assert!(!enter(1, &mut tickets));
        assert!(!enter(2, &mut tickets));
        lane.leave(1);
        assert_eq!((rung(1), rung(2)), (1, 0));
        assert!(!enter(2, &mut tickets), "the place is the other's already");
        assert!(!enter(0, &mut tickets));
        assert!(enter(1, &mut tickets));
        lane.leave(1);
        assert_eq!((rung(2), rung(0)), (1, 0));
        // It does not come, and the place goes on.
        lane.withdraw(&mut tickets[2], 1);
        assert_eq!(rung(0), 1);
        assert!(enter(0, &mut tickets));
        lane.leave(1);
        assert_eq!(lane.taken(), 0);
    }

    #[test]
    fn more_places_than_before_are_noticed() {
        let lane = Lane::default();
        let bell: Arc<Bell> = Arc::default();
        let (mut first, mut second, mut third) = (Ticket::default(), Ticket::default(), Ticket::default());
        let waker: Waker = bell.clone().into();
        assert!(lane.enter(&mut first, 1, &waker));
        assert!(!lane.enter(&mut second, 1, &waker));
        assert!(!lane.enter(&mut third, 3, &waker));
        assert_eq!(bell.0.load(Ordering::SeqCst), 2, "both were told");
        assert!(lane.enter(&mut second, 3, &waker) && lane.enter(&mut third, 3, &waker));
    }
}
