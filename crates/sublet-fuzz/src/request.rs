//! Whole requests to a whole server. The first line of an input is method and path, then come headers, an empty line
//! and the body. With a header `authorization` the request has to prove who it is from; without it is the admin's.

use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use std::cell::RefCell;
use std::sync::Arc;
use sublet_apiserver::admission::{self, UserInfo};
use sublet_apiserver::auth::jwt::AuthenticationConfiguration;
use sublet_apiserver::server::{Config, InProcess, Server};
use tokio::runtime::Runtime;

/// Requests until a new server is made, so that what piles up is not what is measured.
const REQUESTS_MAX: usize = 3000;

pub const SEEDS: &[&[u8]] = &[
    b"GET /api/v1/namespaces/default/configmaps?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJucy9hXHUwMDAwIn0\naccept: application/json;as=Table;v=v1;g=meta.k8s.io\n\n",
    b"GET /api/v1/pods?labelSelector=a%3Db%2Cc+in+%28d%29&fieldSelector=metadata.name%3Da&resourceVersion=5&resourceVersionMatch=Exact\naccept: application/vnd.kubernetes.protobuf, */*;q=0.1\naccept-encoding: gzip\n\n",
    b"GET /api/v1/namespaces?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1\naccept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io\n\n",
    b"POST /api/v1/namespaces/default/configmaps?fieldValidation=Strict&fieldManager=f&dryRun=All\ncontent-type: application/json\n\n{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"generateName\":\"a-\",\"labels\":{\"a\":\"b\"}},\"data\":{\"k\":\"v\"}}",
    b"POST /api/v1/namespaces/default/pods\ncontent-type: application/yaml\n\napiVersion: v1\nkind: Pod\nmetadata: {name: a, finalizers: [x/y]}\nspec:\n  containers:\n  - {name: main, image: i, resources: {limits: {cpu: 1500m}}}\n",
    b"PATCH /api/v1/namespaces/default/configmaps/kube-root-ca.crt?fieldManager=f\ncontent-type: application/strategic-merge-patch+json\n\n{\"metadata\":{\"labels\":{\"a\":null,\"$patch\":\"replace\"}},\"data\":{\"k\":\"v\"}}",
    b"PATCH /apis/apps/v1/namespaces/default/deployments/d?fieldManager=f&force=true\ncontent-type: application/apply-patch+yaml\n\n{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"d\"},\"spec\":{\"replicas\":2,\"selector\":{\"matchLabels\":{\"a\":\"b\"}},\"template\":{\"metadata\":{\"labels\":{\"a\":\"b\"}},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}}}",
    b"PATCH /apis/apps/v1/namespaces/default/deployments/d/scale\ncontent-type: application/merge-patch+json\n\n{\"spec\":{\"replicas\":3}}",
    b"PATCH /api/v1/namespaces/default\ncontent-type: application/json-patch+json\n\n[{\"op\":\"add\",\"path\":\"/metadata/labels/x\",\"value\":\"y\"},{\"op\":\"copy\",\"from\":\"/metadata/labels\",\"path\":\"/metadata/annotations\"}]",
    b"POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions\ncontent-type: application/json\n\n{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"CustomResourceDefinition\",\"metadata\":{\"name\":\"as.x.io\"},\"spec\":{\"group\":\"x.io\",\"scope\":\"Namespaced\",\"names\":{\"plural\":\"as\",\"kind\":\"A\"},\"versions\":[{\"name\":\"v1\",\"served\":true,\"storage\":true,\"additionalPrinterColumns\":[{\"name\":\"C\",\"type\":\"string\",\"jsonPath\":\".spec.list[?(@.a==1)].b\"}],\"schema\":{\"openAPIV3Schema\":{\"type\":\"object\",\"properties\":{\"spec\":{\"type\":\"object\",\"properties\":{\"list\":{\"type\":\"array\",\"maxItems\":9,\"items\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"default\":1},\"b\":{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":9}}},\"x-kubernetes-list-type\":\"map\",\"x-kubernetes-list-map-keys\":[\"a\"],\"x-kubernetes-validations\":[{\"rule\":\"self.all(x, x.b.size() < 5)\"}]}}}}}}}]}}",
    b"POST /apis/x.io/v1/namespaces/default/as\ncontent-type: application/json\n\n{\"apiVersion\":\"x.io/v1\",\"kind\":\"A\",\"metadata\":{\"name\":\"a\"},\"spec\":{\"list\":[{\"a\":1,\"b\":\"xy\"},{\"a\":2}]}}",
    b"GET /api/v1/namespaces\nauthorization: Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ.eyJhdWQiOlsieCJdLCJleHAiOjE3MzM4NTEwNjksImlzcyI6Imh0dHBzOi8va3ViZXJuZXRlcy5kZWZhdWx0LnN2YyIsImt1YmVybmV0ZXMuaW8iOnsibmFtZXNwYWNlIjoiZGVmYXVsdCJ9LCJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6ZGVmYXVsdDpkZWZhdWx0In0.c2ln\nimpersonate-user: a\nimpersonate-group: b\nimpersonate-extra-c%2f: d\n\n",
    b"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews\ncontent-type: application/json\nimpersonate-user: a\n\n{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":\"SelfSubjectAccessReview\",\"spec\":{\"resourceAttributes\":{\"verb\":\"get\",\"resource\":\"pods\",\"fieldSelector\":{\"rawSelector\":\"a=b\"}}}}",
    b"POST /apis/authentication.k8s.io/v1/tokenreviews\ncontent-type: application/json\n\n{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenReview\",\"spec\":{\"token\":\"a.b.c\"}}",
    b"POST /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies\ncontent-type: application/json\n\n{\"apiVersion\":\"admissionregistration.k8s.io/v1\",\"kind\":\"ValidatingAdmissionPolicy\",\"metadata\":{\"name\":\"p\"},\"spec\":{\"matchConstraints\":{\"resourceRules\":[{\"apiGroups\":[\"\"],\"apiVersions\":[\"v1\"],\"operations\":[\"*\"],\"resources\":[\"secrets\"]}]},\"variables\":[{\"name\":\"v\",\"expression\":\"object.metadata.name\"}],\"validations\":[{\"expression\":\"variables.v.size() < 9\",\"messageExpression\":\"'x' + variables.v\"}]}}",
    b"POST /apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers\ncontent-type: application/json\n\n{\"apiVersion\":\"autoscaling/v1\",\"kind\":\"HorizontalPodAutoscaler\",\"metadata\":{\"name\":\"h\"},\"spec\":{\"maxReplicas\":3,\"scaleTargetRef\":{\"kind\":\"Deployment\",\"name\":\"d\",\"apiVersion\":\"apps/v1\"}}}",
    b"POST /apis/batch/v1/namespaces/default/cronjobs\ncontent-type: application/json\n\n{\"apiVersion\":\"batch/v1\",\"kind\":\"CronJob\",\"metadata\":{\"name\":\"c\"},\"spec\":{\"schedule\":\"*/5 0-3 1,2 * MON\",\"timeZone\":\"Europe/Berlin\",\"jobTemplate\":{\"spec\":{\"template\":{\"spec\":{\"restartPolicy\":\"Never\",\"containers\":[{\"name\":\"a\",\"image\":\"b\"}]}}}}}}",
    b"POST /apis/networking.k8s.io/v1/namespaces/default/ingresses\ncontent-type: application/json\n\n{\"apiVersion\":\"networking.k8s.io/v1\",\"kind\":\"Ingress\",\"metadata\":{\"name\":\"i\"},\"spec\":{\"rules\":[{\"host\":\"*.a.b\",\"http\":{\"paths\":[{\"path\":\"/x\",\"pathType\":\"Prefix\",\"backend\":{\"service\":{\"name\":\"s\",\"port\":{\"number\":80}}}}]}}],\"tls\":[{\"hosts\":[\"a.b\"]}]}}",
    b"POST /api/v1/namespaces/default/services\ncontent-type: application/json\n\n{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"s\"},\"spec\":{\"ports\":[{\"port\":80,\"targetPort\":\"http\",\"nodePort\":30000}],\"selector\":{\"a\":\"b\"},\"type\":\"NodePort\",\"ipFamilies\":[\"IPv4\"],\"clusterIP\":\"None\"}}",
    b"DELETE /api/v1/namespaces/default/configmaps?labelSelector=a&propagationPolicy=Foreground\ncontent-type: application/json\n\n{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\",\"preconditions\":{\"uid\":\"x\"},\"gracePeriodSeconds\":0}",
    b"POST /api/v1/namespaces/default/pods/a/eviction\ncontent-type: application/vnd.kubernetes.protobuf\n\nk8s\0\x0a\x14\x0a\x09policy/v1\x12\x08Eviction\x12\x06\x0a\x04\x0a\x02aa",
    b"GET /openapi/v3/apis/apps/v1?hash=a\naccept: application/com.github.proto-openapi.spec.v3@v1.0+protobuf\n\n",
    b"GET /apis\naccept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList\n\n",
    b"PUT /api/v1/namespaces/default/configmaps/a%2fb/status%00?pretty=1&timeout=1h2m\ncontent-type: application/json; charset=utf-8\n\n{}",
];

