//! A reader of `VirtualCluster` objects: every field with its default.

use crate::nodes::{self, NodeRules};
use crate::settings::{self, AuditRules};
use serde_json::Value;
use std::collections::BTreeMap;
use sublet_machinery::ObjectExt;

/// Whether the cluster runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    /// The API server answers; nothing is synced.
    Paused,
    /// Nothing runs; a request wakes it.
    Asleep,
}

/// Where the control plane runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Packed,
    Dedicated,
    External,
}

/// What keeps the objects of the tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Embedded,
    Etcd,
}

/// How the tenant's API server is reached from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expose {
    None,
    ClusterIp,
    NodePort,
    LoadBalancer,
    Ingress,
}

/// How tenant namespaces map to host namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All into the namespace of the `VirtualCluster`.
    Single,
    /// One host namespace per tenant namespace.
    Mapped,
}

/// The least Pod Security level of the tenant's pods, whatever it writes on its namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodSecurity {
    Privileged,
    #[default]
    Baseline,
    Restricted,
}

/// What is said about one kind of object: a rule that says nothing is no rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindRule {
    pub off: bool,
    /// Labels that an object must have to be synced.
    pub labels: BTreeMap<String, String>,
}

/// Where a control plane runs: told by the operator to the process that is to run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The pod whose process runs it.
    pub pod: String,
    pub api_port: u16,
    pub dns_port: u16,
    /// The cluster IP of the tenant's Service on the host; empty until it has one.
    pub address: String,
    /// A digest of the keys that are to be used; empty until there are some.
    pub keys: String,
    /// Who has the store, while it moves.
    pub from: Option<Source>,
}

/// A process that holds a store for another one to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub pod: String,
    pub address: String,
    pub port: u16,
}

/// How far the process that runs a control plane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Serving,
    /// Cannot go on without help.
    Failed,
    /// The store is none of this tenant.
    WrongStore,
    /// Nothing is synced any more, so that what is on the host can be deleted.
    Stopped,
}

impl Phase {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Starting, "Starting"),
        (Self::Serving, "Serving"),
        (Self::Failed, "Failed"),
        (Self::WrongStore, "WrongStore"),
        (Self::Stopped, "Stopped"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(phase, _)| *phase == self).map_or("Starting", |(_, name)| name)
    }

    fn parse(name: &str) -> Self {
        Self::ALL.iter().find(|(_, n)| *n == name).map_or(Self::Starting, |(phase, _)| *phase)
    }
}

/// What the process that runs a control plane says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub phase: Phase,
    pub synced: bool,
    pub store_identity: Option<String>,
    pub message: String,
    /// Kinds that the host does not offer, and why.
    pub off: String,
    pub pods: u64,
    pub namespaces: u64,
    pub objects: u64,
    pub bytes: u64,
}

/// A kubeconfig that is wanted in a Secret of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedKubeconfig<'a> {
    pub secret: &'a str,
    /// `https://host[:port]`; nothing: as pods of the host reach the API server.
    pub server: Option<&'a str>,
    pub user: &'a str,
    pub group: Option<&'a str>,
    pub namespace: Option<&'a str>,
    pub days: i64,
}

impl<'a> WantedKubeconfig<'a> {
    fn read(item: &'a Value) -> Option<Self> {
        let text = |field: &str| item[field].as_str().filter(|t| !t.is_empty());
        Some(Self {
            secret: text("secretName")?,
            server: text("server"),
            user: text("user").unwrap_or("admin"),
            group: text("group"),
            namespace: text("namespace"),
            days: item["validDays"].as_i64().unwrap_or(365),
        })
    }

    /// The host in `server`, without port and brackets: a name that the certificate has to cover.
    pub fn host(&self) -> Option<&'a str> {
        let authority = self.server?.strip_prefix("https://")?;
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => authority,
        };
        Some(host.trim_matches(['[', ']']))
    }
}

/// A view of one object. Values that the schema would refuse read as the default.
#[derive(Clone, Copy, Debug)]
pub struct VirtualCluster<'a> {
    object: &'a Value,
}

impl<'a> VirtualCluster<'a> {
    pub fn new(object: &'a Value) -> Self {
        Self { object }
    }

