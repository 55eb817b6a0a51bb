//! What the controllers of an API server do for its clients, where more than one part has a share in it.

use crate::api::deployment;
use crate::harness::https::Https;
use crate::harness::{Client, Credential, Request, Response, Server, eventually};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD as BASE64};
use rcgen::{PublicKeyData as _, SigningKey as _};
use serde_json::{Value, json};
use sublet_pki::CertifiedKey;
use tempfile::TempDir;

fn start(folder: &TempDir) -> Server {
    Server::start(folder.path(), &["apiserver", "--store", "memory", "--dir"])
}

async fn done(client: &Client, request: Request) -> Value {
    let response: Response = client.send(&request).await;
    assert!(response.status.is_success(), "{} {}: {}", request.method, request.path, response.text());
    response.json()
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";

#[tokio::test]
async fn objects_are_migrated_to_the_version_that_is_stored() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = server.client();
    let version = |name: &str, stored: &str| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
        json!({"name": name, "served": true, "storage": name == stored, "schema": {"openAPIV3Schema": schema}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "toys.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "toys", "kind": "Toy"},
            "versions": [version("v1", "v1"), version("v2", "v1")],
        },
    });
    done(&client, Request::post(DEFINITIONS, &definition)).await;
    let path = format!("{DEFINITIONS}/toys.example.com");
    let toys = "/apis/example.com/v1/namespaces/default/toys";
    eventually("the definition is established", async || client.send(&Request::get(toys)).await.status.is_success()).await;
    for name in ["a", "b", "c"] {
        let toy = json!({"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": name}, "spec": {"size": 1}});
        eventually("a toy is made", async || client.send(&Request::post(toys, &toy)).await.status.is_success()).await;
    }
    let version_of = async |name: &str| client.send(&Request::get(format!("{toys}/{name}"))).await.str("/metadata/resourceVersion");
    let before = version_of("a").await;
    let patch = json!({"spec": {"versions": [version("v1", "v2"), version("v2", "v2")]}});
    let changed = done(&client, Request::patch("merge", path.as_str(), &patch)).await;
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    for (name, resource) in [("first", "toys"), ("second", "toys"), ("nothing", "nothings")] {
        let migration = json!({
            "apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration", "metadata": {"name": name},
            "spec": {"resource": {"group": "example.com", "resource": resource}},
        });
        done(&client, Request::post(MIGRATIONS, &migration)).await;
    }
    for name in ["first", "second"] {
        eventually("the migration is over", async || {
            let migration = client.send(&Request::get(format!("{MIGRATIONS}/{name}"))).await.json();
            condition(&migration, "Succeeded")["status"] == "True" && condition(&migration, "Running")["status"] == "False"
        })
        .await;
    }
    let definition = done(&client, Request::get(path.as_str())).await;
    assert_eq!(definition["status"]["storedVersions"], json!(["v2"]));
    assert_eq!(
        (&condition(&definition, "StorageMigrating")["status"], &condition(&definition, "StorageMigrating")["reason"]),
        (&json!("False"), &json!("MigrationSucceeded"))
    );
    // The object was written once, and the second migration found nothing to write.
    let after = version_of("a").await;
    assert_ne!(before, after);
    done(&client, Request::patch("merge", format!("{toys}/a"), &json!({"spec": {"size": 1}}))).await;
    assert_eq!(version_of("a").await, after);
    let waits = client.send(&Request::get(format!("{MIGRATIONS}/nothing"))).await.json();
    assert_eq!((&condition(&waits, "Running")["status"], condition(&waits, "Failed")), (&json!("True"), &Value::Null));
}

/// The answers of an adapter for metrics.
fn metrics(path: &str) -> Option<Value> {
    let resource = |name: &str, kind: &str| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get"]});
    let list = |version: &str, resources: Value| json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources});
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let values = |items: Value| Some(json!({"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "items": items}));
    let value = |kind: &str, name: &str, value: &str| json!({"describedObject": {"kind": kind, "namespace": "default", "name": name}, "metric": {"name": "m"}, "timestamp": now, "value": value});
    match path {
        "/apis/custom.metrics.k8s.io/v1beta2" => Some(list(
            "custom.metrics.k8s.io/v1beta2",
            json!([resource("pods/queue", "MetricValueList"), resource("services/requests", "MetricValueList")]),
        )),
        "/apis/external.metrics.k8s.io/v1beta1" => {
            Some(list("external.metrics.k8s.io/v1beta1", json!([resource("depth", "ExternalMetricValueList")])))
        }
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/services/front/requests" => values(json!([value("Service", "front", "6")])),
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/queue" => values(json!([value("Pod", "of-pods", "2500m")])),
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/depth" => {
            let series = |value: &str| json!({"metricName": "depth", "metricLabels": {}, "timestamp": now, "value": value});
            let items = json!([series("3"), series("5")]);
            Some(json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "items": items}))
        }
        _ => None,
    }
}

