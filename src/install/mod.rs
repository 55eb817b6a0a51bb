//! What an installation in a cluster consists of: one source for `sublet install`, the manifests and the
//! chart.

mod rights;
mod samples;
mod tree;
mod workloads;

use serde_json::{Value, json};

pub use rights::{OPERATOR, SHARD, TENANT_ROLE};
pub use tree::{File, tree, yaml};

/// The ports of a shard that tenants' API servers and name servers listen on.
pub const API_PORTS: (u16, u16) = (20_000, 29_999);
/// A tenant's name server listens this far above its API server.
pub const DNS_PORT_OFFSET: u16 = 10_000;
/// Where a process answers for its health and its metrics.
pub const HEALTH_PORT: u16 = 8081;
/// Where shards keep the stores of tenants.
pub const STORES_PATH: &str = "/var/lib/sublet";
/// Who runs in the pods, as the image names it.
pub const USER: u32 = 65532;

/// Where shards keep the stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A claim for every shard; an empty class is the default one of the cluster.
    Claim { class: String, size: String },
    /// Gone with the pod: for trials.
    EmptyDir,
}

/// What may differ from one installation to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub namespace: String,
    pub image: String,
    pub operators: Value,
    pub shards: Value,
    pub storage: Storage,
    /// Log verbosity of all processes.
    pub verbosity: Value,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespace: "sublet-system".into(),
            image: concat!("sublet/sublet:", env!("CARGO_PKG_VERSION")).into(),
            operators: json!(2),
            shards: json!(1),
            storage: Storage::Claim { class: String::new(), size: "10Gi".into() },
            verbosity: json!(2),
        }
    }
}

/// The parts of an installation, in the order in which they are applied.
pub struct Parts {
    /// Kinds; they stay when the rest goes.
    pub definitions: Vec<Value>,
    pub rights: Vec<Value>,
    pub workloads: Vec<Value>,
}

impl Parts {
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Value> {
        // The namespace comes first of all: rights live in it.
        let (first, rest) = self.workloads.split_at(1);
        first.iter().chain(&self.definitions).chain(&self.rights).chain(rest)
    }
}

/// Everything that is to be applied for these options.
pub fn parts(options: &Options) -> Parts {
    Parts {
        definitions: vec![sublet_api::virtual_cluster_crd()],
        rights: rights::objects(&options.namespace),
        workloads: workloads::objects(options),
    }
}

/// Labels by which everything of an installation is found.
fn labels(component: &str) -> Value {
    json!({
        "app.kubernetes.io/name": "sublet", "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "sublet", "app.kubernetes.io/managed-by": "sublet-install",
    })
}

/// Labels that select the pods of a component; they never change.
pub fn pod_labels(component: &str) -> Value {
    json!({"app.kubernetes.io/name": "sublet", "app.kubernetes.io/component": component})
}