    pub fn name(&self) -> &'a str {
        self.object.name()
    }

    pub fn namespace(&self) -> &'a str {
        self.object.namespace()
    }

    pub fn uid(&self) -> &'a str {
        self.object.uid()
    }

    pub fn object(&self) -> &'a Value {
        self.object
    }

    pub fn version(&self) -> &'a str {
        self.object.str_at("/spec/version").unwrap_or("1.37")
    }

    pub fn class(&self) -> &'a str {
        self.object.str_at("/spec/class").unwrap_or_default()
    }

    pub fn state(&self) -> State {
        match self.object.str_at("/spec/state") {
            Some("Paused") => State::Paused,
            Some("Asleep") => State::Asleep,
            _ => State::Running,
        }
    }

    pub fn mode(&self) -> Mode {
        match self.object.str_at("/spec/controlPlane/mode") {
            Some("Dedicated") => Mode::Dedicated,
            Some("External") => Mode::External,
            _ => Mode::Packed,
        }
    }

    /// The Secret with the kubeconfig of an API server that exists already.
    pub fn external_kubeconfig(&self) -> Option<&'a str> {
        self.object.str_at("/spec/controlPlane/kubeconfigSecretRef/name").filter(|_| self.mode() == Mode::External)
    }

    pub fn replicas(&self) -> i64 {
        self.object.i64_at("/spec/controlPlane/replicas").unwrap_or(1)
    }

    pub fn store(&self) -> Store {
        match self.object.str_at("/spec/controlPlane/store/type") {
            Some("Etcd") => Store::Etcd,
            _ => Store::Embedded,
        }
    }

    pub fn expose(&self) -> Expose {
        match self.object.str_at("/spec/controlPlane/expose/type") {
            Some("None") => Expose::None,
            Some("NodePort") => Expose::NodePort,
            Some("LoadBalancer") => Expose::LoadBalancer,
            Some("Ingress") => Expose::Ingress,
            _ => Expose::ClusterIp,
        }
    }

    /// Names beyond the usual ones under which the API server is reached.
    pub fn hosts(&self) -> Vec<&'a str> {
        self.object.array_at("/spec/controlPlane/expose/hosts").iter().filter_map(Value::as_str).collect()
    }

    /// Those of the hosts that are names, not addresses: an Ingress leads names alone.
    pub fn host_names(&self) -> Vec<&'a str> {
        self.hosts().into_iter().filter(|host| host.parse::<std::net::IpAddr>().is_err()).collect()
    }

    /// The class of the Ingress that leads to the API server; nothing: the host's default.
    pub fn ingress_class(&self) -> Option<&'a str> {
        self.object.str_at("/spec/controlPlane/expose/ingressClassName")
    }

    /// The kubeconfigs that are wanted beside the admin's.
    pub fn kubeconfigs(&self) -> Vec<WantedKubeconfig<'a>> {
        self.object.array_at("/spec/kubeconfigs").iter().filter_map(WantedKubeconfig::read).collect()
    }

    pub fn layout(&self) -> Layout {
        match self.object.str_at("/spec/layout") {
            Some("Mapped") => Layout::Mapped,
            _ => Layout::Single,
        }
    }

    pub fn pod_security(&self) -> PodSecurity {
        match self.object.str_at("/spec/podSecurity/enforce") {
            Some("privileged") => PodSecurity::Privileged,
            Some("restricted") => PodSecurity::Restricted,
            _ => PodSecurity::Baseline,
        }
    }

    /// What is audited; nothing when there is no policy.
    pub fn audit(&self) -> Option<AuditRules> {
        AuditRules::of(&self.object["spec"]["audit"])
    }

    /// An AuthenticationConfiguration, when there is one.
    pub fn authentication(&self) -> Option<Value> {
        settings::completed(&self.object["spec"]["authentication"], "apiserver.config.k8s.io/v1", "AuthenticationConfiguration")
    }

    /// Share of the host's attention beside other tenants.
    pub fn weight(&self) -> u32 {
        self.object.i64_at("/spec/weight").and_then(|w| u32::try_from(w).ok()).unwrap_or(1).max(1)
    }

    /// What is said about kinds that go to the host, by plural resource name.
    pub fn to_host_rules(&self) -> BTreeMap<String, KindRule> {
        self.kind_rules("toHost")
    }

    /// What is said about kinds that are shown to the tenant, by plural resource name.
    pub fn to_tenant_rules(&self) -> BTreeMap<String, KindRule> {
        self.kind_rules("toTenant")
    }

    fn kind_rules(&self, direction: &str) -> BTreeMap<String, KindRule> {
        let rules = self.object["spec"]["sync"][direction].as_object();
        let rule = |rule: &Value| KindRule { off: rule["enabled"] == false, labels: nodes::labels(&rule["selector"]) };
        rules.into_iter().flatten().map(|(kind, r)| (kind.clone(), rule(r))).filter(|(_, r)| *r != KindRule::default()).collect()
    }

    /// Which nodes the tenant sees.
    pub fn nodes(&self) -> NodeRules {
        NodeRules::of(&self.object["spec"]["nodes"], self.mode() == Mode::External)
    }

    pub fn keeps_volumes(&self) -> bool {
        self.object.str_at("/spec/deletion/volumes") == Some("Retain")
    }

    /// Where the operator put the control plane, if it did.
    pub fn placement(&self) -> Option<Placement> {
        let at = &self.object["status"]["controlPlane"];
        let port = |field: &str| at[field].as_u64().and_then(|p| u16::try_from(p).ok());
        Some(Placement {
            pod: at["pod"].as_str()?.to_string(),
            api_port: port("apiPort")?,
            dns_port: port("dnsPort")?,
            address: at["address"].as_str().unwrap_or_default().to_string(),
            keys: at["keys"].as_str().unwrap_or_default().to_string(),
            from: at["from"]["pod"].as_str().map(|pod| Source {
                pod: pod.to_string(),
                address: at["from"]["address"].as_str().unwrap_or_default().to_string(),
                port: at["from"]["port"].as_u64().and_then(|p| u16::try_from(p).ok()).unwrap_or_default(),
            }),
        })
    }

    /// What the process that runs the control plane says of it; nothing, if another one said it.
    pub fn report(&self) -> Option<Report> {
        let said = &self.object["status"]["plane"];
        let pod = said["pod"].as_str()?;
        if self.placement().is_none_or(|p| p.pod != pod) {
            return None;
        }
        let count = |field: &str| said[field].as_u64().unwrap_or_default();
        Some(Report {
            phase: Phase::parse(said["phase"].as_str().unwrap_or_default()),
            synced: said["synced"].as_bool().unwrap_or_default(),
            store_identity: said["storeIdentity"].as_str().map(str::to_string),
            message: said["message"].as_str().unwrap_or_default().to_string(),
            off: said["off"].as_str().unwrap_or_default().to_string(),
            pods: count("pods"),
            namespaces: count("namespaces"),
            objects: count("objects"),
            bytes: count("bytes"),
        })
    }

    /// The name of the Secret with the admin kubeconfig.
    pub fn kubeconfig_secret(&self) -> String {
        format!("{}-kubeconfig", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A shard that held the tenant before must not be believed about the one that holds it now.
    #[test]
    fn only_the_process_in_charge_is_believed() {
        let mut object = json!({"status": {
            "controlPlane": {"pod": "sublet-shard-1", "apiPort": 20000, "dnsPort": 30000},
            "plane": {"pod": "sublet-shard-0", "phase": "Serving"},
        }});
        assert_eq!(VirtualCluster::new(&object).report(), None);
        object["status"]["plane"]["pod"] = json!("sublet-shard-1");
        assert_eq!(VirtualCluster::new(&object).report().map(|r| r.phase), Some(Phase::Serving));
    }

    #[test]
    fn a_kind_can_be_off_or_selected() {
        let object = json!({"spec": {"sync": {"toTenant": {
            "storageclasses": {"enabled": true, "selector": {"matchLabels": {"tenants": "yes"}}}, "runtimeclasses": {"enabled": false}, "nodes": {"enabled": true},
        }}}});
        let rules = VirtualCluster::new(&object).to_tenant_rules();
        assert_eq!(rules.len(), 2);
        assert!(rules["runtimeclasses"].off && !rules["storageclasses"].off);
        assert_eq!(rules["storageclasses"].labels["tenants"], "yes");
    }

    #[test]
    fn an_empty_spec_reads_as_the_defaults() {
        let object = json!({"metadata": {"name": "alpha", "namespace": "team-a"}, "spec": {}});
        let cluster = VirtualCluster::new(&object);
        assert_eq!((cluster.state(), cluster.mode(), cluster.layout()), (State::Running, Mode::Packed, Layout::Single));
        assert_eq!((cluster.version(), cluster.weight(), cluster.replicas()), ("1.37", 1, 1));
        assert!(cluster.to_host_rules().is_empty() && !cluster.keeps_volumes() && cluster.nodes() == NodeRules::default());
        assert_eq!(cluster.kubeconfig_secret(), "alpha-kubeconfig");
    }
}
