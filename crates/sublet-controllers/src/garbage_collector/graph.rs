//! Who owns whom, over all resources, in few bytes.
//!
//! Every object costs an entry of a few words; only objects with owners, and those that wait for the
//! collector, are held with their names.

use super::{FOREGROUND, ORPHAN};
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use sublet_machinery::resource::split_api_version;
use sublet_machinery::{Gvr, ObjectExt};

/// Owners known to be gone, so that each of their dependents need not ask the server again.
const ABSENT_OWNERS_MAX: usize = 500;

pub(super) type Uid = u128;
pub(super) type ResourceId = u16;

/// Reads a UUID as the number that it is; other texts become a hash.
pub(super) fn parse_uid(text: &str) -> Uid {
    let mut digits = 0;
    let mut number: u128 = 0;
    for byte in text.bytes().filter(|b| *b != b'-') {
        match char::from(byte).to_digit(16) {
            Some(digit) if digits < 32 => {
                number = number << 4 | u128::from(digit);
                digits += 1;
            }
            _ => return hash_uid(text),
        }
    }
    if digits == 32 { number } else { hash_uid(text) }
}

fn hash_uid(text: &str) -> Uid {
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// Something to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// A dependent that may have lost its owners.
    Examine(Uid),
    /// An object in foreground deletion whose dependents may be gone.
    Settle(Uid),
    /// An object that waits for its dependents to be orphaned.
    Orphan(Uid),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    /// Being deleted, and not waiting for dependents.
    Ending,
    /// Being deleted after its dependents.
    Foreground,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Identity {
    pub(super) gvr: Gvr,
    pub(super) namespace: Arc<str>,
    pub(super) name: Box<str>,
}

/// Where an object is: its resource, and a hash of namespace and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    resource: ResourceId,
    name: u32,
}

#[derive(Clone, Debug, PartialEq)]
struct Owner {
    uid: Uid,
    blocks: bool,
    /// Where the reference says that the owner is; `None` when its kind is unknown.
    place: Option<Place>,
}

struct Named {
    resource: ResourceId,
    namespace: Arc<str>,
    name: Box<str>,
    owners: Box<[Owner]>,
    life: Life,
    orphaning: bool,
}

struct Kind {
    gvr: Gvr,
    namespaced: bool,
}

#[derive(Default)]
pub(super) struct Graph {
    /// By resource id; ids are not used again.
    resources: Vec<Kind>,
    /// (group, kind) to resource id.
    kinds: HashMap<(String, String), ResourceId>,
    alive: HashMap<Uid, Place>,
    named: HashMap<Uid, Named>,
    by_owner: HashMap<Uid, HashSet<Uid>>,
    namespaces: HashSet<Arc<str>>,
    absent: VecDeque<Uid>,
    /// All resources have been listed once, so an owner that is not here is suspicious.
    complete: bool,
}

impl Graph {
    pub(super) fn add_resource(&mut self, gvr: &Gvr, kind: &str, namespaced: bool) -> ResourceId {
        let id = ResourceId::try_from(self.resources.len()).expect("fewer than 65536 resources come and go in a process");
        self.resources.push(Kind { gvr: gvr.clone(), namespaced });
        self.kinds.insert((gvr.group.to_string(), kind.to_string()), id);
        id
    }

    /// The resource is served no longer; its objects are gone.
    pub(super) fn remove_resource(&mut self, id: ResourceId) -> Vec<Work> {
        self.kinds.retain(|_, kind| *kind != id);
        self.retain(id, &HashSet::new())
    }

    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<(Gvr, bool)> {
        let id = self.kinds.get(&(split_api_version(api_version).0.to_string(), kind.to_string()))?;
        let kind = &self.resources[usize::from(*id)];
        Some((kind.gvr.clone(), kind.namespaced))
    }

    pub(super) fn set_incomplete(&mut self) {
        self.complete = false;
    }

    /// Every resource has been listed: whoever refers to an owner that nobody has seen is suspicious.
    pub(super) fn set_complete(&mut self) -> Vec<Work> {
        self.complete = true;
        let unseen = |owner: &Owner| !self.alive.contains_key(&owner.uid);
        self.named.iter().filter(|(_, n)| n.owners.iter().any(unseen)).map(|(uid, _)| Work::Examine(*uid)).collect()
    }

