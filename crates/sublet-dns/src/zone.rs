//! The cluster's zone: a question against the tenant's objects. No IO.

use crate::TTL_S;
use crate::answer::{Answer, Outcome};
use crate::endpoints::{self, Endpoint, Port};
use crate::question::{Question, labels_of};
use crate::reverse;
use crate::world::World;
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use serde_json::Value;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use sublet_machinery::ObjectExt;

/// The label that ties slices to their Service.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The version of the specification that answers keep to.
const SPECIFICATION: &str = "1.1.0";
const SRV_WEIGHT_ALL: u16 = 100;
const LABEL_BYTES_MAX: usize = 63;

#[derive(Clone, Debug)]
pub struct ZoneConfig {
    /// `cluster.local`, as a rule.
    pub domain: String,
    /// Where pods reach the name server.
    pub servers: Vec<IpAddr>,
}

/// What a pod is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnName {
    name: Name,
    addresses: Vec<IpAddr>,
}

impl OwnName {
    /// The answer, if this is the name that is asked for.
    pub fn answer(&self, question: &Question) -> Option<Answer> {
        (self.name == question.name).then(|| Answer::of(address_records(question, &question.name, &self.addresses)))
    }
}

/// The names of one tenant.
pub struct Zone {
    domain: Vec<String>,
    origin: Name,
    servers: Vec<IpAddr>,
    world: Arc<dyn World>,
    /// Guards the names by address; held while the table is made, which only reverse lookups wait for.
    reverse: Mutex<reverse::Table>,
}

impl Zone {
    /// `None` when the domain is no name.
    pub fn new(config: &ZoneConfig, world: Arc<dyn World>) -> Option<Self> {
        let domain = labels_of(&config.domain);
        let origin = name_of(domain.iter().map(String::as_str))?;
        Some(Self { domain, origin, servers: config.servers.clone(), world, reverse: Mutex::default() })
    }

    pub fn world(&self) -> &dyn World {
        &*self.world
    }

    pub fn answer(&self, question: &Question) -> Outcome {
        if let Some(labels) = question.within(&self.domain) {
            return Outcome::Cluster(self.forward(question, &labels));
        }
        let Some(address) = reverse::address(question.labels()) else { return Outcome::Elsewhere };
        let names = self.reverse.lock().expect("no holder panics").names(address, &*self.world, Instant::now());
        if names.is_empty() {
            return Outcome::Elsewhere;
        }
        if question.kind != RecordType::PTR {
            return Outcome::Cluster(Answer::no_data());
        }
        let targets = names.iter().filter_map(|n| self.below(&n.split('.').collect::<Vec<_>>()));
        Outcome::Cluster(Answer::of(targets.map(|t| record(&question.name, RData::PTR(PTR(t)))).collect()))
    }

