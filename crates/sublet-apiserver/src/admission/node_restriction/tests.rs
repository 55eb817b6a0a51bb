use super::*;
use crate::admission::UserInfo;
use crate::admission::testing::{Request, store};
use serde_json::json;

fn of_node(request: Request, node: &str) -> Request {
    Request { user: UserInfo { name: format!("system:node:{node}"), groups: vec![NODES.into()], ..UserInfo::default() }, ..request }
}

async fn told(request: Request) -> Result<(), String> {
    let pod = |name: &str, node: &str| {
        json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid")}, "spec": {"nodeName": node, "volumes": [
            {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}, {"name": "c", "csi": {"driver": "d"}},
        ]}})
    };
    let store = store(&[
        ("nodes", json!({"metadata": {"name": "n1", "uid": "n1-uid"}})),
        ("pods", pod("mine", "n1")),
        ("pods", pod("other", "n2")),
        ("csidrivers.storage.k8s.io", json!({"metadata": {"name": "d"}, "spec": {"tokenRequests": [{"audience": "csi"}]}})),
    ]);
    request
        .mutate(&NodeRestriction, &store)
        .await
        .map(drop)
        .map_err(|e| e.message.split(" is forbidden: ").last().unwrap_or_default().to_string())
}

async fn by_node(request: Request) -> Result<(), String> {
    told(of_node(request, "n1")).await
}

fn mirror(change: impl FnOnce(&mut Value)) -> Request {
    let mut pod = json!({"metadata": {"name": "m", "namespace": "ns", "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1-uid", "controller": true}]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]}});
    change(&mut pod);
    Request::create("pods", "ns", pod)
}

#[tokio::test]
async fn only_nodes_are_restricted() {
    let mut request = Request::delete("pods", "ns", "other");
    request.user = UserInfo { name: "bob".into(), ..UserInfo::default() };
    assert_eq!(told(request).await, Ok(()));
    assert_eq!(
        told(of_node(Request::delete("pods", "ns", "mine"), "")).await,
        Err("could not determine node from user \"system:node:\"".into())
    );
}

