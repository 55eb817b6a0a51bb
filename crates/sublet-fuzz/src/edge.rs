//! What arrives before anybody knows who asks: headers, queries, tokens, certificates, packets; and files of others.

use crate::request;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use std::fmt::Write as _;
use sublet_apiserver::audit::Policy;
use sublet_apiserver::auth::authn::certificate;
use sublet_apiserver::auth::jwt::AuthenticationConfiguration;
use sublet_apiserver::crd::Rules;
use sublet_apiserver::http::{Query, RequestInfo, negotiate, websocket};
use sublet_apiserver::rest::options::{self, ListOptions};
use sublet_dns::{Request, ResolverConfig, Unreadable};
use sublet_machinery::structural::{self, SyntaxError};

pub const NEGOTIATIONS: &[&[u8]] = &[
    b"application/json;as=Table;v=v1;g=meta.k8s.io, application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io;pretty=1, */*;q=0.8\ngzip;q=0, deflate\napplication/json; charset=utf-8\ncurl/8",
    b"application/*\ngzip\napplication/apply-patch+yaml\nWget",
];

/// A line each: Accept, Accept-Encoding, Content-Type, User-Agent.
pub fn negotiation(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    for (name, line) in [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT].into_iter().zip(bytes.split(|b| *b == b'\n')) {
        let Ok(value) = HeaderValue::from_bytes(line) else { continue };
        headers.append(name, value);
    }
    let _ = (negotiate::accept(&headers, true), negotiate::accept_answer(&headers), negotiate::accept_custom(&headers));
    let _ = (negotiate::accepts_gzip(&headers), negotiate::is_pretty(None, &headers), negotiate::content_type(&headers).len());
    if let Ok(value) = HeaderValue::from_bytes(bytes) {
        let _ = websocket::switched(&value, None);
    }
}

pub const QUERIES: &[&[u8]] = &[
    b"/api/v1/namespaces/a%2fb/pods/x/proxy//y?watch=1&limit=10&resourceVersion=5&resourceVersionMatch=Exact&timeoutSeconds=1&continue=abc",
    b"/apis/apps/v1/watch/namespaces/n/deployments/d/scale?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&dryRun=All&fieldValidation=Warn",
];

/// A path with its query.
pub fn query(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (path, query) = text.split_once('?').map_or((&*text, None), |(path, query)| (path, Some(query)));
    let query = Query::parse(query);
    for method in [Method::GET, Method::POST, Method::PATCH, Method::DELETE] {
        let _ = RequestInfo::parse(&method, path, &query).authorized_name().len();
    }
    for is_watch in [false, true] {
        let _ = ListOptions::parse(&query, is_watch);
    }
    let _ = (options::dry_run(&query, "PatchOptions"), options::field_validation(&query, "PatchOptions"));
    let again = Query::parse(Some(&query.encoded()));
    assert_eq!(again.encoded(), query.encoded(), "a query is read as it is written");
}

pub const CONTINUATIONS: &[&[u8]] = &[
    br#"{"v":"meta.k8s.io/v1","rv":5,"start":"default/a\u0000"}"#,
    br#"{"v":"meta.k8s.io/v1","rv":-1,"start":"kube-system/kube-root-ca.crt\u0000"}"#,
];

/// What is inside of a continue token, in a list of what has namespaces and one of what has none.
pub fn continuation(bytes: &[u8]) {
    let token = BASE64.encode(bytes);
    for path in ["/api/v1/configmaps", "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces"] {
        request::run(format!("GET {path}?limit=1&continue={token}\n\n").as_bytes());
    }
}

pub const TOKENS: &[&[u8]] = &[
    b"{\"alg\":\"RS256\",\"kid\":\"k\"}\n{\"iss\":\"https://127.0.0.1:1\",\"aud\":[\"here\"],\"exp\":9733851069,\"nbf\":1,\"sub\":\"jane\",\"groups\":[\"a\",\"b\"],\"email_verified\":true}\nsignature",
    b"{\"alg\":\"ES256\",\"kid\":\"x\"}\n{\"iss\":\"https://kubernetes.default.svc\",\"aud\":\"https://kubernetes.default.svc\",\"exp\":9733851069,\"kubernetes.io\":{\"namespace\":\"default\",\"serviceaccount\":{\"name\":\"default\",\"uid\":\"u\"}}}\n0123456789012345678901234567890123456789012345678901234567890123",
    b"{\"alg\":\"none\"}\n{\"iss\":\"kubernetes/serviceaccount\",\"sub\":\"system:serviceaccount:default:default\",\"kubernetes.io/serviceaccount/namespace\":\"default\",\"kubernetes.io/serviceaccount/secret.name\":\"s\"}\n",
];

/// The parts of a token of somebody else, one a line, as a bearer's and in a review.
pub fn token(bytes: &[u8]) {
    let parts: Vec<String> = bytes.splitn(3, |b| *b == b'\n').map(|part| BASE64.encode(part)).collect();
    let token = parts.join(".");
    request::run(format!("GET /api/v1/namespaces?limit=1\nauthorization: Bearer {token}\n\n").as_bytes());
    let mut review = String::from("POST /apis/authentication.k8s.io/v1/tokenreviews\ncontent-type: application/json\n\n");
    let body = serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let _ = write!(review, "{body}");
    request::run(review.as_bytes());
}

pub const PACKETS: &[&[u8]] = &[
    b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x03web\x04prod\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x00",
    b"\x12\x34\x01\x00\x00\x01\x00\x01\x00\x00\x00\x00\x01a\xc0\x0c\x00\xff\x00\x01\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x05\x00\x02\xc0\x0c",
];

