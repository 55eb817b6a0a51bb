//! Services whose numbers are the host's, through the tenant's API server.

mod support;

use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{EVENTS, SERVICES};
use sublet_runtime::{ClientError, DeleteOptions, Informer, ListOptions, Scope};
use support::addresses;
use support::clusters::{Clusters, HOST_NAMESPACE, Running, until};
use tokio_util::sync::CancellationToken;

const NODE_PORTS: (u16, u16) = (31000, 31010);

async fn start() -> (Clusters, Running) {
    start_on(&["10.99.0.0/24"]).await
}

async fn start_on(cidrs: &[&str]) -> (Clusters, Running) {
    let clusters = Clusters::start().await;
    addresses::on_host(&clusters, cidrs, NODE_PORTS);
    clusters.add_namespace(&clusters.tenant, "prod").await;
    let running = clusters.sync("alpha", &clusters.tenant).await;
    addresses::in_tenant(&clusters, &running);
    (clusters, running)
}

fn service(name: &str, mut spec: Value) -> Value {
    if spec["ports"].is_null() && spec["type"] != "ExternalName" {
        spec["ports"] = json!([{"port": 80}]);
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "prod"}, "spec": spec})
}

async fn create(clusters: &Clusters, name: &str, spec: Value) -> Value {
    clusters.tenant.create(&SERVICES, &service(name, spec)).await.expect("created")
}

async fn change(clusters: &Clusters, name: &str, spec: Value) -> Result<Value, ClientError> {
    clusters.tenant.merge_patch(&SERVICES, "prod", name, json!({"spec": spec})).await
}

fn node_port(service: &Value) -> Option<i64> {
    service.i64_at("/spec/ports/0/nodePort")
}

/// Both sides, once they say the same about where the service is reached.
async fn agreed(clusters: &Clusters, name: &str) -> Value {
    let same = || async {
        let (tenant, host) = (clusters.tenant.get(&SERVICES, "prod", name).await.expect("there"), clusters.copy(&SERVICES, name).await?);
        let fields =
            ["type", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort", "externalName", "loadBalancerClass"];
        let equal = fields.iter().all(|f| tenant["spec"][*f] == host["spec"][*f]) && node_port(&tenant) == node_port(&host);
        equal.then_some(tenant)
    };
    until("both to agree", same).await
}

/// Numbers of the tenant's choice were taken on the host, or out of its range, and the service never came. [k3k 161; vcluster 2302]
#[tokio::test(flavor = "multi_thread")]
async fn a_node_port_that_the_host_cannot_give_is_refused_at_once() {
    let (clusters, running) = start().await;
    let foreign = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "foreign", "namespace": HOST_NAMESPACE},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31005}]}});
    clusters.host.create(&SERVICES, &foreign).await.expect("created");
    let with_port = |port: u16| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    let refusal = |result: Result<Value, ClientError>| {
        let error = result.expect_err("refused");
        let api = error.api().expect("an answer").clone();
        assert_eq!(api.code, 422, "{api}");
        api.message
    };
    let taken = clusters.tenant.create(&SERVICES, &service("web", with_port(31005))).await;
    assert!(refusal(taken).contains("provided port is already allocated"));
    let beyond = clusters.tenant.create(&SERVICES, &service("web", with_port(30000))).await;
    assert!(refusal(beyond).contains("31000-31010"));
    assert!(clusters.tenant.get_opt(&SERVICES, "prod", "web").await.expect("reads").is_none());
    assert!(clusters.copy(&SERVICES, "web").await.is_none());
    // The same for a change.
    let created = create(&clusters, "web", with_port(31006)).await;
    assert_eq!(node_port(&created), Some(31006));
    assert!(refusal(change(&clusters, "web", json!({"ports": [{"port": 80, "nodePort": 31005}]})).await).contains("already allocated"));
    assert_eq!(node_port(&agreed(&clusters, "web").await), Some(31006));
    let moved = change(&clusters, "web", json!({"ports": [{"port": 80, "nodePort": 31007}]})).await.expect("a free one");
    assert_eq!((node_port(&moved), node_port(&agreed(&clusters, "web").await)), (Some(31007), Some(31007)));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_in_the_reply_is_the_one_that_works() {
    let (clusters, running) = start().await;
    for (name, kind) in [("a", "ClusterIP"), ("b", "NodePort"), ("c", "LoadBalancer")] {
        let reply = create(&clusters, name, json!({"type": kind})).await;
        let copy = clusters.copy(&SERVICES, name).await.expect("it is there before the reply");
        assert!(reply.str_at("/spec/clusterIP").is_some_and(|ip| ip.starts_with("10.99.0.")), "{reply}");
        assert_eq!(reply["spec"]["clusterIP"], copy["spec"]["clusterIP"]);
        assert_eq!(node_port(&reply), node_port(&copy));
        assert_eq!(node_port(&reply).is_some(), kind != "ClusterIP");
    }
    let headless = create(&clusters, "d", json!({"clusterIP": "None"})).await;
    assert_eq!((headless.str_at("/spec/clusterIP"), headless["spec"]["clusterIPs"].clone()), (Some("None"), json!(["None"])));
    agreed(&clusters, "d").await;
    let alias = create(&clusters, "e", json!({"type": "ExternalName", "externalName": "db.example.com"})).await;
    assert!(alias["spec"]["clusterIP"].is_null());
    agreed(&clusters, "e").await;
    // A dry run takes nothing.
    clusters.tenant.create_dry_run(&SERVICES, &service("f", json!({}))).await.expect("would be taken");
    assert!(clusters.copy(&SERVICES, "f").await.is_none());
    running.stop().await;
}