/// The API versions of the adapter, behind a name that is not the cluster's.
async fn serve_metrics(client: &Client, adapter: &Https) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "adapter"}, "spec": {
        "type": "ExternalName", "externalName": "localhost", "ports": [{"port": adapter.port}]}});
    done(client, Request::post("/api/v1/namespaces/default/services", &service)).await;
    for (group, version) in [("custom.metrics.k8s.io", "v1beta2"), ("external.metrics.k8s.io", "v1beta1")] {
        let name = format!("{version}.{group}");
        let api = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name},
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
                "service": {"namespace": "default", "name": "adapter", "port": adapter.port},
            },
        });
        let path = "/apis/apiregistration.k8s.io/v1/apiservices";
        done(client, Request::post(path, &api)).await;
        eventually("the metrics are served", async || {
            let api = client.send(&Request::get(format!("{path}/{name}"))).await.json();
            condition(&api, "Available")["status"] == "True"
        })
        .await;
    }
}

#[tokio::test]
async fn counts_of_replicas_follow_metrics_of_objects_pods_and_things_outside() {
    const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = server.client();
    let adapter = Https::start(|_, path| metrics(path)).await;
    serve_metrics(&client, &adapter).await;
    let average = |value: &str| json!({"type": "AverageValue", "averageValue": value});
    let front = json!({"apiVersion": "v1", "kind": "Service", "name": "front"});
    let object =
        |target: Value| json!({"type": "Object", "object": {"describedObject": front, "metric": {"name": "requests"}, "target": target}});
    let outside = |target: Value| json!({"type": "External", "external": {"metric": {"name": "depth"}, "target": target}});
    let cases = [
        ("of-object", object(average("2")), 3),
        ("of-object-value", object(json!({"type": "Value", "value": "3"})), 2),
        ("of-pods", json!({"type": "Pods", "pods": {"metric": {"name": "queue"}, "target": average("1")}}), 3),
        ("of-outside", outside(average("2")), 4),
        ("of-outside-value", outside(json!({"type": "Value", "value": "4"})), 2),
    ];
    let pods = "/api/v1/namespaces/default/pods";
    for (name, metric, _) in &cases {
        // A pod of its own under a known name; nothing runs here, so the test says that it does.
        let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": {"replicas": 1,
            "selector": {"matchLabels": {"app": name}}, "template": deployment(name, 1)["spec"]["template"]}});
        let mut pod = set["spec"]["template"].clone();
        pod["metadata"]["name"] = json!(name);
        done(&client, Request::post(pods, &pod)).await;
        let status = json!({"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        done(&client, Request::patch("merge", format!("{pods}/{name}/status"), &status)).await;
        done(&client, Request::post("/apis/apps/v1/namespaces/default/replicasets", &set)).await;
        eventually("the set has its pod", async || {
            let set = client.send(&Request::get(format!("/apis/apps/v1/namespaces/default/replicasets/{name}"))).await.json();
            set["status"]["readyReplicas"] == 1
        })
        .await;
        let autoscaler = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name}, "maxReplicas": 9, "metrics": [metric]},
        });
        done(&client, Request::post(AUTOSCALERS, &autoscaler)).await;
    }
    for (name, metric, wanted) in &cases {
        let mut seen = Value::Null;
        eventually("the count is what the metric wants", async || {
            seen = client.send(&Request::get(format!("{AUTOSCALERS}/{name}"))).await.json();
            let set = client.send(&Request::get(format!("/apis/apps/v1/namespaces/default/replicasets/{name}"))).await.json();
            set["spec"]["replicas"] == *wanted && condition(&seen, "ScalingActive")["status"] == "True"
        })
        .await;
        assert_eq!(seen["status"]["currentMetrics"][0]["type"], metric["type"], "{seen}");
    }
}