/// A question to a name server; what is refused is refused with something that can be read.
pub fn packet(bytes: &[u8]) {
    match Request::read(bytes) {
        Ok(request) => assert!((512..=1232).contains(&request.udp_bytes()), "the size of replies has bounds"),
        Err(Unreadable::Refused(reply)) => assert!(reply.len() >= 12 && reply[2] & 0x80 != 0, "a refusal is a reply"),
        Err(Unreadable::Ignored) => {}
    }
    let _ = ResolverConfig::parse(&String::from_utf8_lossy(bytes));
}

/// A certificate of a client, and a request for one, which say that they are anybody's.
pub const CERTIFICATES: &[&[u8]] = &[
    b"-----BEGIN CERTIFICATE REQUEST-----\nMIHUMHsCAQAwGTEXMBUGA1UEAwwOc3lzdGVtOm5vZGU6YTAZMBMGByqGSM49AgEG\nCCqGSM49AwEHAwIAAaAAMAoGCCqGSM49BAMCA0kAMEYCIQDx\n-----END CERTIFICATE REQUEST-----\n",
    b"\x30\x82\x01\x0a\x30\x81\xb1\xa0\x03\x02\x01\x02\x02\x01\x01\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02\x30\x0f\x31\x0d\x30\x0b\x06\x03\x55\x04\x03\x0c\x04\x74\x65\x73\x74\x30\x1e\x17\x0d\x32\x34\x30\x31\x30\x31\x30\x30\x30\x30\x30\x30\x5a",
];

pub fn certificates(bytes: &[u8]) {
    let _ = (certificate::user(bytes), certificate::ends_at(bytes));
    let _ = sublet_pki::Request::parse(bytes);
    let mut pem = String::from("-----BEGIN CERTIFICATE REQUEST-----\n");
    let _ = write!(pem, "{}\n-----END CERTIFICATE REQUEST-----\n", base64::prelude::BASE64_STANDARD.encode(bytes));
    let _ = sublet_pki::Request::parse(pem.as_bytes());
}

pub const FILES: &[&[u8]] = &[
    b"apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: 'https://h:1', certificate-authority-data: aGk=}}]\ncontexts: [{name: a, context: {cluster: a, user: a, namespace: n}}]\nusers: [{name: a, user: {token: t, client-key-data: eA==}}]\n",
    b"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: 'https://a', audiences: [b]}\n  claimMappings: {username: {expression: 'claims.sub'}, groups: {claim: g, prefix: ''}}\n  claimValidationRules: [{claim: hd, requiredValue: x}, {expression: 'claims.exp > 1', message: m}]\n",
    b"apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n  verbs: [get]\n  resources: [{group: '', resources: [pods/*]}]\n- level: None\n  nonResourceURLs: ['/healthz*']\n",
];

/// Files that come from elsewhere: kubeconfigs out of Secrets, and what an administrator writes.
pub fn files(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = kube::config::Kubeconfig::from_yaml(&text);
    let _ = AuthenticationConfiguration::parse(&text);
    let _ = Policy::parse(&text);
}

pub const SCHEMAS: &[&[u8]] = &[
    b"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"array\",\"maxItems\":3,\"x-kubernetes-list-type\":\"map\",\"x-kubernetes-list-map-keys\":[\"k\"],\"items\":{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\",\"default\":\"x\",\"enum\":[\"x\",\"y\"]},\"v\":{\"x-kubernetes-int-or-string\":true}}}},\"b\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"number\",\"multipleOf\":0.5},\"nullable\":true}},\"x-kubernetes-validations\":[{\"rule\":\"self.a.size() < 3\"}]}\n{\"a\":[{\"k\":\"y\",\"v\":\"5%\"},{\"v\":1}],\"b\":{\"z\":1.5}}",
    b"{\"type\":\"object\",\"x-kubernetes-preserve-unknown-fields\":true,\"properties\":{\"e\":{\"type\":\"object\",\"x-kubernetes-embedded-resource\":true,\"x-kubernetes-preserve-unknown-fields\":true},\"d\":{\"type\":\"string\",\"format\":\"date-time\",\"not\":{\"pattern\":\"^x\"}}},\"oneOf\":[{\"required\":[\"d\"]},{\"required\":[\"e\"]}]}\n{\"e\":{\"apiVersion\":\"v1\",\"kind\":\"A\",\"metadata\":{\"name\":\"x\"}},\"z\":[]}",
];

/// A schema, and an object that should follow it.
pub fn schema(bytes: &[u8]) {
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    let read = |text: &[u8]| -> Result<_, SyntaxError> { structural::decode(text).map(|d| d.value) };
    let Ok(stated) = read(&bytes[..end]) else { return };
    let schema = structural::build(Some(&stated), false, "com.example.v1.A");
    let Ok(mut object) = read(bytes.get(end + 1..).unwrap_or_default()) else { return };
    if !object.is_object() {
        return;
    }
    let _ = Rules::compile(schema.node());
    let _ = structural::coerce(&mut object, schema.node());
    structural::default(&mut object, schema.node());
    structural::prune(&mut object, schema.node());
    let root = sublet_machinery::FieldPath::root();
    let _ = structural::validate(&object, schema.node(), &root);
    let _ = structural::validate_lists(&object, schema.node(), &root);
    let _ = structural::validate_embedded(&object, schema.node(), &root);
    assert!(object.is_object(), "an object stays one");
}
