//! The rolling update: replacing old pods within what may be unavailable or surplus (daemon/update.go, 1.37).

use super::plan::{Changes, Fit, Observed};
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

/// The pods of a node that are not on their way out.
enum OnNode {
    /// More than one old or new pod: to be pruned first.
    Crowded,
    Pods {
        new: Option<Arc<Value>>,
        old: Option<Arc<Value>>,
    },
}

impl Observed<'_> {
    pub(super) fn roll(&self) -> Changes {
        if self.set.str_at("/spec/updateStrategy/type") == Some("OnDelete") {
            return Changes::default();
        }
        let desired = self.nodes.values().filter(|f| f.should_run).count() as i64;
        let surge = self.rolling("maxSurge", desired);
        let mut unavailable = self.rolling("maxUnavailable", desired);
        if surge == 0 && unavailable == 0 {
            // Impossible to honour; one at a time is the default.
            unavailable = 1;
        }
        if surge == 0 { self.replace(unavailable) } else { self.surge(surge, desired) }
    }

    /// Nodes with pods of the set and nodes that should have one.
    fn concerned(&self) -> Vec<&str> {
        let wanted = self.nodes.iter().filter(|(_, f)| f.should_run).map(|(n, _)| *n);
        let mut all: Vec<&str> = wanted.chain(self.by_node.keys().map(String::as_str)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn on_node(&self, node: &str) -> OnNode {
        let (new, old): (Vec<_>, Vec<_>) = self.pods_on(node).iter().filter(|p| !p.is_deleting()).partition(|p| self.is_updated(p));
        if new.len() > 1 || old.len() > 1 {
            return OnNode::Crowded;
        }
        OnNode::Pods { new: new.first().map(|p| Arc::clone(p)), old: old.first().map(|p| Arc::clone(p)) }
    }

    /// Deletes old pods; new ones follow on their nodes.
    fn replace(&self, max_unavailable: i64) -> Changes {
        let mut unavailable = 0;
        let (mut delete, mut candidates) = (Vec::new(), Vec::new());
        for node in self.concerned() {
            match self.on_node(node) {
                OnNode::Pods { new: Some(new), old: None } => unavailable += i64::from(!self.is_available(&new)),
                OnNode::Pods { new: None, old: Some(old) } if self.is_available(&old) => candidates.push(old),
                OnNode::Pods { new: None, old: Some(old) } => {
                    // It serves nobody, so replacing it costs nothing.
                    delete.push(old);
                    unavailable += 1;
                }
                OnNode::Crowded | OnNode::Pods { .. } => unavailable += 1,
            }
        }
        let room = usize::try_from(max_unavailable - unavailable).unwrap_or(0);
        delete.extend(candidates.into_iter().take(room));
        Changes { delete, ..Changes::default() }
    }

    /// Makes new pods beside old ones, and deletes the old ones when the new ones are available.
    fn surge(&self, max_surge: i64, desired: i64) -> Changes {
        let mut changes = Changes::default();
        let (mut surging, mut available) = (0, 0);
        let (mut leaving, mut candidates) = (Vec::new(), Vec::new());
        for node in self.concerned() {
            let OnNode::Pods { new, old } = self.on_node(node) else {
                surging += 1;
                continue;
            };
            available += i64::from(old.as_ref().or(new.as_ref()).is_some_and(|p| self.is_available(p)));
            let Some(old) = old else { continue };
            let fits = self.nodes.get(node).is_some_and(|f: &Fit| f.should_run);
            match new {
                Some(new) if self.is_available(&new) => changes.delete.push(old),
                Some(_) => surging += 1,
                None if !self.is_available(&old) && fits => changes.create.push(node.to_string()),
                None if !self.is_available(&old) => changes.delete.push(old),
                None if fits => candidates.push(node.to_string()),
                None => leaving.push(old),
            }
        }
        // A pod that no longer fits its node serves until others make up for it.
        let spare = usize::try_from(available - desired).unwrap_or(0);
        changes.delete.extend(leaving.into_iter().take(spare));
        let room = usize::try_from(max_surge - surging).unwrap_or(0);
        changes.create.extend(candidates.into_iter().take(room));
        changes
    }
}
