use super::*;
use crate::store::entry::Encoded;
use flate2::read::GzDecoder;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Items apart by a separator, and a head that tells their length.
struct Joined(&'static [u8]);

impl ListForm for Joined {
    type Error = Infallible;

    fn name(&self) -> Arc<str> {
        format!("joined by {:?}", self.0).into()
    }

    fn write_item(&self, out: &mut Vec<u8>, entry: &Entry) -> Result<(), Infallible> {
        out.extend_from_slice(&entry.json);
        Ok(())
    }

    fn separator(&self) -> &'static [u8] {
        self.0
    }

    fn around(&self, items_bytes: usize) -> Result<(Vec<u8>, Vec<u8>), Infallible> {
        Ok((format!("{items_bytes}[").into(), b"]".into()))
    }
}

fn store() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn entry(name: usize, revision: u64, bytes: usize) -> Arc<Entry> {
    let text: String = (0..bytes as u64).map(|i| char::from(b'a' + (i.wrapping_mul(revision + 7) % 26) as u8)).collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name.to_string()}, "data": {"text": text}});
    let key = format!("configmaps/default/{name}").into();
    Arc::new(Entry::compose(key, revision, &Encoded::new(&object, &[]).stored).unwrap())
}

fn unzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
    out
}

fn check(store: u64, entries: &[Arc<Entry>]) {
    for form in [Joined(b","), Joined(b"")] {
        let (Ok(plain), Ok(packed)) = (plain(&form, entries), gzip(store, &form, entries));
        assert_eq!(unzip(&packed), plain);
    }
}

fn groups(entries: &[Arc<Entry>]) -> BTreeSet<Vec<u64>> {
    cut(entries).map(|g| g.iter().map(|e| e.revision).collect()).collect()
}

#[test]
fn a_list_of_nothing_is_a_list() {
    check(store(), &[]);
}

#[test]
fn stores_and_forms_do_not_share() {
    let (one, two) = (store(), store());
    check(one, &[entry(1, 5, 10)]);
    check(two, &[entry(2, 5, 20)]);
    check(one, &[entry(1, 5, 10)]);
}

#[test]
fn one_change_leaves_the_other_pieces_alone() {
    let mut entries: Vec<_> = (0..1000).map(|i| entry(i, i as u64 + 1, 2000)).collect();
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    let before = groups(&entries);
    assert!((15..100).contains(&before.len()), "{}", before.len());
    let same = |entries: &[Arc<Entry>]| groups(entries).intersection(&before).count();
    for at in [0, 500, 999] {
        let mut changed = entries.clone();
        changed[at] = entry(changed[at].value()["metadata"]["name"].as_str().unwrap().parse().unwrap(), 5000, 2100);
        assert!(same(&changed) >= before.len() - 1, "change of {at}");
        changed.remove(at);
        assert!(same(&changed) >= before.len() - 2, "removal of {at}");
    }
}

#[test]
fn pieces_are_bounded_whatever_the_keys_are() {
    let huge: Vec<_> = (0..20).map(|i| entry(i, i as u64 + 1, PIECE_BYTES_MAX / 3)).collect();
    assert!(cut(&huge).all(|g| g.len() <= 3));
    // Keys that never begin a piece.
    let every = (PIECE_BYTES / 1120).next_power_of_two() as u64;
    let dull: Vec<_> = (0..3000).map(|i| entry(i, i as u64 + 1, 1000)).filter(|e| !begins(&e.key, every)).collect();
    assert!(cut(&dull).all(|g| g.iter().map(|e| e.json.len()).sum::<usize>() <= PIECE_BYTES_MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_compressed_list_is_the_list(changes in vec((0..60_usize, proptest::option::weighted(0.8, 0..20_000_usize), any::<bool>()), 1..60)) {
        let (store, mut model) = (store(), BTreeMap::new());
        for (revision, (name, bytes, look)) in changes.into_iter().enumerate() {
            match bytes {
                Some(bytes) => { model.insert(name, entry(name, revision as u64 + 1, bytes)); }
                None => { model.remove(&name); }
            }
            if look {
                check(store, &model.values().cloned().collect::<Vec<_>>());
            }
        }
        check(store, &model.values().cloned().collect::<Vec<_>>());
    }
}
