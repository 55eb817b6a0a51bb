//! Turns on the threads of the runtime.

use crate::house::House;
use crate::lane::{Lane, Ticket};
use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::runtime::{Handle, RuntimeFlavor};

thread_local! {
    /// The turn that this thread is in.
    static CURRENT: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// One tenant's part of a process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Share {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    house: House,
    tenant: u64,
    light: Lane,
    heavy: Lane,
}

/// A place in the lane of light turns, given back when it is dropped.
#[derive(Debug)]
struct Turn(Share);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.inner.light.leave(self.0.turns());
    }
}

impl Share {
    pub(crate) fn new(house: House, tenant: u64) -> Self {
        Self { inner: Arc::new(Inner { house, tenant, light: Lane::default(), heavy: Lane::default() }) }
    }

    /// Somebody from outside asks this tenant for something.
    pub fn visit(&self) {
        self.inner.house.inner.visit(self.inner.tenant);
    }

    /// A task of this tenant: polled when the tenant has a turn.
    pub fn run<F: Future>(&self, task: F) -> Running<F> {
        Running { share: self.clone(), ticket: Ticket::default(), task: Box::pin(task) }
    }

    /// What computes for long: polled off the runtime's threads, few at a time.
    pub fn heavy<F: Future>(&self, work: F) -> Heavy<F> {
        Heavy { share: self.clone(), own: Ticket::default(), ours: Ticket::default(), has_own: false, work: Box::pin(work) }
    }

    fn turns(&self) -> usize {
        self.inner.house.inner.turns(self.inner.tenant)
    }

    fn is_current(&self) -> bool {
        CURRENT.with_borrow(|current| current.as_ref().is_some_and(|turn| turn.0.inner.tenant == self.inner.tenant))
    }
}

/// See [`Share::run`].
#[derive(Debug)]
pub struct Running<F> {
    share: Share,
    ticket: Ticket,
    task: Pin<Box<F>>,
}

impl<F: Future> Future for Running<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        // Within a turn of its own tenant a second one would wait for the first.
        if this.share.is_current() {
            return this.task.as_mut().poll(cx);
        }
        if !this.share.inner.light.enter(&mut this.ticket, this.share.turns(), cx.waker()) {
            return Poll::Pending;
        }
        let outer = CURRENT.replace(Some(Turn(this.share.clone())));
        let _restore = Restore(outer);
        this.task.as_mut().poll(cx)
    }
}

impl<F> Drop for Running<F> {
    fn drop(&mut self) {
        self.share.inner.light.withdraw(&mut self.ticket, self.share.turns());
    }
}

/// Puts the turn of before back, also when the poll panics; the one of now ends.
struct Restore(Option<Turn>);

impl Drop for Restore {
    fn drop(&mut self) {
        let ended = CURRENT.replace(self.0.take());
        drop(ended);
    }
}

/// See [`Share::heavy`].
#[derive(Debug)]
pub struct Heavy<F> {
    share: Share,
    /// Its standing among the tenant's own.
    own: Ticket,
    /// Its standing in the process.
    ours: Ticket,
    has_own: bool,
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Heavy<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let house = &this.share.inner.house.inner;
        if !this.has_own {
            this.has_own = this.share.inner.heavy.enter(&mut this.own, house.heavy_turns(), cx.waker());
        }
        if !this.has_own || !house.heavy.enter(&mut this.ours, house.heavy_places(), cx.waker()) {
            return Poll::Pending;
        }
        this.has_own = false;
        let _left = Left(&this.share);
        let is_threaded = Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
        if !is_threaded {
            return this.work.as_mut().poll(cx);
        }
        // The light turn ends here: the tenant's other tasks go on meanwhile.
        drop(CURRENT.take());
        tokio::task::block_in_place(|| this.work.as_mut().poll(cx))
    }
}

/// Gives back both places of a heavy turn.
struct Left<'a>(&'a Share);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        let house = &self.0.inner.house.inner;
        house.heavy.leave(house.heavy_places());
        self.0.inner.heavy.leave(house.heavy_turns());
    }
}

impl<F> Drop for Heavy<F> {
    fn drop(&mut self) {
        let house = &self.share.inner.house.inner;
        house.heavy.withdraw(&mut self.ours, house.heavy_places());
        if self.has_own {
            self.share.inner.heavy.leave(house.heavy_turns());
        }
        self.share.inner.heavy.withdraw(&mut self.own, house.heavy_turns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// Polls that take time, with something to do in between.
    async fn busy(polls: usize, at_once: Arc<AtomicUsize>, most: Arc<AtomicUsize>) {
        for _ in 0..polls {
            let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(Duration::from_micros(200));
            at_once.fetch_sub(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_tenant_has_half_of_the_threads_when_others_ask() {
        let house = House::of_runtime();
        let (greedy, other) = (house.share(), house.share());
        other.visit();
        let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..32).map(|_| tokio::spawn(greedy.run(busy(20, at_once.clone(), most.clone())))).collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 2);
        assert_eq!(greedy.inner.light.taken(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn heavy_work_leaves_the_turn_to_others() {
        let house = House::of_runtime();
        let share = house.share();
        house.share().visit();
        let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..16)
            .map(|_| {
                let heavy = share.heavy(busy(20, at_once.clone(), most.clone()));
                tokio::spawn(share.run(heavy))
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 2);
        assert_eq!((share.inner.light.taken(), share.inner.heavy.taken(), house.inner.heavy.taken()), (0, 0, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_gives_up_leaves_no_turn_behind() {
        let house = House::of_runtime();
        let share = house.share();
        house.share().visit();
        let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for round in 0..50 {
            let work = share.heavy(busy(3, at_once.clone(), most.clone()));
            let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(share.run(busy(3, at_once.clone(), most.clone())))).collect();
            let heavy = tokio::spawn(share.run(work));
            if round % 2 == 0 {
                tasks.iter().for_each(tokio::task::JoinHandle::abort);
                heavy.abort();
            }
            for task in tasks {
                let _ = task.await;
            }
            let _ = heavy.await;
        }
        assert_eq!((share.inner.light.taken(), share.inner.heavy.taken(), house.inner.heavy.taken()), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_task_within_a_task_needs_no_second_turn() {
        let house = House::new(1);
        let share = house.share();
        let inner = share.run(async { 7 });
        assert_eq!(share.run(inner).await, 7);
    }
}
