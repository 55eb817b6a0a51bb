//! One object of most kinds: what defaults and the server make of it.

use super::{deployment, pod};
use crate::harness::Transcript;
use serde_json::{Value, json};

fn named(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    object
}

fn template(restart: &str) -> Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"restartPolicy": restart, "containers": [{"name": "main", "image": "busybox"}]}})
}

/// Addresses and ports that the server draws.
fn start(name: &'static str) -> Transcript {
    let mut t = Transcript::start(name);
    t.mask.pattern(r"\b10\.96\.\d+\.\d+\b", "<address>");
    t
}

#[tokio::test]
async fn core_kinds() {
    let mut t = start("core_kinds");
    t.namespace_for_pods("core-kinds").await;
    let core = "/api/v1/namespaces/core-kinds";
    let mut rich = pod("rich");
    rich["spec"]["hostNetwork"] = json!(true);
    rich["spec"]["containers"] = json!([{
        "name": "main", "image": "registry.example.com/app:1", "ports": [{"containerPort": 80, "name": "http"}],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}, {"name": "EMPTY"}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "args": [],
        "livenessProbe": {"httpGet": {"port": "http"}}, "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        "volumeMounts": [{"name": "all", "mountPath": "/all"}],
    }]);
    rich["spec"]["volumes"] = json!([
        {"name": "all", "projected": {"sources": [{"configMap": {"name": "c"}}, {"serviceAccountToken": {"path": "token"}}]}},
        {"name": "scratch", "emptyDir": {}}, {"name": "secret", "secret": {"secretName": "s"}}, {"name": "host", "hostPath": {"path": "/x"}},
    ]);
    rich["spec"]["nodeSelector"] = json!({});
    rich["spec"]["affinity"] =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": {}}]}});
    rich["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    t.post(&format!("{core}/pods"), rich).await;
    let mut tokens = pod("tokens");
    tokens["spec"].as_object_mut().unwrap().remove("automountServiceAccountToken");
    t.mask.pattern("kube-api-access-[a-z0-9]{5}", "kube-api-access-<random>");
    t.post(&format!("{core}/pods"), tokens).await;
    t.post(&format!("{core}/secrets"), named("v1", "Secret", "s", json!({"stringData": {"a": "b"}, "data": {"c": "ZA=="}}))).await;
    t.post(&format!("{core}/serviceaccounts"), named("v1", "ServiceAccount", "robot", json!({"imagePullSecrets": [], "secrets": []})))
        .await;
    let claim =
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}, "storageClassName": "x"}});
    t.post(&format!("{core}/persistentvolumeclaims"), named("v1", "PersistentVolumeClaim", "c", claim)).await;
    let volume = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}});
    t.post("/api/v1/persistentvolumes", named("v1", "PersistentVolume", "core-kinds", volume)).await;
    t.post(
        "/api/v1/nodes",
        named("v1", "Node", "core-kinds", json!({"spec": {"podCIDR": "10.1.0.0/24"}, "status": {"capacity": {"cpu": 2}}})),
    )
    .await;
    let endpoints = json!({"subsets": [{"addresses": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]});
    t.post(&format!("{core}/endpoints"), named("v1", "Endpoints", "e", endpoints)).await;
    let event = json!({"involvedObject": {"kind": "Pod", "name": "p", "namespace": "core-kinds"}, "reason": "Tested", "message": "m", "type": "Normal"});
    t.post(&format!("{core}/events"), named("v1", "Event", "e.1", event)).await;
    let limits = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "defaultRequest": {"memory": "64Mi"}}]}});
    t.post(&format!("{core}/limitranges"), named("v1", "LimitRange", "l", limits)).await;
    t.post(
        &format!("{core}/resourcequotas"),
        named("v1", "ResourceQuota", "q", json!({"spec": {"hard": {"pods": "100", "requests.cpu": "0.5"}}})),
    )
    .await;
    let controller = json!({"spec": {"replicas": 2, "selector": {"app": "x"}, "template": template("Always")}});
    t.post(&format!("{core}/replicationcontrollers"), named("v1", "ReplicationController", "rc", controller)).await;
    t.post(&format!("{core}/podtemplates"), named("v1", "PodTemplate", "t", json!({"template": template("Always")}))).await;
    t.finish();
}

#[tokio::test]
async fn services() {
    let mut t = start("services");
    t.mask.pattern(r"^(3[01]\d{3}|32[0-7]\d\d)$", "<port>");
    t.namespace("services").await;
    let services = "/api/v1/namespaces/services/services";
    let service = |name: &str, spec: Value| named("v1", "Service", name, json!({"spec": spec}));
    t.post(services, service("plain", json!({"selector": {"app": "x"}, "ports": [{"port": 80}]}))).await;
    t.post(services, service("headless", json!({"clusterIP": "None", "selector": {}, "ports": [{"port": 80, "targetPort": "http"}]})))
        .await;
    t.post(services, service("external", json!({"type": "ExternalName", "externalName": "example.com"}))).await;
    t.post(services, service("fixed", json!({"clusterIP": "10.96.7.7", "type": "NodePort", "ports": [{"port": 80, "nodePort": 32111}]})))
        .await;
    t.post(services, service("same", json!({"clusterIP": "10.96.7.7", "ports": [{"port": 80}]}))).await;
    t.post(services, service("taken", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 32111}]}))).await;
    t.post(services, service("outside", json!({"clusterIP": "10.1.2.3", "ports": [{"port": 80}]}))).await;
    t.post(services, service("portless", json!({}))).await;
    t.post(
        services,
        service(
            "balanced",
            json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 443, "appProtocol": "https"}]}),
        ),
    )
    .await;
    t.finish();
}