    /// Takes in an object as it is now.
    pub(super) fn observe(&mut self, resource: ResourceId, object: &Value) -> Vec<Work> {
        let uid = parse_uid(object.uid());
        let place = Place { resource, name: hash_name(object.namespace(), object.name()) };
        let mut work = Vec::new();
        if self.alive.insert(uid, place).is_none() {
            self.absent.retain(|a| *a != uid);
            // Dependents seen before their owner may have pointed at something else under its uid.
            work.extend(self.pointing_elsewhere(uid, place).into_iter().map(Work::Examine));
        }
        let owners = self.owners(object);
        let life = life(object);
        let orphaning = object.is_deleting() && object.has_finalizer(ORPHAN);
        self.take_owners(uid, &owners, &mut work);
        let before = self.named.get(&uid).map_or((Life::Alive, false), |n| (n.life, n.orphaning));
        if owners.is_empty() && life != Life::Foreground && !orphaning {
            self.named.remove(&uid);
        } else {
            let namespace = self.intern(object.namespace());
            let named = Named { resource, namespace, name: object.name().into(), owners: owners.into(), life, orphaning };
            self.named.insert(uid, named);
        }
        if orphaning && !before.1 {
            work.push(Work::Orphan(uid));
        } else if life == Life::Foreground && before.0 != Life::Foreground {
            work.extend(self.by_owner.get(&uid).into_iter().flatten().map(|d| Work::Examine(*d)));
            work.push(Work::Settle(uid));
        }
        work
    }

    /// Takes in that an object is gone.
    pub(super) fn remove(&mut self, uid: Uid) -> Vec<Work> {
        let mut work = Vec::new();
        self.alive.remove(&uid);
        self.take_owners(uid, &[], &mut work);
        self.named.remove(&uid);
        if let Some(dependents) = self.by_owner.get(&uid) {
            work.extend(dependents.iter().map(|d| Work::Examine(*d)));
            self.note_absent(uid);
        }
        work
    }

    /// Keeps only the listed objects of a resource.
    pub(super) fn retain(&mut self, resource: ResourceId, listed: &HashSet<Uid>) -> Vec<Work> {
        let gone: Vec<Uid> = self.alive.iter().filter(|(u, p)| p.resource == resource && !listed.contains(u)).map(|(u, _)| *u).collect();
        gone.into_iter().flat_map(|uid| self.remove(uid)).collect()
    }

    pub(super) fn dependent(&self, uid: Uid) -> Option<(Identity, Life)> {
        let named = self.named.get(&uid)?;
        Some((self.identity(named), named.life))
    }

    /// Whether an object has dependents, and whether one of them is itself in foreground deletion.
    pub(super) fn dependents_state(&self, uid: Uid) -> (bool, bool) {
        let dependents = || self.by_owner.get(&uid).into_iter().flatten();
        let in_foreground = |d: &Uid| self.named.get(d).is_some_and(|n| n.life == Life::Foreground);
        (dependents().next().is_some(), dependents().any(in_foreground))
    }

    /// An object in foreground deletion and the dependents that block it.
    pub(super) fn foreground(&self, uid: Uid) -> Option<(Identity, Vec<Uid>)> {
        let named = self.named.get(&uid).filter(|n| n.life == Life::Foreground)?;
        let blocks = |d: &&Uid| self.named.get(*d).is_some_and(|n| n.owners.iter().any(|o| o.uid == uid && o.blocks));
        let blocking = self.by_owner.get(&uid).into_iter().flatten().filter(blocks).copied().collect();
        Some((self.identity(named), blocking))
    }

    /// An object that waits for its dependents to be orphaned, and these.
    pub(super) fn orphaning(&self, uid: Uid) -> Option<(Identity, Vec<(Uid, Identity)>)> {
        let named = self.named.get(&uid).filter(|n| n.orphaning)?;
        let dependents = self.by_owner.get(&uid).into_iter().flatten();
        let dependents = dependents.filter_map(|d| Some((*d, self.identity(self.named.get(d)?)))).collect();
        Some((self.identity(named), dependents))
    }

