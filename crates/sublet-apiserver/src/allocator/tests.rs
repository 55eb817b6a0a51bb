use super::*;

fn allocator(cidrs: &[&str]) -> ServiceAllocator {
    ServiceAllocator::new(&AllocatorConfig {
        service_cidrs: cidrs.iter().map(|c| c.parse().unwrap()).collect(),
        node_ports: (30000, 32767),
        seed: 42,
    })
    .unwrap()
}

fn single() -> ServiceAllocator {
    allocator(&["10.96.0.0/16"])
}

fn dual() -> ServiceAllocator {
    allocator(&["10.96.0.0/16", "2000::/108"])
}

fn service(spec: Value) -> Value {
    json!({"metadata": {"name": "s"}, "spec": spec})
}

fn create(allocator: &ServiceAllocator, spec: Value) -> Result<Value, String> {
    let mut service = service(spec);
    allocator.allocate(&mut service, None).map_err(|e| e.message)?.commit();
    Ok(service)
}

fn update(allocator: &ServiceAllocator, old: &Value, spec: Value) -> Result<Value, String> {
    let mut new = service(spec);
    allocator.allocate(&mut new, Some(old)).map_err(|e| e.message)?.commit();
    Ok(new)
}

fn ports(service: &Value) -> Vec<u64> {
    node_ports(service)
}

#[test]
fn addresses_are_given_by_value_or_picked() {
    let allocator = single();
    let named = create(&allocator, json!({"clusterIP": "10.96.0.10"})).unwrap();
    assert_eq!(
        named["spec"],
        json!({"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"})
    );
    let picked = create(&allocator, json!({})).unwrap();
    assert_eq!(picked["spec"]["clusterIPs"], json!([picked["spec"]["clusterIP"]]));
    assert!(allocator.is_taken(picked["spec"]["clusterIP"].as_str().unwrap().parse().unwrap()));
    allocator.release(&named);
    create(&allocator, json!({"clusterIP": "10.96.0.10"})).unwrap();
}

/// Messages as a 1.37 API server with one IPv4 range gives them.
#[test]
fn refusals_have_upstreams_words() {
    let allocator = single();
    create(&allocator, json!({"clusterIP": "10.96.0.10"})).unwrap();
    create(&allocator, json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]})).unwrap();
    let check = |spec: Value, expected: &str| {
        assert_eq!(create(&allocator, spec).unwrap_err().trim_start_matches("Service \"s\" is invalid: "), expected);
    };
    check(
        json!({"clusterIP": "10.96.0.10"}),
        "spec.clusterIPs: Invalid value: [\"10.96.0.10\"]: failed to allocate IP 10.96.0.10: provided IP is already allocated",
    );
    let outside = |ip: &str| {
        format!(
            "spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: the provided network does not match the current range"
        )
    };
    for ip in ["1.2.3.4", "10.96.0.0", "10.96.255.255"] {
        check(json!({"clusterIP": ip}), &outside(ip));
    }
    check(
        json!({"clusterIP": "2001:db8::1"}),
        "spec.clusterIPs[0]: Invalid value: [\"2001:db8::1\"]: IPv6 is not configured on this cluster",
    );
    check(
        json!({"clusterIP": "x"}),
        "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    );
    let port = |n: u64| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": n}]});
    check(port(30080), "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated");
    check(
        port(80),
        "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
    );
    check(
        json!({"ipFamilyPolicy": "RequireDualStack"}),
        "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
    );
    check(json!({"ipFamilies": ["IPv6"]}), "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster");
    check(
        json!({"ipFamilies": ["IPv4", "IPv6"]}),
        "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
    );
    check(
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30080}),
        "Internal error occurred: failed to allocate requested HealthCheck NodePort 30080: provided port is already allocated",
    );
    check(json!({"ipFamilies": ["IPv4", "IPv4"]}), "spec.ipFamilies[1]: Duplicate value: \"IPv4\"");
    check(
        json!({"clusterIPs": ["10.96.0.9"]}),
        "spec.clusterIPs: Invalid value: [\"10.96.0.9\"]: must be empty when `clusterIP` is not specified",
    );
}