#[tokio::test]
async fn workload_kinds() {
    let mut t = start("workload_kinds");
    t.namespace("workloads").await;
    let apps = "/apis/apps/v1/namespaces/workloads";
    let selector = json!({"matchLabels": {"app": "x"}});
    t.post(&format!("{apps}/deployments"), deployment("d", 1)).await;
    t.post(
        &format!("{apps}/replicasets"),
        named("apps/v1", "ReplicaSet", "rs", json!({"spec": {"selector": selector, "template": template("Always")}})),
    )
    .await;
    let set = json!({"spec": {"serviceName": "s", "selector": selector, "template": template("Always"),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}});
    t.post(&format!("{apps}/statefulsets"), named("apps/v1", "StatefulSet", "ss", set)).await;
    t.post(
        &format!("{apps}/daemonsets"),
        named("apps/v1", "DaemonSet", "ds", json!({"spec": {"selector": selector, "template": template("Always")}})),
    )
    .await;
    t.post(
        &format!("{apps}/controllerrevisions"),
        named("apps/v1", "ControllerRevision", "cr", json!({"revision": 1, "data": {"empty": {}}})),
    )
    .await;
    let batch = "/apis/batch/v1/namespaces/workloads";
    t.post(&format!("{batch}/jobs"), named("batch/v1", "Job", "j", json!({"spec": {"template": template("Never")}}))).await;
    let cron = json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template("OnFailure")}}}});
    t.post(&format!("{batch}/cronjobs"), named("batch/v1", "CronJob", "cj", cron)).await;
    let budget = json!({"spec": {"minAvailable": "50%", "selector": {}}});
    t.post("/apis/policy/v1/namespaces/workloads/poddisruptionbudgets", named("policy/v1", "PodDisruptionBudget", "b", budget)).await;
    let scaler = json!({"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3}});
    t.post(
        "/apis/autoscaling/v2/namespaces/workloads/horizontalpodautoscalers",
        named("autoscaling/v2", "HorizontalPodAutoscaler", "h", scaler),
    )
    .await;
    t.get("/apis/autoscaling/v1/namespaces/workloads/horizontalpodautoscalers/h").await;
    t.finish();
}

#[tokio::test]
async fn other_kinds() {
    let mut t = start("other_kinds");
    t.namespace("others").await;
    let networking = "/apis/networking.k8s.io/v1";
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let ingress =
        json!({"spec": {"rules": [{"host": "example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]}});
    t.post(&format!("{networking}/namespaces/others/ingresses"), named("networking.k8s.io/v1", "Ingress", "i", ingress)).await;
    t.post(
        &format!("{networking}/ingressclasses"),
        named("networking.k8s.io/v1", "IngressClass", "others", json!({"spec": {"controller": "example.com/c"}})),
    )
    .await;
    let policy = json!({"spec": {"podSelector": {}, "ingress": [], "egress": [{}]}});
    t.post(&format!("{networking}/namespaces/others/networkpolicies"), named("networking.k8s.io/v1", "NetworkPolicy", "n", policy)).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rule = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    t.post(&format!("{rbac}/namespaces/others/roles"), named("rbac.authorization.k8s.io/v1", "Role", "r", json!({"rules": rule}))).await;
    t.post(&format!("{rbac}/namespaces/others/roles"), named("rbac.authorization.k8s.io/v1", "Role", "empty", json!({}))).await;
    let binding = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "others"}]});
    t.post(&format!("{rbac}/namespaces/others/rolebindings"), named("rbac.authorization.k8s.io/v1", "RoleBinding", "rb", binding)).await;
    t.post("/apis/coordination.k8s.io/v1/namespaces/others/leases", named("coordination.k8s.io/v1", "Lease", "l", json!({"spec": {}})))
        .await;
    let slice = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]});
    t.post("/apis/discovery.k8s.io/v1/namespaces/others/endpointslices", named("discovery.k8s.io/v1", "EndpointSlice", "es", slice)).await;
    t.post(
        "/apis/storage.k8s.io/v1/storageclasses",
        named("storage.k8s.io/v1", "StorageClass", "others", json!({"provisioner": "example.com/p"})),
    )
    .await;
    t.post("/apis/storage.k8s.io/v1/csidrivers", named("storage.k8s.io/v1", "CSIDriver", "others.example.com", json!({"spec": {}}))).await;
    t.post("/apis/scheduling.k8s.io/v1/priorityclasses", named("scheduling.k8s.io/v1", "PriorityClass", "others", json!({"value": 7})))
        .await;
    t.post("/apis/node.k8s.io/v1/runtimeclasses", named("node.k8s.io/v1", "RuntimeClass", "others", json!({"handler": "x"}))).await;
    let hook = json!({"webhooks": [{"name": "w.example.com", "clientConfig": {"url": "https://example.com"}, "sideEffects": "None", "failurePolicy": "Ignore",
        "admissionReviewVersions": ["v1"], "rules": [{"apiGroups": ["never.example.com"], "apiVersions": ["v1"], "resources": ["x"], "operations": ["CREATE"]}]}]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    t.post(hooks, named("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "others", hook)).await;
    let review = json!({"metadata": {"name": "e", "namespace": "others"}, "regarding": {"kind": "Pod", "name": "p", "namespace": "others"}, "reason": "Tested",
        "action": "Test", "reportingController": "example.com/c", "reportingInstance": "c-1", "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal"});
    t.post("/apis/events.k8s.io/v1/namespaces/others/events", named("events.k8s.io/v1", "Event", "e", review)).await;
    t.get("/api/v1/namespaces/others/events/e").await;
    t.finish();
}
