//! Answers that are remembered, bounded by number and records.

use crate::reply::Reply;
use crate::zone::OwnName;
use hickory_proto::rr::{Name, RecordType};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Questions and records of one tenant's memory, for the cluster's names and for others.
const ANSWERS_MAX: usize = 512;
const RECORDS_MAX: usize = 8192;

/// What was asked, in lower case, and whether signatures are wanted.
pub type Key = (String, RecordType, bool);

/// Answers about the cluster. They hold as long as nothing changes.
#[derive(Default)]
pub struct ClusterMemory {
    answers: HashMap<Key, Known>,
    records: usize,
    revision: u64,
}

/// An answer, and the alias that is still to be followed.
#[derive(Clone)]
pub struct Known {
    pub reply: Arc<Reply>,
    pub follow: Option<Name>,
}

impl ClusterMemory {
    pub fn get(&mut self, key: &Key, revision: u64) -> Option<Known> {
        if self.revision != revision {
            (self.revision, self.records) = (revision, 0);
            self.answers.clear();
        }
        self.answers.get(key).cloned()
    }

    /// `revision` is the one from before the answer was computed.
    pub fn keep(&mut self, key: Key, known: Known, revision: u64) {
        let records = known.reply.len();
        if self.revision != revision || records > RECORDS_MAX / 2 {
            return;
        }
        if self.answers.len() >= ANSWERS_MAX || self.records + records > RECORDS_MAX {
            // They are computed again in microseconds: order of use is not worth its bookkeeping.
            self.answers.clear();
            self.records = 0;
        }
        self.records += records;
        self.answers.insert(key, known);
    }
}

/// Answers of other servers, until they expire.
#[derive(Default)]
pub struct OtherMemory {
    answers: HashMap<Key, (Instant, Arc<Reply>)>,
    records: usize,
}

impl OtherMemory {
    /// The answer with the seconds left of it.
    pub fn get(&self, key: &Key, now: Instant) -> Option<Arc<Reply>> {
        let (made, reply) = self.answers.get(key)?;
        let age = u32::try_from(now.duration_since(*made).as_secs()).ok()?;
        if age == 0 {
            return Some(reply.clone());
        }
        let left = reply.lifetime_s().checked_sub(age).filter(|left| *left > 0);
        left.map(|_| Arc::new(reply.aged(age)))
    }

    pub fn keep(&mut self, key: Key, reply: Arc<Reply>, now: Instant) {
        let records = reply.len();
        if reply.lifetime_s() == 0 || records > RECORDS_MAX / 4 {
            return;
        }
        if self.answers.len() >= ANSWERS_MAX || self.records + records > RECORDS_MAX {
            self.answers.retain(|_, (made, reply)| now.duration_since(*made).as_secs() < u64::from(reply.lifetime_s()));
            self.count();
        }
        if self.answers.len() >= ANSWERS_MAX || self.records + records > RECORDS_MAX {
            self.answers.clear();
        }
        self.answers.insert(key, (now, reply));
        self.count();
    }

    fn count(&mut self) {
        self.records = self.answers.values().map(|(_, r)| r.len()).sum();
    }
}

/// What pods are called that ask, for a moment: many names that are not there have the shape of a pod's.
#[derive(Default)]
pub struct OwnMemory {
    names: HashMap<(IpAddr, String), (Instant, Option<OwnName>)>,
}

const OWN_NAMES_MAX: usize = 1024;
/// A pod asks for its name as soon as it runs, and that may be before its address is reported.
const OWN_NAME_LIFETIME: Duration = Duration::from_secs(1);

impl OwnMemory {
    /// The name of the pod at the address, learnt by `look` when it is not known.
    pub fn get(&mut self, at: IpAddr, namespace: &str, now: Instant, look: impl FnOnce() -> Option<OwnName>) -> Option<OwnName> {
        let key = (at, namespace.to_string());
        match self.names.get(&key) {
            Some((made, own)) if now.duration_since(*made) < OWN_NAME_LIFETIME => own.clone(),
            _ => {
                if self.names.len() >= OWN_NAMES_MAX {
                    self.names.clear();
                }
                let own = look();
                self.names.insert(key, (now, own.clone()));
                own
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::op::ResponseCode;
    use hickory_proto::rr::rdata::A;
    use hickory_proto::rr::{RData, Record};

    fn reply(ttl: u32, records: usize) -> Arc<Reply> {
        let record = Record::from_rdata(Name::from_ascii("a.example.").unwrap(), ttl, RData::A(A::new(10, 0, 0, 1)));
        Arc::new(Reply { answers: vec![record; records], ..Reply::failure(ResponseCode::NoError) })
    }

    fn key(name: &str) -> Key {
        (name.into(), RecordType::A, false)
    }

    #[test]
    fn other_answers_age_and_end() {
        let (mut memory, start) = (OtherMemory::default(), Instant::now());
        memory.keep(key("a"), reply(20, 1), start);
        memory.keep(key("zero"), reply(0, 1), start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(memory.get(&key("a"), at(0)).unwrap().answers[0].ttl, 20);
        assert_eq!(memory.get(&key("a"), at(15)).unwrap().answers[0].ttl, 5);
        assert!(memory.get(&key("a"), at(20)).is_none() && memory.get(&key("zero"), at(0)).is_none());
    }

    #[test]
    fn memories_stay_within_their_bounds() {
        let (mut other, mut cluster, now) = (OtherMemory::default(), ClusterMemory::default(), Instant::now());
        for n in 0..2000 {
            other.keep(key(&n.to_string()), reply(30, 10), now);
            cluster.keep(key(&n.to_string()), Known { reply: reply(5, 10), follow: None }, 0);
            assert!(other.answers.len() <= ANSWERS_MAX && other.records <= RECORDS_MAX);
            assert!(cluster.answers.len() <= ANSWERS_MAX && cluster.records <= RECORDS_MAX);
        }
        cluster.keep(key("big"), Known { reply: reply(5, RECORDS_MAX), follow: None }, 0);
        assert!(cluster.get(&key("big"), 0).is_none() && cluster.get(&key("1999"), 0).is_some());
        assert!(cluster.get(&key("1999"), 1).is_none(), "a change makes answers anew");
    }
}