#[test]
fn a_reservation_that_is_dropped_takes_nothing() {
    let allocator = single();
    let mut wanted = service(json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "nodePort": 30001}]}));
    drop(allocator.allocate(&mut wanted, None).unwrap());
    let spec = wanted["spec"].clone();
    let stored = create(&allocator, spec).unwrap();
    // A failed update keeps what it would have given up.
    let mut external = service(json!({"type": "ExternalName", "externalName": "x.y"}));
    drop(allocator.allocate(&mut external, Some(&stored)).unwrap());
    assert!(create(&allocator, json!({"clusterIP": "10.96.0.9"})).is_err());
    allocator.allocate(&mut external, Some(&stored)).unwrap().commit();
    create(&allocator, json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "nodePort": 30001}]})).unwrap();
}

#[test]
fn a_failure_halfway_gives_back_the_first_half() {
    let allocator = single();
    create(&allocator, json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]})).unwrap();
    let spec =
        json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 1, "nodePort": 30001}, {"port": 2, "nodePort": 30080}]});
    assert!(create(&allocator, spec).is_err());
    create(&allocator, json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 1, "nodePort": 30001}]})).unwrap();
}

#[test]
fn ports_of_one_number_share_a_node_port() {
    let allocator = single();
    let made = create(
        &allocator,
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [
            {"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"}, {"name": "c", "port": 81}]}),
    )
    .unwrap();
    let numbers = ports(&made);
    assert!(numbers[0] == numbers[1] && numbers[0] != numbers[2]);
    assert!(health_check_port(&made) >= 30000 && !numbers.contains(&health_check_port(&made)));
    let asked =
        create(&allocator, json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 80, "protocol": "UDP", "nodePort": 30300}]}))
            .unwrap();
    assert_eq!(ports(&asked), [30300, 30300]);
    let none =
        create(&allocator, json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]})).unwrap();
    assert!(ports(&none).is_empty());
}

#[test]
fn headless_and_external_services_have_no_address() {
    let allocator = single();
    let spec = |made: Value| made["spec"].clone();
    let selected = create(&allocator, json!({"clusterIP": "None", "selector": {"a": "b"}})).unwrap();
    assert_eq!(
        spec(selected),
        json!({"clusterIP": "None", "clusterIPs": ["None"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "selector": {"a": "b"}})
    );
    let free = create(&allocator, json!({"clusterIP": "None"})).unwrap();
    assert_eq!(
        spec(free),
        json!({"clusterIP": "None", "clusterIPs": ["None"], "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"})
    );
    let external = create(&allocator, json!({"type": "ExternalName", "externalName": "a.b"})).unwrap();
    assert_eq!(spec(external), json!({"type": "ExternalName", "externalName": "a.b"}));
}

#[test]
fn updates_keep_what_they_leave_out() {
    let allocator = single();
    let spec = json!({"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]});
    let old = create(&allocator, spec.clone()).unwrap();
    let new = update(&allocator, &old, spec).unwrap();
    assert_eq!(new["spec"], old["spec"]);
    let fewer = update(&allocator, &new, json!({"type": "NodePort", "ports": [{"name": "b", "port": 81}]})).unwrap();
    assert_eq!(ports(&fewer), ports(&old)[1..]);
    // The number that was given up is free again.
    create(&allocator, json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": ports(&old)[0]}]})).unwrap();
}

#[test]
fn changes_of_type_take_and_give_back() {
    let allocator = single();
    let node_port =
        create(&allocator, json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "nodePort": 30001}]})).unwrap();
    let plain = update(&allocator, &node_port, json!({"type": "ClusterIP", "ports": [{"port": 80}]})).unwrap();
    assert_eq!(plain["spec"]["clusterIP"], "10.96.0.9");
    let other = create(&allocator, json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]})).unwrap();
    assert_eq!(ports(&other), [30001]);
    let external = update(&allocator, &plain, json!({"type": "ExternalName", "externalName": "x"})).unwrap();
    assert!(!allocator.is_taken("10.96.0.9".parse().unwrap()));
    let back =
        update(&allocator, &external, json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]})).unwrap();
    assert!(back["spec"]["clusterIP"].is_string() && ports(&back).len() == 1 && health_check_port(&back) > 0);
    let local = health_check_port(&back);
    let cluster = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Cluster", "ports": [{"port": 80}]});
    update(&allocator, &back, cluster).unwrap();
    create(&allocator, json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": local}]})).unwrap();
}