#[tokio::test]
async fn nodes_show_what_they_run_and_end_what_runs_on_them() {
    assert_eq!(by_node(Request::delete("pods", "ns", "mine")).await, Ok(()));
    assert_eq!(
        by_node(Request::delete("pods", "ns", "other")).await,
        Err("node \"n1\" can only delete pods with spec.nodeName set to itself".into())
    );
    assert_eq!(by_node(Request::delete("pods", "ns", "absent")).await, Err("pods \"absent\" not found".into()));
    assert_eq!(by_node(mirror(|_| {})).await, Ok(()));
    let owner = "node \"n1\" can only create pods with an owner reference set to itself";
    for (request, expected) in [
        (
            mirror(|p| p["metadata"]["annotations"] = json!({})),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods",
        ),
        (mirror(|p| p["spec"]["nodeName"] = json!("n2")), "node \"n1\" can only create pods with spec.nodeName set to itself"),
        (mirror(|p| p["metadata"]["ownerReferences"] = json!([])), owner),
        (mirror(|p| p["metadata"]["ownerReferences"][0]["name"] = json!("n2")), owner),
        (mirror(|p| p["metadata"]["ownerReferences"][0]["uid"] = json!("u")), "node n1 UID mismatch: expected u got n1-uid"),
        (mirror(|p| p["spec"]["serviceAccountName"] = json!("default")), "node \"n1\" can not create pods that reference serviceaccounts"),
        (
            mirror(|p| p["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "c"}}])),
            "node \"n1\" can not create pods that reference configmaps",
        ),
        (
            mirror(|p| p["spec"]["volumes"] = json!([{"secret": {}}])),
            "node \"n1\" can not create pods that reference secrets (via secret volumes)",
        ),
    ] {
        assert_eq!(by_node(request).await, Err(expected.into()));
    }
}

#[tokio::test]
async fn of_pods_nodes_write_the_status_of_their_own() {
    let pod = |node: &str, labels: Value| json!({"metadata": {"name": "p", "namespace": "ns", "labels": labels}, "spec": {"nodeName": node}, "status": {}});
    let update = |node: &str, labels: Value| Request::update("pods", "ns", pod(node, labels), pod(node, json!({"a": "b"}))).part("status");
    assert_eq!(by_node(update("n1", json!({"a": "b"}))).await, Ok(()));
    assert_eq!(by_node(update("n1", json!({"a": "c"}))).await, Err("node \"n1\" cannot update labels through pod status".into()));
    assert_eq!(
        by_node(update("n2", json!({"a": "b"}))).await,
        Err("node \"n1\" can only update pod status for pods with spec.nodeName set to itself".into())
    );
    let exec = Request::update("pods", "ns", pod("n1", json!({})), pod("n1", json!({}))).part("ephemeralcontainers");
    assert_eq!(
        by_node(exec).await,
        Err("unexpected pod subresource \"ephemeralcontainers\", only 'status' and 'eviction' are allowed".into())
    );
}

#[tokio::test]
async fn a_node_does_not_steer_pods_to_itself() {
    let node = |labels: Value, taints: Value| json!({"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": taints}});
    let update = |labels: Value, taints: Value| Request::update("nodes", "", node(labels, taints), node(json!({}), json!([])));
    assert_eq!(by_node(update(json!({"kubernetes.io/os": "linux", "own": "x", "a.node.kubernetes.io/b": "c"}), json!([]))).await, Ok(()));
    assert_eq!(
        by_node(update(json!({"node-restriction.kubernetes.io/x": "y", "node-role.kubernetes.io/control-plane": ""}), json!([]))).await,
        Err("is not allowed to modify labels: node-restriction.kubernetes.io/x, node-role.kubernetes.io/control-plane".into())
    );
    assert_eq!(
        by_node(update(json!({}), json!([{"key": "a", "effect": "NoSchedule"}]))).await,
        Err("node \"n1\" is not allowed to modify taints".into())
    );
    let other = json!({"metadata": {"name": "n2"}});
    assert_eq!(by_node(Request::create("nodes", "", other)).await, Err("node \"n1\" is not allowed to modify node \"n2\"".into()));
}

#[tokio::test]
async fn tokens_are_for_pods_of_the_node_and_what_they_mount() {
    let request = |pod: &str, uid: &str, audiences: Value| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid});
        Request::create(
            "serviceaccounts",
            "ns",
            json!({"metadata": {"name": "sa"}, "spec": {"audiences": audiences, "boundObjectRef": bound}}),
        )
        .part("token")
    };
    assert_eq!(by_node(request("mine", "mine-uid", json!(["vault"]))).await, Ok(()));
    assert_eq!(by_node(request("mine", "mine-uid", json!(["csi"]))).await, Ok(()));
    for (request, expected) in [
        (request("mine", "mine-uid", json!(["else"])), "system:node:n1 is not authorized to request tokens for audience \"else\""),
        (request("mine", "mine-uid", json!(["vault", "csi"])), "node may only request 0 or 1 audiences"),
        (request("mine", "", json!(["vault"])), "node requested token with a pod binding without a uid"),
        (request("other", "other-uid", json!(["vault"])), "node requested token bound to a pod scheduled on a different node"),
        (request("", "u", json!([])), "node requested token not bound to a pod"),
    ] {
        assert_eq!(by_node(request).await, Err(expected.into()));
    }
}

#[tokio::test]
async fn names_of_leases_and_csi_nodes_are_the_nodes_own() {
    let lease = |namespace: &str, name: &str| Request::create(LEASES, namespace, json!({"metadata": {"name": name}}));
    assert_eq!(by_node(lease(NODE_LEASES, "n1")).await, Ok(()));
    assert_eq!(by_node(lease(NODE_LEASES, "n2")).await, Err("can only access node lease with the same name as the requesting node".into()));
    assert_eq!(by_node(lease("ns", "n1")).await, Err("can only access leases in the \"kube-node-lease\" system namespace".into()));
    assert_eq!(
        by_node(Request::delete(CSI_NODES, "", "n2")).await,
        Err("can only access CSINode with the same name as the requesting node".into())
    );
}