#[tokio::test]
async fn certificates_are_signed_for_whom_they_are_approved() {
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = server.client();
    let ask = async |name: &str, signer: &str, user: &str, group: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, user);
        params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {"signerName": signer, "usages": ["digital signature", "client auth"], "request": BASE64_STANDARD.encode(pem), "expirationSeconds": 3600},
        });
        (done(&client, Request::post(REQUESTS, &request)).await, key.serialize_pem())
    };
    let decide = async |mut request: Value, kind: &str| {
        request["status"] = json!({"conditions": [{"type": kind, "status": "True", "reason": "Test"}]});
        let path = format!("{REQUESTS}/{}/approval", request["metadata"]["name"].as_str().unwrap());
        done(&client, Request::put(path, &request)).await
    };
    let certificate = async |name: &str| client.send(&Request::get(format!("{REQUESTS}/{name}"))).await.str("/status/certificate");
    let (good, key_pem) = ask("good", "kubernetes.io/kube-apiserver-client", "carol", "ops").await;
    let (bad, _) = ask("bad", "kubernetes.io/kube-apiserver-client", "carol", "dev").await;
    // A node asks for its own: nobody needs to approve that.
    ask("node", "kubernetes.io/kube-apiserver-client-kubelet", "system:node:n1", "system:nodes").await;
    decide(bad, "Denied").await;
    decide(good, "Approved").await;
    for name in ["good", "node"] {
        eventually("the certificate is signed", async || !certificate(name).await.is_empty()).await;
    }
    assert_eq!(certificate("bad").await, "");
    let certificate_pem = String::from_utf8(BASE64_STANDARD.decode(certificate("good").await).unwrap()).unwrap();
    let whoami = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let carol = Credential::Certificate(CertifiedKey { certificate_pem, key_pem });
    let answer = done(&client, Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &whoami).with(carol)).await;
    let user = &answer["status"]["userInfo"];
    assert_eq!((&user["username"], &user["groups"]), (&json!("carol"), &json!(["ops", "system:authenticated"])));
}

#[tokio::test]
async fn tokens_of_an_openid_issuer_are_believed_by_flags() {
    let rsa = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    let jwk = rsa_jwk(&rsa);
    let issuer = Https::start(move |port, path| {
        let url = format!("https://127.0.0.1:{port}");
        match path {
            "/.well-known/openid-configuration" => Some(json!({"issuer": url, "jwks_uri": format!("{url}/keys")})),
            "/keys" => Some(json!({"keys": [jwk]})),
            _ => None,
        }
    })
    .await;
    let folder = TempDir::new().unwrap();
    let authority = folder.path().join("issuer.crt");
    std::fs::write(&authority, &issuer.authority_pem).unwrap();
    let url = format!("https://127.0.0.1:{}", issuer.port);
    let state = folder.path().join("state");
    let server = Server::start(
        &state,
        &[
            "apiserver",
            "--store",
            "memory",
            "--controllers",
            "",
            "--oidc-issuer-url",
            &url,
            "--oidc-client-id",
            "sublet",
            "--oidc-ca-file",
            &authority.display().to_string(),
            "--oidc-username-claim",
            "email",
            "--oidc-groups-claim",
            "groups",
            "--oidc-groups-prefix",
            "oidc:",
            "--oidc-required-claim",
            "hd=example.com",
            "--dir",
        ],
    );
    let client = server.client();
    let sign = |more: Value| {
        let mut claims = json!({"iss": url, "aud": "sublet", "sub": "1", "email": "eve@example.com", "email_verified": true,
            "groups": ["dev"], "hd": "example.com", "exp": 4_000_000_000_u64});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        token(&rsa, &claims)
    };
    let whoami = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let ask =
        async |token: &str| client.send(&Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &whoami).token(token)).await;
    let user = ask(&sign(json!({}))).await;
    assert_eq!(
        user.json()["status"]["userInfo"],
        json!({"username": "eve@example.com", "groups": ["oidc:dev", "system:authenticated"]}),
        "{}",
        user.text()
    );
    for wrong in
        [json!({"aud": "other"}), json!({"exp": 1}), json!({"hd": "other"}), json!({"email_verified": false}), json!({"iss": "https://x"})]
    {
        assert_eq!(ask(&sign(wrong.clone())).await.status, 401, "{wrong}");
    }
}

/// A token that is signed by RS256.
fn token(key: &rcgen::KeyPair, claims: &Value) -> String {
    let part = |value: &Value| BASE64.encode(value.to_string());
    let message = format!("{}.{}", part(&json!({"alg": "RS256", "typ": "JWT", "kid": "one"})), part(claims));
    let signature = key.sign(message.as_bytes()).unwrap();
    format!("{message}.{}", BASE64.encode(signature))
}

/// The public half of a key of 2048 bits, as issuers publish it.
fn rsa_jwk(key: &rcgen::KeyPair) -> Value {
    // SEQUENCE { INTEGER n, INTEGER e }: two headers and a zero stand before the 256 bytes of n.
    const MODULUS: std::ops::Range<usize> = 9..9 + 256;
    json!({"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", "n": BASE64.encode(&key.der_bytes()[MODULUS]), "e": "AQAB"})
}
