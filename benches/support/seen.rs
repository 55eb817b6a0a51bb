//! When a watcher from outside saw something of pods for the first time.

use anyhow::Result;
use futures::StreamExt;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::PODS;
use sublet_runtime::{Client, ListOptions, WatchEvent};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The pods that a watch told of, by what `key` makes of them.
#[derive(Clone, Default)]
pub struct Seen {
    /// Guards the times alone.
    at: Arc<Mutex<Times>>,
}

#[derive(Default)]
struct Times {
    added: HashMap<String, Instant>,
    ready: HashMap<String, Instant>,
    gone: HashMap<String, Instant>,
}

/// What may have been seen of a pod.
#[derive(Clone, Copy, Debug)]
pub enum What {
    Added,
    /// It is Ready.
    Ready,
    Gone,
}

/// A watch that runs until it is dropped.
pub struct Watching(JoinHandle<()>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Seen {
    /// Follows the pods of a namespace (empty: of all) from now on.
    pub async fn follow(
        &self,
        client: &Client,
        namespace: &str,
        key: impl Fn(&Value) -> Option<String> + Send + 'static,
    ) -> Result<Watching> {
        let list = client.list(&PODS, namespace, &ListOptions { limit: Some(1), ..ListOptions::default() }).await?;
        let (client, namespace, seen) = (client.clone(), namespace.to_string(), self.clone());
        let mut version = list.resource_version;
        Ok(Watching(tokio::spawn(async move {
            // The server ends a watch now and then: it goes on where it was.
            while let Ok(mut events) = client.watch(&PODS, &namespace, &version, &ListOptions::default()).await {
                while let Some(Ok(event)) = events.next().await {
                    let now = Instant::now();
                    let (object, gone) = match event {
                        WatchEvent::Added(o) | WatchEvent::Modified(o) => (o, false),
                        WatchEvent::Deleted(o) => (o, true),
                        WatchEvent::Bookmark(o) => {
                            version = o.resource_version().to_string();
                            continue;
                        }
                        WatchEvent::Error(_) => return,
                    };
                    version = object.resource_version().to_string();
                    if let Some(key) = key(&object) {
                        seen.note(key, &object, gone, now);
                    }
                }
            }
        })))
    }

    fn note(&self, key: String, pod: &Value, gone: bool, now: Instant) {
        let mut at = self.at.lock().expect("no holder panics");
        if gone {
            at.gone.entry(key).or_insert(now);
            return;
        }
        let conditions = pod["status"]["conditions"].as_array();
        if conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")) {
            at.ready.entry(key.clone()).or_insert(now);
        }
        at.added.entry(key).or_insert(now);
    }

    pub fn count(&self, what: What) -> usize {
        self.at.lock().expect("no holder panics").of(what).len()
    }

    pub fn at(&self, what: What, key: &str) -> Option<Instant> {
        self.at.lock().expect("no holder panics").of(what).get(key).copied()
    }

    /// Waits until `count` were seen; how many were when patience ended.
    pub async fn wait(&self, what: What, count: usize, patience: Duration) -> usize {
        let end = Instant::now() + patience;
        while self.count(what) < count && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.count(what)
    }
}

impl Times {
    fn of(&self, what: What) -> &HashMap<String, Instant> {
        match what {
            What::Added => &self.added,
            What::Ready => &self.ready,
            What::Gone => &self.gone,
        }
    }
}
