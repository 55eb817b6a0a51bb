//! What every backend must do, as checks over the trait alone. `suite!(make)` turns them into tests.

use crate::{Backend, Event, Expect, StorageError, Write};
use bytes::Bytes;
use std::sync::{Arc, Mutex};

/// Makes a test of every check; the expression makes a new, empty backend each time.
#[macro_export]
macro_rules! suite {
    (@tests $make:expr; $($check:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let backend: std::sync::Arc<dyn $crate::Backend> = std::sync::Arc::new($make);
                $crate::suite::$check(backend).await;
            }
        )*
    };
    ($make:expr) => {
        $crate::suite!(@tests $make; revisions_rise_by_one expectations_decide observers_see_each_write_before_its_writer
            concurrent_writers_get_distinct_revisions deletes_leave_the_revision closed_stores_refuse_writes
            only_one_of_many_creators_wins big_values_survive);
    };
}

pub type Store = Arc<dyn Backend>;

pub fn put(key: &str, value: impl Into<Bytes>, expect: Expect) -> Write {
    Write { key: key.into(), value: Some(value.into()), expect }
}

pub fn delete(key: &str, expect: Expect) -> Write {
    Write { key: key.into(), value: None, expect }
}

/// Sorted (key, value, revision) of the current state.
pub fn contents(store: &dyn Backend) -> Vec<(String, Bytes, u64)> {
    let (values, _) = store.load().expect("the store loads");
    let mut contents: Vec<_> = values.into_iter().map(|kv| (kv.key.to_string(), kv.value, kv.revision)).collect();
    contents.sort();
    contents
}

/// Collects all events from now on.
pub fn record(store: &dyn Backend) -> Arc<Mutex<Vec<Event>>> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    store.observe(Box::new(move |batch| sink.lock().expect("no panic under the lock").extend_from_slice(batch)));
    events
}

pub async fn revisions_rise_by_one(store: Store) {
    assert_eq!(store.load().expect("loads"), (Vec::new(), 1));
    assert_eq!(store.write(put("/a", "1", Expect::Absent)).await.expect("writes"), 2);
    assert_eq!(store.write(put("/b", "2", Expect::Any)).await.expect("writes"), 3);
    assert_eq!(store.write(put("/a", "3", Expect::At(2))).await.expect("writes"), 4);
    assert_eq!(contents(&*store), [("/a".into(), "3".into(), 4), ("/b".into(), "2".into(), 3)]);
    assert_eq!(store.load().expect("loads").1, 4);
}

pub async fn expectations_decide(store: Store) {
    let conflict = |result: Result<u64, StorageError>, expected: Option<u64>| match result {
        Err(StorageError::Conflict { current }) => assert_eq!(current, expected),
        other => panic!("not a conflict: {other:?}"),
    };
    conflict(store.write(put("/a", "1", Expect::At(7))).await, None);
    conflict(store.write(delete("/a", Expect::Any)).await, None);
    assert_eq!(store.write(put("/a", "1", Expect::Absent)).await.expect("writes"), 2);
    conflict(store.write(put("/a", "2", Expect::Absent)).await, Some(2));
    conflict(store.write(delete("/a", Expect::At(1))).await, Some(2));
    assert_eq!(store.write(delete("/a", Expect::At(2))).await.expect("a refused write uses no revision"), 3);
    conflict(store.write(delete("/a", Expect::At(2))).await, None);
}

pub async fn observers_see_each_write_before_its_writer(store: Store) {
    let events = record(&*store);
    for round in 0..20_u64 {
        let revision = store.write(put("/k", round.to_string(), Expect::Any)).await.expect("writes");
        let seen = events.lock().expect("no panic under the lock");
        let last = seen.last().expect("the event came first");
        assert_eq!((last.revision, seen.len() as u64), (revision, round + 1));
    }
    store.write(delete("/k", Expect::Any)).await.expect("deletes");
    let seen = events.lock().expect("no panic under the lock");
    assert!(seen.last().is_some_and(|e| e.value.is_none() && &*e.key == "/k"));
}

pub async fn concurrent_writers_get_distinct_revisions(store: Store) {
    const WRITERS: u64 = 16;
    const WRITES: u64 = 25;
    let events = record(&*store);
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut revisions = Vec::new();
            for i in 0..WRITES {
                let write = put(&format!("/{writer}/{}", i % 5), format!("{i}"), Expect::Any);
                revisions.push(store.write(write).await.expect("writes"));
            }
            revisions
        })
    });
    let mut all = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        let revisions = writer.await.expect("writers do not panic");
        assert!(revisions.is_sorted());
        all.extend(revisions);
    }
    all.sort_unstable();
    let expected: Vec<u64> = (2..2 + WRITERS * WRITES).collect();
    assert_eq!(all, expected);
    let observed: Vec<u64> = events.lock().expect("no panic under the lock").iter().map(|e| e.revision).collect();
    assert_eq!(observed, expected);
    assert_eq!(contents(&*store).len() as u64, WRITERS * 5);
}

pub async fn deletes_leave_the_revision(store: Store) {
    store.write(put("/a", "1", Expect::Any)).await.expect("writes");
    let deleted = store.write(delete("/a", Expect::Any)).await.expect("deletes");
    assert_eq!(store.load().expect("loads"), (Vec::new(), deleted));
    assert_eq!(store.write(put("/a", "1", Expect::Absent)).await.expect("writes"), deleted + 1);
}

pub async fn closed_stores_refuse_writes(store: Store) {
    store.write(put("/a", "1", Expect::Any)).await.expect("writes");
    store.close();
    store.close();
    assert!(matches!(store.write(put("/a", "2", Expect::Any)).await, Err(StorageError::Closed)));
}

pub async fn only_one_of_many_creators_wins(store: Store) {
    let creators = (0..32).map(|i| {
        let store = store.clone();
        tokio::spawn(async move { store.write(put("/one", format!("{i}"), Expect::Absent)).await.is_ok() })
    });
    let mut winners = 0;
    for creator in creators.collect::<Vec<_>>() {
        winners += usize::from(creator.await.expect("creators do not panic"));
    }
    assert_eq!((winners, store.load().expect("loads").1), (1, 2));
}

pub async fn big_values_survive(store: Store) {
    let big = Bytes::from(vec![7_u8; 1_500_000]);
    store.write(put("/big", big.clone(), Expect::Any)).await.expect("writes");
    store.write(put("/empty", Bytes::new(), Expect::Any)).await.expect("writes");
    assert_eq!(contents(&*store), [("/big".into(), big, 2), ("/empty".into(), Bytes::new(), 3)]);
    assert!(store.size_bytes() >= 1_500_000);
    while store.compact_step().expect("compacts") {}
}
