//! Bytes that one tenant may have in work.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is counted at once. Semaphores count to half a billion, and nobody needs to count single bytes.
const UNIT_BYTES: usize = 1 << 10;

/// A number of bytes; who needs some waits until others are done.
#[derive(Clone, Debug)]
pub struct Budget {
    units: Arc<Semaphore>,
    most: usize,
}

/// Bytes that are in use until this is dropped.
#[derive(Debug)]
pub struct Spent(Vec<OwnedSemaphorePermit>);

impl Budget {
    pub fn new(bytes: usize) -> Self {
        let most = (bytes / UNIT_BYTES).max(1);
        Self { units: Arc::new(Semaphore::new(most)), most }
    }

    /// Waits for so many bytes; what is larger than all takes all. `None`: others need too long.
    pub async fn spend(&self, bytes: usize, patience: Duration) -> Option<Spent> {
        let wanted = self.units.clone().acquire_many_owned(self.units_of(bytes));
        tokio::time::timeout(patience, wanted).await.ok()?.ok().map(|permit| Spent(vec![permit]))
    }

    /// Takes so many bytes if they are there.
    pub fn try_spend(&self, bytes: usize) -> Option<Spent> {
        self.units.clone().try_acquire_many_owned(self.units_of(bytes)).ok().map(|permit| Spent(vec![permit]))
    }

    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES).min(self.most)).unwrap_or(u32::MAX)
    }
}

impl Spent {
    /// Nothing yet.
    pub fn nothing() -> Self {
        Self(Vec::new())
    }

    /// Is given back together with this.
    pub fn add(&mut self, mut more: Spent) {
        for permit in more.0.drain(..) {
            // Budgets do not mix; parts of one become one.
            match self.0.iter_mut().find(|held| Arc::ptr_eq(held.semaphore(), permit.semaphore())) {
                Some(held) => held.merge(permit),
                None => self.0.push(permit),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_come_back_and_too_many_take_all() {
        let budget = Budget::new(10 << 10);
        let mut spent = Spent::nothing();
        spent.add(budget.try_spend(4 << 10).unwrap());
        spent.add(budget.try_spend(6 << 10).unwrap());
        assert!(budget.try_spend(1).is_none());
        assert!(budget.spend(1, Duration::from_secs(1)).await.is_none());
        drop(spent);
        let all = budget.spend(1 << 30, Duration::from_secs(1)).await.unwrap();
        assert!(budget.try_spend(1).is_none());
        drop(all);
        assert!(budget.try_spend(10 << 10).is_some());
    }

    #[test]
    fn what_was_spent_of_two_budgets_comes_back_to_both() {
        let budgets = [Budget::new(4 << 10), Budget::new(4 << 10)];
        let mut spent = Spent::nothing();
        for budget in [&budgets[0], &budgets[1], &budgets[0]] {
            spent.add(budget.try_spend(2 << 10).unwrap());
        }
        assert_eq!(spent.0.len(), 2);
        assert!(budgets[0].try_spend(1).is_none() && budgets[1].try_spend(2 << 10).is_some());
        drop(spent);
        assert!(budgets.iter().all(|b| b.try_spend(4 << 10).is_some()));
    }
}
