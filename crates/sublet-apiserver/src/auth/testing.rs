//! A cluster of a few objects, for tests.

use crate::admission::UserInfo;
use crate::reader::Reader;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use sublet_machinery::ObjectExt;

#[derive(Default)]
pub struct FakeReader(Mutex<State>);

#[derive(Default)]
struct State {
    objects: BTreeMap<(String, String, String), Arc<Value>>,
    revision: u64,
}

impl FakeReader {
    pub fn put(&self, group_resource: &str, object: Value) {
        let mut state = self.0.lock().unwrap();
        state.revision += 1;
        let key = (group_resource.to_string(), object.namespace().to_string(), object.name().to_string());
        state.objects.insert(key, Arc::new(object));
    }

    pub fn remove(&self, group_resource: &str, namespace: &str, name: &str) {
        let mut state = self.0.lock().unwrap();
        state.revision += 1;
        state.objects.remove(&(group_resource.to_string(), namespace.to_string(), name.to_string()));
    }
}

impl Reader for FakeReader {
    fn get(&self, group_resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.0.lock().unwrap().objects.get(&(group_resource.to_string(), namespace.to_string(), name.to_string())).cloned()
    }

    fn list(&self, group_resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let state = self.0.lock().unwrap();
        let wanted = |(resource, at, _): &(String, String, String)| resource == group_resource && namespace.is_none_or(|n| n == at);
        state.objects.iter().filter(|(key, _)| wanted(key)).map(|(_, object)| object.clone()).collect()
    }

    fn revision(&self, _group_resource: &str) -> u64 {
        self.0.lock().unwrap().revision
    }
}

pub fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo { name: name.into(), groups: groups.iter().map(ToString::to_string).collect(), ..UserInfo::default() }
}