    /// The namespace in which the name could be a pod's own full name.
    pub fn may_be_own<'a>(&self, question: &'a Question) -> Option<&'a str> {
        match question.within(&self.domain)?.as_slice() {
            [_, _, namespace, "svc"] => Some(namespace),
            _ => None,
        }
    }

    /// A pod's own full name, by its address and namespace. Kubelets write it into the pod's hosts file,
    /// but with the host's namespace: so the pod is told here, ready or not, and whether or not there is
    /// a Service. Others are not.
    pub fn own_name(&self, address: IpAddr, namespace: &str) -> Option<OwnName> {
        let pod = self.world.pod_at(namespace, address)?;
        let subdomain = pod.str_at("/spec/subdomain").filter(|s| !s.is_empty())?;
        let host = pod.str_at("/spec/hostname").filter(|h| !h.is_empty()).unwrap_or(pod.name());
        let labels = [host.get(..LABEL_BYTES_MAX).unwrap_or(host), subdomain, namespace, "svc"];
        let addresses = pod.array_at("/status/podIPs").iter().filter_map(|ip| ip["ip"].as_str()?.parse().ok()).collect();
        Some(OwnName { name: self.below(&labels)?, addresses })
    }

    /// Whether a name is the cluster's.
    pub fn holds(&self, name: &Name) -> bool {
        self.origin.zone_of(name)
    }

    /// What stands in replies that have no records.
    pub fn authority(&self) -> Record {
        let zone = |label: &[&str]| self.below(label).unwrap_or_else(|| self.origin.clone());
        // Nobody transfers the zone, so the serial number says nothing.
        let soa = SOA::new(zone(&["ns", "dns"]), zone(&["hostmaster"]), 1, 7200, 1800, 86400, TTL_S);
        record(&self.origin, RData::SOA(soa))
    }

    fn forward(&self, question: &Question, labels: &[&str]) -> Answer {
        match labels {
            [] => self.apex(question),
            ["dns-version"] => match question.kind {
                RecordType::TXT => Answer::of(vec![record(&question.name, RData::TXT(TXT::new(vec![SPECIFICATION.into()])))]),
                _ => Answer::no_data(),
            },
            ["dns"] | ["svc"] | ["pod"] => Answer::no_data(),
            ["ns", "dns"] => Answer::of(address_records(question, &question.name, &self.servers)),
            [namespace, "svc" | "pod"] if self.world.has_namespace(namespace) => Answer::no_data(),
            [address, namespace, "pod"] => self.pod(question, address, namespace),
            [service, namespace, "svc"] => self.service(question, service, namespace),
            [protocol, service, namespace, "svc"] if protocol.starts_with('_') => match self.world.service(namespace, service) {
                Some(_) => Answer::no_data(),
                None => Answer::no_name(),
            },
            [host, service, namespace, "svc"] => self.endpoint(question, host, service, namespace),
            [port, protocol, service, namespace, "svc"] => match (port.strip_prefix('_'), protocol.strip_prefix('_')) {
                (Some(port), Some(protocol)) => self.named_port(question, port, protocol, service, namespace),
                _ => Answer::no_name(),
            },
            _ => Answer::no_name(),
        }
    }

    fn apex(&self, question: &Question) -> Answer {
        match question.kind {
            RecordType::SOA => Answer::of(vec![self.authority()]),
            RecordType::NS => {
                let Some(server) = self.below(&["ns", "dns"]) else { return Answer::no_data() };
                let mut answer = Answer::of(vec![record(&question.name, RData::NS(NS(server.clone())))]);
                answer.additional = self.servers.iter().map(|a| address_record(&server, *a)).collect();
                answer
            }
            _ => Answer::no_data(),
        }
    }

    /// Only addresses of the tenant's own pods are names: otherwise anybody could have a name of the
    /// cluster for any address.
    fn pod(&self, question: &Question, label: &str, namespace: &str) -> Answer {
        match endpoints::undashed(label) {
            Some(address) if self.world.pod_at(namespace, address).is_some() => {
                Answer::of(address_records(question, &question.name, &[address]))
            }
            _ => Answer::no_name(),
        }
    }

    fn service(&self, question: &Question, name: &str, namespace: &str) -> Answer {
        let Some(service) = self.world.service(namespace, name) else { return Answer::no_name() };
        if service.str_at("/spec/type") == Some("ExternalName") {
            return alias(question, &service);
        }
        if is_headless(&service) {
            let shown = self.endpoints(&service);
            // As the specification has it: a headless Service without ready endpoints has no name.
            return if shown.is_empty() { Answer::no_name() } else { self.of_endpoints(question, &service, &shown, None) };
        }
        match question.kind {
            RecordType::SRV => self.of_cluster_ip(question, &service, &endpoints::service_ports(&service)),
            _ => Answer::of(address_records(question, &question.name, &reverse::addresses_of(&service))),
        }
    }

    fn endpoint(&self, question: &Question, host: &str, service: &str, namespace: &str) -> Answer {
        let Some(service) = self.world.service(namespace, service) else { return Answer::no_name() };
        let mut shown = self.endpoints(&service);
        shown.retain(|e| e.host == host);
        if shown.is_empty() {
            return Answer::no_name();
        }
        self.of_endpoints(question, &service, &shown, None)
    }

    fn named_port(&self, question: &Question, port: &str, protocol: &str, service: &str, namespace: &str) -> Answer {
        let Some(service) = self.world.service(namespace, service) else { return Answer::no_name() };
        let is_asked = |p: &Port| p.name == port && p.protocol == protocol;
        if is_headless(&service) {
            let mut shown = self.endpoints(&service);
            shown.retain(|e| e.ports.iter().any(is_asked));
            return if shown.is_empty() {
                Answer::no_name()
            } else {
                self.of_endpoints(question, &service, &shown, Some((port, protocol)))
            };
        }
        let mut ports = endpoints::service_ports(&service);
        ports.retain(is_asked);
        match (ports.is_empty(), question.kind) {
            (true, _) => Answer::no_name(),
            (false, RecordType::SRV) => self.of_cluster_ip(question, &service, &ports),
            (false, _) => Answer::of(address_records(question, &question.name, &reverse::addresses_of(&service))),
        }
    }

    fn endpoints(&self, service: &Value) -> Vec<Endpoint> {
        let not_ready_too = service.bool_at("/spec/publishNotReadyAddresses") == Some(true);
        endpoints::of_slices(&self.world.slices(service.namespace(), service.name()), not_ready_too)
    }

    fn of_cluster_ip(&self, question: &Question, service: &Value, ports: &[Port]) -> Answer {
        let Some(target) = self.below(&[service.name(), service.namespace(), "svc"]) else { return Answer::no_data() };
        let weight = weight(ports.len());
        let records = ports.iter().map(|p| record(&question.name, RData::SRV(SRV::new(0, weight, p.number, target.clone()))));
        let mut answer = Answer::of(records.collect());
        if !answer.records.is_empty() {
            answer.additional = reverse::addresses_of(service).into_iter().map(|a| address_record(&target, a)).collect();
        }
        answer
    }

    /// Addresses, or for SRV each endpoint by its own name; of one port or of all.
    fn of_endpoints(&self, question: &Question, service: &Value, shown: &[Endpoint], port: Option<(&str, &str)>) -> Answer {
        if question.kind != RecordType::SRV {
            let mut addresses: Vec<IpAddr> = shown.iter().map(|e| e.address).collect();
            let mut seen = HashSet::new();
            addresses.retain(|a| seen.insert(*a));
            return Answer::of(address_records(question, &question.name, &addresses));
        }
        let is_asked = |p: &&Port| port.is_none_or(|(name, protocol)| p.name == name && p.protocol == protocol);
        let count = shown.iter().map(|e| e.ports.iter().filter(is_asked).count()).sum();
        let weight = weight(count);
        let mut answer = Answer::of(Vec::with_capacity(count));
        // The same endpoint is in several slices when its ports are.
        let (mut ports, mut addresses) = (HashSet::new(), HashSet::new());
        for endpoint in shown {
            let Some(target) = self.below(&[&endpoint.host, service.name(), service.namespace(), "svc"]) else { continue };
            for port in endpoint.ports.iter().filter(is_asked).filter(|p| ports.insert((&endpoint.host, p.number))) {
                answer.records.push(record(&question.name, RData::SRV(SRV::new(0, weight, port.number, target.clone()))));
            }
            if addresses.insert((&endpoint.host, endpoint.address)) {
                answer.additional.push(address_record(&target, endpoint.address));
            }
        }
        answer
    }

    /// The name of labels below the cluster's domain.
    fn below(&self, labels: &[&str]) -> Option<Name> {
        name_of(labels.iter().copied().chain(self.domain.iter().map(String::as_str)))
    }
}