    pub(super) fn is_absent(&self, uid: Uid) -> bool {
        self.absent.contains(&uid)
    }

    pub(super) fn note_absent(&mut self, uid: Uid) {
        if self.absent.contains(&uid) {
            return;
        }
        if self.absent.len() == ABSENT_OWNERS_MAX {
            self.absent.pop_front();
        }
        self.absent.push_back(uid);
    }

    fn identity(&self, named: &Named) -> Identity {
        let gvr = self.resources[usize::from(named.resource)].gvr.clone();
        Identity { gvr, namespace: named.namespace.clone(), name: named.name.clone() }
    }

    fn owners(&self, object: &Value) -> Vec<Owner> {
        let owner = |reference: &Value| {
            let text = |key: &str| reference[key].as_str().unwrap_or_default();
            let id = self.kinds.get(&(split_api_version(text("apiVersion")).0.to_string(), text("kind").to_string()));
            let place = id.map(|id| {
                let namespace = if self.resources[usize::from(*id)].namespaced { object.namespace() } else { "" };
                Place { resource: *id, name: hash_name(namespace, text("name")) }
            });
            Owner { uid: parse_uid(text("uid")), blocks: reference["blockOwnerDeletion"] == true, place }
        };
        object.owner_references().iter().map(owner).collect()
    }

    /// Notes the owners of an object and finds what the change from its former ones lets go on.
    fn take_owners(&mut self, uid: Uid, owners: &[Owner], work: &mut Vec<Work>) {
        let before: Vec<Owner> = self.named.get(&uid).map(|n| n.owners.to_vec()).unwrap_or_default();
        if before == owners {
            return;
        }
        for old in &before {
            let now = owners.iter().find(|o| o.uid == old.uid);
            if now.is_none()
                && let Some(dependents) = self.by_owner.get_mut(&old.uid)
            {
                dependents.remove(&uid);
                if dependents.is_empty() {
                    self.by_owner.remove(&old.uid);
                }
            }
            let waits = self.named.get(&old.uid).is_some_and(|n| n.life == Life::Foreground);
            if waits && now.is_none_or(|n| old.blocks && !n.blocks) {
                work.push(Work::Settle(old.uid));
            }
        }
        let mut suspicious = false;
        for owner in owners.iter().filter(|o| before.iter().all(|b| b.uid != o.uid)) {
            self.by_owner.entry(owner.uid).or_default().insert(uid);
            suspicious |= match self.alive.get(&owner.uid) {
                Some(place) => owner.place != Some(*place),
                None => self.complete,
            };
        }
        if suspicious {
            work.push(Work::Examine(uid));
        }
    }

    fn pointing_elsewhere(&self, owner: Uid, place: Place) -> Vec<Uid> {
        let elsewhere = |d: &&Uid| self.named.get(*d).is_some_and(|n| n.owners.iter().any(|o| o.uid == owner && o.place != Some(place)));
        self.by_owner.get(&owner).into_iter().flatten().filter(elsewhere).copied().collect()
    }

    fn intern(&mut self, namespace: &str) -> Arc<str> {
        if let Some(known) = self.namespaces.get(namespace) {
            return known.clone();
        }
        // Names of namespaces that are gone are dropped when the set is about to grow.
        if self.namespaces.len() == self.namespaces.capacity() {
            self.namespaces.retain(|n| Arc::strong_count(n) > 1);
        }
        let interned: Arc<str> = namespace.into();
        self.namespaces.insert(interned.clone());
        interned
    }
}

fn life(object: &Value) -> Life {
    match (object.is_deleting(), object.has_finalizer(FOREGROUND)) {
        (false, _) => Life::Alive,
        (true, true) => Life::Foreground,
        (true, false) => Life::Ending,
    }
}

