//! Questions about a cluster and what they come to, by the Kubernetes DNS specification 1.1.0.

#![expect(clippy::unwrap_used, reason = "a test may panic: that is how it fails")]

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;
use sublet_dns::proto::rr::{Name, Record, RecordType};
use sublet_dns::{Answer, Code, Outcome, Question, Zone, ZoneConfig};

const NO_NAME: &[&str] = &["NXDOMAIN"];
const NO_DATA: &[&str] = &[];
const ELSEWHERE: &[&str] = &["elsewhere"];

fn ask(name: &str, kind: RecordType) -> Outcome {
    let config = ZoneConfig { domain: "cluster.local".into(), servers: vec!["10.96.0.10".parse().unwrap()] };
    let zone = Zone::new(&config, Arc::new(support::cluster("www.example.org"))).unwrap();
    zone.answer(&Question::new(Name::from_ascii(name).unwrap(), kind))
}

fn data(records: &[Record]) -> Vec<String> {
    records.iter().map(|r| r.data.to_string()).collect()
}

fn check(name: &str, kind: RecordType, expected: &[&str]) {
    let found = match ask(name, kind) {
        Outcome::Elsewhere => vec!["elsewhere".to_string()],
        Outcome::Cluster(Answer { code: Code::NoName, .. }) => vec!["NXDOMAIN".to_string()],
        Outcome::Cluster(answer) => data(&answer.records),
    };
    assert_eq!(found, expected, "{name} {kind}");
}

#[test]
fn services_have_their_cluster_addresses() {
    use RecordType::{A, AAAA, TXT};
    check("web.prod.svc.cluster.local.", A, &["10.96.0.5"]);
    check("WEB.Prod.svc.Cluster.Local.", A, &["10.96.0.5"]);
    check("web.prod.svc.cluster.local.", AAAA, &["fd01::5"]);
    check("web.prod.svc.cluster.local.", TXT, NO_DATA);
    check("kubernetes.default.svc.cluster.local.", A, &["10.96.0.1"]);
    check("kubernetes.default.svc.cluster.local.", AAAA, NO_DATA);
    check("nothing.prod.svc.cluster.local.", A, NO_NAME);
    check("web.empty.svc.cluster.local.", A, NO_NAME);
    check("web.prod.svc.cluster.example.", A, ELSEWHERE);
}

#[test]
fn headless_services_have_the_addresses_of_ready_endpoints() {
    use RecordType::{A, AAAA};
    check("db.prod.svc.cluster.local.", A, &["10.244.0.1", "10.244.0.2"]);
    check("db.prod.svc.cluster.local.", AAAA, &["fd00::1"]);
    check("db-0.db.prod.svc.cluster.local.", A, &["10.244.0.1"]);
    check("db-0.db.prod.svc.cluster.local.", AAAA, &["fd00::1"]);
    check("10-244-0-2.db.prod.svc.cluster.local.", A, &["10.244.0.2"]);
    check("db-2.db.prod.svc.cluster.local.", A, NO_NAME);
    check("10-244-0-9.web.prod.svc.cluster.local.", A, &["10.244.0.9"]);
    check("none-ready.prod.svc.cluster.local.", A, NO_NAME);
    check("unready.prod.svc.cluster.local.", A, &["10.244.0.5"]);
    check("u.unready.prod.svc.cluster.local.", A, &["10.244.0.5"]);
}

#[test]
fn ports_are_found_by_name() {
    use RecordType::{A, SRV};
    check("_http._tcp.web.prod.svc.cluster.local.", SRV, &["0 100 80 web.prod.svc.cluster.local."]);
    check("_dns._udp.web.prod.svc.cluster.local.", SRV, &["0 100 53 web.prod.svc.cluster.local."]);
    check("_dns._tcp.web.prod.svc.cluster.local.", SRV, NO_NAME);
    check("_http._tcp.web.prod.svc.cluster.local.", A, &["10.96.0.5"]);
    check("_tcp.web.prod.svc.cluster.local.", SRV, NO_DATA);
    check("http.tcp.web.prod.svc.cluster.local.", SRV, NO_NAME);
    let both = ["0 50 80 web.prod.svc.cluster.local.", "0 50 53 web.prod.svc.cluster.local."];
    check("web.prod.svc.cluster.local.", SRV, &both);
    let headless = ["0 33 5432 db-0.db.prod.svc.cluster.local.", "0 33 5432 10-244-0-2.db.prod.svc.cluster.local."];
    check("_sql._tcp.db.prod.svc.cluster.local.", SRV, &headless);
}