const ISSUERS: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: 'https://127.0.0.1:1', \
    audiences: [here]}\n  claimMappings: {username: {expression: 'claims.sub'}, groups: {claim: groups, prefix: ''}}\n";

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// A server, and how many requests it has had.
struct Place {
    runtime: Runtime,
    server: Server,
    requests: usize,
}

/// Sends one request. An answer that blames the server is a finding too.
pub fn run(input: &[u8]) {
    let Some(request) = parse(input) else { return };
    PLACE.with_borrow_mut(|place| {
        if place.as_ref().is_none_or(|p| p.requests >= REQUESTS_MAX) {
            *place = Some(Place::open());
        }
        let Some(place) = place else { return };
        place.requests += 1;
        let shown = format!("{} {}", request.method(), request.uri());
        let status = place.runtime.block_on(async {
            let response = place.server.handle(request).await;
            let status = response.status().as_u16();
            // A watch goes on; what it has to say at once is said in a few parts.
            let mut body = response.into_body();
            let mut parts = 0;
            while parts < 64 && body.frame().now_or_never().flatten().is_some() {
                parts += 1;
            }
            status
        });
        assert!(status != 500, "{shown} was answered with 500");
    });
}

impl Place {
    fn open() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let server = runtime.block_on(server());
        Self { runtime, server, requests: 0 }
    }
}