fn hash_name(namespace: &str, name: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    (namespace, name).hash(&mut hasher);
    hasher.finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PODS: ResourceId = 0;
    const SETS: ResourceId = 1;

    fn graph() -> Graph {
        let mut graph = Graph::default();
        graph.add_resource(&Gvr::new("", "v1", "pods"), "Pod", true);
        graph.add_resource(&Gvr::new("apps", "v1", "replicasets"), "ReplicaSet", true);
        graph.set_complete();
        graph
    }

    fn uid(n: u32) -> String {
        format!("00000000-0000-0000-0000-{n:012x}")
    }

    fn object(n: u32, owner: Option<(u32, bool)>) -> Value {
        let mut object = json!({"metadata": {"namespace": "n", "name": format!("o{n}"), "uid": uid(n)}});
        if let Some((owner, blocks)) = owner {
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("o{owner}"), "uid": uid(owner), "blockOwnerDeletion": blocks,
            }]);
        }
        object
    }

    fn deleting(mut object: Value, finalizer: &str) -> Value {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["metadata"]["finalizers"] = json!([finalizer]);
        object
    }

    #[test]
    fn uids_are_numbers_and_other_texts_differ_too() {
        assert_eq!(parse_uid(&uid(0xabc)), 0xabc);
        assert_ne!(parse_uid("a"), parse_uid("b"));
    }

    #[test]
    fn dependents_are_examined_when_the_owner_goes() {
        let mut graph = graph();
        assert_eq!(graph.observe(SETS, &object(1, None)), []);
        assert_eq!(graph.observe(PODS, &object(2, Some((1, true)))), []);
        assert_eq!(graph.remove(1), [Work::Examine(2)]);
        assert!(graph.is_absent(1));
    }

    #[test]
    fn an_unseen_owner_is_suspicious_only_in_a_complete_graph() {
        let mut graph = graph();
        graph.set_incomplete();
        assert_eq!(graph.observe(PODS, &object(2, Some((1, true)))), []);
        assert_eq!(graph.set_complete(), [Work::Examine(2)]);
        assert_eq!(graph.observe(PODS, &object(3, Some((9, true)))), [Work::Examine(3)]);
    }

    #[test]
    fn a_reference_under_a_wrong_name_is_suspicious() {
        let mut graph = graph();
        graph.observe(SETS, &object(1, None));
        let mut pod = object(2, Some((1, true)));
        pod["metadata"]["ownerReferences"][0]["name"] = json!("other");
        assert_eq!(graph.observe(PODS, &pod), [Work::Examine(2)]);
    }

    #[test]
    fn foreground_deletion_waits_for_blocking_dependents() {
        let mut graph = graph();
        graph.observe(SETS, &object(1, None));
        graph.observe(PODS, &object(2, Some((1, true))));
        graph.observe(PODS, &object(3, Some((1, false))));
        let mut work = graph.observe(SETS, &deleting(object(1, None), FOREGROUND));
        work.sort();
        assert_eq!(work, [Work::Examine(2), Work::Examine(3), Work::Settle(1)]);
        assert_eq!(graph.foreground(1).map(|(_, blocking)| blocking), Some(vec![2]));
        assert_eq!(graph.observe(PODS, &object(2, Some((1, false)))), [Work::Settle(1)]);
        assert_eq!(graph.foreground(1).map(|(_, blocking)| blocking), Some(vec![]));
        assert_eq!(graph.remove(3), [Work::Settle(1)]);
    }

    #[test]
    fn orphaning_names_the_dependents() {
        let mut graph = graph();
        graph.observe(SETS, &object(1, None));
        graph.observe(PODS, &object(2, Some((1, true))));
        assert_eq!(graph.observe(SETS, &deleting(object(1, None), ORPHAN)), [Work::Orphan(1)]);
        let (owner, dependents) = graph.orphaning(1).expect("waits");
        assert_eq!((&*owner.name, dependents.len()), ("o1", 1));
    }

    #[test]
    fn a_list_removes_what_it_lacks() {
        let mut graph = graph();
        graph.observe(SETS, &object(1, None));
        graph.observe(SETS, &object(4, None));
        graph.observe(PODS, &object(2, Some((1, true))));
        assert_eq!(graph.retain(SETS, &HashSet::from([4])), [Work::Examine(2)]);
    }
}