/// One way worked, or the first change alone. [vcluster 2248]
#[tokio::test(flavor = "multi_thread")]
async fn types_change_both_ways() {
    let (clusters, running) = start().await;
    create(&clusters, "web", json!({})).await;
    for kind in ["NodePort", "LoadBalancer", "NodePort", "ClusterIP", "LoadBalancer", "ClusterIP"] {
        let changed = change(&clusters, "web", json!({"type": kind})).await.expect(kind);
        assert_eq!(node_port(&changed).is_some(), kind != "ClusterIP", "{changed}");
        let both = agreed(&clusters, "web").await;
        assert_eq!((both.str_at("/spec/type"), node_port(&both)), (Some(kind), node_port(&changed)));
    }
    let alias = json!({"type": "ExternalName", "externalName": "db.example.com", "clusterIP": null, "clusterIPs": null});
    change(&clusters, "web", alias).await.expect("an alias");
    let both = agreed(&clusters, "web").await;
    assert!(both["spec"]["clusterIP"].is_null(), "{both}");
    let back = change(&clusters, "web", json!({"type": "ClusterIP", "externalName": null})).await.expect("a service again");
    assert!(back.str_at("/spec/clusterIP").is_some_and(|ip| ip.starts_with("10.99.0.")), "{back}");
    assert_eq!(agreed(&clusters, "web").await["spec"]["clusterIP"], back["spec"]["clusterIP"]);
    running.stop().await;
}