fn is_headless(service: &Value) -> bool {
    service.str_at("/spec/clusterIP") == Some("None")
}

fn alias(question: &Question, service: &Value) -> Answer {
    let target = service.str_at("/spec/externalName").unwrap_or_default().trim_end_matches('.');
    let Some(target) = name_of(target.split('.')) else { return Answer::no_data() };
    let mut answer = Answer::of(vec![record(&question.name, RData::CNAME(CNAME(target.clone())))]);
    answer.follow = (question.kind != RecordType::CNAME).then_some(target);
    answer
}

fn weight(records: usize) -> u16 {
    SRV_WEIGHT_ALL / u16::try_from(records.max(1)).unwrap_or(u16::MAX).clamp(1, SRV_WEIGHT_ALL)
}

/// The addresses of the family that is asked for.
fn address_records(question: &Question, owner: &Name, addresses: &[IpAddr]) -> Vec<Record> {
    let is_asked = |a: &&IpAddr| match question.kind {
        RecordType::A => a.is_ipv4(),
        RecordType::AAAA => a.is_ipv6(),
        kind => kind == RecordType::ANY,
    };
    addresses.iter().filter(is_asked).map(|a| address_record(owner, *a)).collect()
}

fn address_record(owner: &Name, address: IpAddr) -> Record {
    let data = match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    record(owner, data)
}

fn record(owner: &Name, data: RData) -> Record {
    Record::from_rdata(owner.clone(), TTL_S, data)
}

/// A full name of labels, if they make one.
fn name_of<'a>(labels: impl Iterator<Item = &'a str>) -> Option<Name> {
    let mut name = Name::from_labels(labels.map(str::as_bytes)).ok()?;
    name.set_fqdn(true);
    Some(name)
}