#[test]
fn two_families_are_taken_and_given_up() {
    let allocator = dual();
    let check = |spec: Value, families: Value, ips: usize| {
        let made = create(&allocator, spec.clone()).unwrap();
        assert_eq!((&made["spec"]["ipFamilies"], cluster_ips(&made).len()), (&families, ips), "{spec}");
    };
    check(json!({}), json!(["IPv4"]), 1);
    check(json!({"ipFamilyPolicy": "PreferDualStack"}), json!(["IPv4", "IPv6"]), 2);
    check(json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}), json!(["IPv6", "IPv4"]), 2);
    check(json!({"ipFamilies": ["IPv6"]}), json!(["IPv6"]), 1);
    check(json!({"clusterIP": "2000::9"}), json!(["IPv6"]), 1);
    check(
        json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "2000::7"]}),
        json!(["IPv4", "IPv6"]),
        2,
    );
    let one = create(&allocator, json!({"clusterIP": "10.96.0.8"})).unwrap();
    let two =
        update(&allocator, &one, json!({"clusterIP": "10.96.0.8", "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4"]})).unwrap();
    let ips = cluster_ips(&two);
    assert_eq!((ips.len(), ips[0].as_str()), (2, "10.96.0.8"));
    let second: IpAddr = ips[1].parse().unwrap();
    let mut spec = two["spec"].clone();
    spec["ipFamilyPolicy"] = json!("SingleStack");
    let back = update(&allocator, &two, spec).unwrap();
    assert_eq!((cluster_ips(&back), ip_families(&back)), (vec!["10.96.0.8".to_string()], vec!["IPv4".to_string()]));
    assert!(!allocator.is_taken(second));
    let silent = json!({"clusterIP": "10.96.0.8", "clusterIPs": ["10.96.0.8"], "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"});
    assert_eq!(
        update(&allocator, &two, silent).unwrap_err(),
        "Service \"s\" is invalid: spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the secondary cluster IP"
    );
}

#[test]
fn rebuild_takes_what_stored_services_have() {
    let allocator = single();
    let stored = [
        service(
            json!({"type": "NodePort", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": [{"port": 1, "nodePort": 30001}]}),
        ),
        service(json!({"clusterIP": "None", "clusterIPs": ["None"]})),
    ];
    create(&allocator, json!({"clusterIP": "10.96.0.2"})).unwrap();
    allocator.rebuild(&stored);
    assert!(create(&allocator, json!({"clusterIP": "10.96.0.1"})).is_err());
    assert!(create(&allocator, json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 30001}]})).is_err());
    create(&allocator, json!({"clusterIP": "10.96.0.2"})).unwrap();
}

#[test]
fn a_full_range_says_so_and_more_ranges_help() {
    let allocator = allocator(&["10.0.0.0/30"]);
    create(&allocator, json!({})).unwrap();
    create(&allocator, json!({})).unwrap();
    assert_eq!(
        create(&allocator, json!({})).unwrap_err(),
        "Internal error occurred: failed to allocate a serviceIP for Service \"s\": range is full"
    );
    allocator.add_range("10.1.0.0/24".parse().unwrap());
    assert!(create(&allocator, json!({})).unwrap()["spec"]["clusterIP"].as_str().unwrap().starts_with("10.1.0."));
    allocator.remove_range("10.1.0.0/24".parse().unwrap());
    assert!(create(&allocator, json!({})).is_err());
}