/// The host chose a port for health checks that nobody told the tenant, and refused every write after that. [vcluster 240]
#[tokio::test(flavor = "multi_thread")]
async fn the_port_of_health_checks_is_the_hosts() {
    let (clusters, running) = start().await;
    let created = create(&clusters, "web", json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"})).await;
    let port = created.i64_at("/spec/healthCheckNodePort").expect("a port");
    assert!((31000..=31010).contains(&port));
    agreed(&clusters, "web").await;
    change(&clusters, "web", json!({"sessionAffinity": "ClientIP"})).await.expect("another change");
    agreed(&clusters, "web").await;
    let spread = change(&clusters, "web", json!({"externalTrafficPolicy": "Cluster"})).await.expect("changed");
    assert!(spread["spec"]["healthCheckNodePort"].is_null(), "{spread}");
    agreed(&clusters, "web").await;
    let local = change(&clusters, "web", json!({"externalTrafficPolicy": "Local"})).await.expect("changed");
    assert!(local["spec"]["healthCheckNodePort"].is_i64());
    agreed(&clusters, "web").await;
    running.stop().await;
}

/// Families were guessed anew at each start, in another order than the host's. [vcluster 1587, 911, 1898]
#[tokio::test(flavor = "multi_thread")]
async fn families_are_those_of_the_host_in_its_order() {
    let (clusters, running) = start_on(&["fd00:99::/112", "10.99.0.0/24"]).await;
    let single = create(&clusters, "single", json!({})).await;
    assert_eq!(single["spec"]["ipFamilies"], json!(["IPv6"]));
    let dual = create(&clusters, "dual", json!({"ipFamilyPolicy": "PreferDualStack"})).await;
    assert_eq!(dual["spec"]["ipFamilies"], json!(["IPv6", "IPv4"]));
    assert_eq!(dual.array_at("/spec/clusterIPs").len(), 2);
    agreed(&clusters, "dual").await;
    let more = change(&clusters, "single", json!({"ipFamilyPolicy": "RequireDualStack"})).await.expect("a second family");
    assert_eq!(more.array_at("/spec/clusterIPs").len(), 2);
    assert_eq!(more["spec"]["clusterIPs"][0], single["spec"]["clusterIP"]);
    agreed(&clusters, "single").await;
    running.stop().await;
}

/// Addresses of the whole host were a tenant's to take.
#[tokio::test(flavor = "multi_thread")]
async fn external_addresses_are_refused_with_the_reason() {
    let (clusters, running) = start().await;
    let refused = clusters.tenant.create(&SERVICES, &service("web", json!({"externalIPs": ["192.0.2.7"]}))).await.expect_err("refused");
    let api = refused.api().expect("an answer");
    assert_eq!(api.code, 403);
    assert!(api.message.contains("externalIPs") && api.message.contains("LoadBalancer or NodePort"), "{api}");
    create(&clusters, "web", json!({})).await;
    change(&clusters, "web", json!({"externalIPs": ["192.0.2.7"]})).await.expect_err("refused in a change");
    assert!(clusters.copy(&SERVICES, "web").await.expect("there")["spec"]["externalIPs"].is_null());
    running.stop().await;
}

/// What a tenant lets go is there for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_come_back_with_the_service() {
    let (clusters, running) = start().await;
    let spec = json!({"type": "NodePort", "clusterIP": "10.99.0.77", "ports": [{"port": 80, "nodePort": 31001}]});
    for _ in 0..3 {
        let reply = create(&clusters, "web", spec.clone()).await;
        assert_eq!((reply.str_at("/spec/clusterIP"), node_port(&reply)), (Some("10.99.0.77"), Some(31001)));
        clusters.tenant.delete(&SERVICES, "prod", "web", &DeleteOptions::default()).await.expect("deleted");
    }
    running.stop().await;
}

/// The copy's types in the order in which the host had them, each once in a row.
fn types_of_copies(clusters: &Clusters) -> (Arc<Mutex<Vec<String>>>, CancellationToken) {
    let (seen, cancel) = (Arc::new(Mutex::new(Vec::<String>::new())), CancellationToken::new());
    let (copies, memory) = (Informer::new(SERVICES, Scope { namespace: HOST_NAMESPACE.into(), ..Scope::default() }), seen.clone());
    copies.on_change(move |change| {
        let kind = change.object().str_at("/spec/type").unwrap_or_default().to_string();
        let mut seen = memory.lock().expect("no holder panics");
        if seen.last() != Some(&kind) {
            seen.push(kind);
        }
    });
    tokio::spawn(copies.run(clusters.host.clone(), cancel.clone()));
    (seen, cancel)
}