fn parse(input: &[u8]) -> Option<Request<Full<Bytes>>> {
    let end = input.windows(2).position(|w| w == b"\n\n");
    let (head, body) = end.map_or((input, &[][..]), |at| (&input[..at], &input[at + 2..]));
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split('\n');
    let (method, path) = lines.next()?.split_once(' ')?;
    let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).ok()?).uri(path);
    let mut is_proven = false;
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        is_proven |= name == http::header::AUTHORIZATION;
        request = request.header(name, HeaderValue::from_bytes(value.trim().as_bytes()).ok()?);
    }
    let mut request = request.body(Full::new(Bytes::copy_from_slice(body))).ok()?;
    if !is_proven {
        let admin =
            UserInfo { name: "admin".into(), groups: vec!["system:masters".into(), "system:authenticated".into()], ..UserInfo::default() };
        request.extensions_mut().insert(InProcess(Arc::new(admin)));
    }
    Some(request)
}

async fn server() -> Server {
    let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    let plugins = |permission| admission::default_plugins(&admission::Config { signer_permission: Some(permission), ..Default::default() });
    let server = Server::open(Config::in_memory("fuzz", key, Timestamp::UNIX_EPOCH, Box::new(plugins))).await.expect("opens");
    // An issuer that nobody can ask: its tokens are read and never believed.
    server.refuse_local_calls();
    let issuers = AuthenticationConfiguration::parse(ISSUERS).expect("a configuration");
    server.set_authentication(&issuers).expect("good issuers");
    server
}