#[test]
fn what_ports_lead_to_comes_with_its_addresses() {
    let Outcome::Cluster(answer) = ask("_sql._tcp.db.prod.svc.cluster.local.", RecordType::SRV) else { panic!("is of the cluster") };
    let additional: Vec<String> = answer.additional.iter().map(|r| format!("{} {}", r.name, r.data)).collect();
    assert_eq!(
        additional,
        [
            "db-0.db.prod.svc.cluster.local. 10.244.0.1",
            "10-244-0-2.db.prod.svc.cluster.local. 10.244.0.2",
            "db-0.db.prod.svc.cluster.local. fd00::1"
        ]
    );
}

#[test]
fn external_names_are_aliases() {
    check("elsewhere.prod.svc.cluster.local.", RecordType::CNAME, &["www.example.org."]);
    let follows = |name, kind| match ask(name, kind) {
        Outcome::Cluster(answer) => answer.follow.map(|n| n.to_string()),
        Outcome::Elsewhere => None,
    };
    assert_eq!(follows("elsewhere.prod.svc.cluster.local.", RecordType::A).as_deref(), Some("www.example.org."));
    assert_eq!(follows("elsewhere.prod.svc.cluster.local.", RecordType::CNAME), None);
    assert_eq!(follows("alias.prod.svc.cluster.local.", RecordType::AAAA).as_deref(), Some("db.prod.svc.cluster.local."));
}

#[test]
fn pods_are_found_by_their_address_and_no_others() {
    use RecordType::{A, AAAA};
    check("10-244-0-7.prod.pod.cluster.local.", A, &["10.244.0.7"]);
    check("fd00--7.prod.pod.cluster.local.", AAAA, &["fd00::7"]);
    check("10-244-0-7.prod.pod.cluster.local.", AAAA, NO_DATA);
    check("10-244-0-7.default.pod.cluster.local.", A, NO_NAME);
    check("8-8-8-8.prod.pod.cluster.local.", A, NO_NAME);
    check("web.prod.pod.cluster.local.", A, NO_NAME);
}

#[test]
fn names_above_others_exist_without_records() {
    use RecordType::{A, NS, SOA, TXT};
    for name in ["svc", "pod", "prod.svc", "empty.svc", "prod.pod", "dns"] {
        check(&format!("{name}.cluster.local."), A, NO_DATA);
    }
    for name in ["other.svc", "prod", "x.y", "a.b.c.d.e.f"] {
        check(&format!("{name}.cluster.local."), A, NO_NAME);
    }
    check("cluster.local.", A, NO_DATA);
    check("cluster.local.", NS, &["ns.dns.cluster.local."]);
    check("cluster.local.", SOA, &["ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5"]);
    check("ns.dns.cluster.local.", A, &["10.96.0.10"]);
    check("dns-version.cluster.local.", TXT, &["1.1.0"]);
    check("dns-version.cluster.local.", A, NO_DATA);
}

#[test]
fn addresses_have_names() {
    use RecordType::{A, PTR};
    check("5.0.96.10.in-addr.arpa.", PTR, &["web.prod.svc.cluster.local."]);
    check("1.0.244.10.in-addr.arpa.", PTR, &["db-0.db.prod.svc.cluster.local."]);
    check("2.0.244.10.in-addr.arpa.", PTR, &["10-244-0-2.db.prod.svc.cluster.local."]);
    check("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", PTR, &["db-0.db.prod.svc.cluster.local."]);
    check("5.0.96.10.in-addr.arpa.", A, NO_DATA);
    check("8.8.8.8.in-addr.arpa.", PTR, ELSEWHERE);
    check("96.10.in-addr.arpa.", PTR, ELSEWHERE);
}