/// Between the host's answer and the tenant's commit the engine saw a copy that differs from the tenant's
/// object, and wrote the earlier form: the numbers of the answer were free for others until the commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_on_its_way_is_left_alone() {
    let (clusters, running) = start().await;
    let old = create(&clusters, "web", json!({})).await;
    agreed(&clusters, "web").await;
    let mut new = old.clone();
    new["spec"]["type"] = json!("NodePort");
    let allocator = running.syncer.service_allocator();
    let allocation = allocator.allocate_update(&new, &old, false).await.expect("allocated");
    let given = clusters.copy(&SERVICES, "web").await.expect("there");
    assert_eq!(allocation.spec["ports"][0]["nodePort"].as_i64(), node_port(&given));
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let copy = clusters.copy(&SERVICES, "web").await.expect("there");
        assert_eq!((copy.str_at("/spec/type"), node_port(&copy)), (Some("NodePort"), node_port(&given)));
    }
    // Given up, it goes back.
    allocator.undo(allocation).await;
    assert!(node_port(&agreed(&clusters, "web").await).is_none());
    running.stop().await;
}

/// Before the engine saw the copy that came with a Service, it made it once more, and was told that the address is taken: by that
/// very copy. The tenant read of a refusal.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_already_is_no_refusal() {
    let (clusters, running) = start_on(&["10.99.0.0/24"]).await;
    for i in 0..100 {
        create(&clusters, &format!("web-{i}"), json!({})).await;
    }
    agreed(&clusters, "web-99").await;
    let events = clusters.tenant.list(&EVENTS, "prod", &ListOptions::default()).await.expect("events");
    assert!(events.items.is_empty(), "{:?}", events.items);
    running.stop().await;
}

/// A change that met another writer of the tenant's object is made again over a copy that is ahead, and the host
/// took what the tenant's form says of the earlier state for the wish to give the second family up.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_made_again_finds_the_host_as_it_was() {
    let (clusters, running) = start_on(&["fd00:99::/112", "10.99.0.0/24"]).await;
    create(&clusters, "web", json!({})).await;
    let old = agreed(&clusters, "web").await;
    let mut new = old.clone();
    new["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
    let allocator = running.syncer.service_allocator();
    // Beaten once, and once more while the first of two writers is still on its way.
    let beaten = allocator.allocate_update(&new, &old, false).await.expect("allocated");
    allocator.undo(beaten).await;
    let first = allocator.allocate_update(&new, &old, false).await.expect("allocated again");
    let (second, ()) = tokio::join!(allocator.allocate_update(&new, &old, false), async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        allocator.undo(first).await;
    });
    let second = second.expect("allocated after the other one");
    assert_eq!(second.spec["clusterIPs"].as_array().map(Vec::len), Some(2));
    allocator.undo(second).await;
    assert_eq!(agreed(&clusters, "web").await["spec"], old["spec"]);
    running.stop().await;
}

/// The client of a change went away, and nobody said how it ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_nobody_ends_is_undone() {
    let (clusters, running) = start().await;
    let old = create(&clusters, "web", json!({})).await;
    agreed(&clusters, "web").await;
    let mut new = old.clone();
    new["spec"]["type"] = json!("NodePort");
    drop(running.syncer.service_allocator().allocate_update(&new, &old, false).await.expect("allocated"));
    assert!(node_port(&agreed(&clusters, "web").await).is_none());
    running.stop().await;
}

/// Each change went to the host twice, with the earlier form in between, and the next change met it.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_never_goes_back() {
    let (clusters, running) = start().await;
    create(&clusters, "web", json!({})).await;
    let (seen, cancel) = types_of_copies(&clusters);
    let wanted = ["ClusterIP", "NodePort", "LoadBalancer"];
    for round in 1..40 {
        let kind = wanted[round % wanted.len()];
        change(&clusters, "web", json!({"type": kind})).await.expect(kind);
        if round % 3 == 0 {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
    agreed(&clusters, "web").await;
    let last = || async { (seen.lock().expect("no holder panics").last().map(String::as_str) == Some(wanted[39 % 3])).then_some(()) };
    until("the last type", last).await;
    let seen = seen.lock().expect("no holder panics").clone();
    let steps = seen
        .windows(2)
        .filter(|w| (wanted.iter().position(|k| *k == w[0]).map(|at| (at + 1) % 3)) != wanted.iter().position(|k| *k == w[1]));
    assert_eq!(steps.count(), 0, "{seen:?}");
    cancel.cancel();
    running.stop().await;
}
