//! Whatever a client sends, the host hears of the tenant's own pods alone.

use super::remote::forwarded_headers;
use crate::compose::testing::{Asked, World, copy, json_answer};
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::LOCATION;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt as _;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

fn ok(_: &Asked) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from_static(b"fine")))
}

#[tokio::test]
async fn a_tenants_own_pods_are_asked_for_by_their_names_on_the_host() {
    let world = World::start(ok).await;
    let base = format!("/api/v1/namespaces/team-a/pods/{}", world.copy);
    let id = |scheme: &str, port: &str| format!("/api/v1/namespaces/team-a/pods/{scheme}{}{port}/proxy", world.copy);
    for (method, path, expected) in [
        ("GET", "pods/web/log?follow=true&tailLines=3", format!("{base}/log?follow=true&tailLines=3")),
        (
            "POST",
            "pods/web/exec?command=sh&command=-c&command=a%26b%20c&stdin=1",
            format!("{base}/exec?command=sh&command=-c&command=a%26b+c&stdin=1"),
        ),
        ("GET", "pods/web/attach", format!("{base}/attach")),
        ("POST", "pods/web/portforward", format!("{base}/portforward")),
        ("GET", "pods/web/proxy/", format!("{}/", id("", ":8080"))),
        ("GET", "pods/web:9090/proxy/a%20b?x=%2F", format!("{}/a%20b?x=%2F", id("", ":9090"))),
        ("DELETE", "pods/https:web:web/proxy/a/", format!("{}/a/", id("https:", ":web"))),
        ("PUT", "services/web:80/proxy/a", format!("{}/a", id("", ":8080"))),
        ("OPTIONS", "services/https:web:http/proxy/", format!("{}/", id("https:", ":8080"))),
    ] {
        let (status, _, body) = world.ask(method, &format!("/api/v1/namespaces/prod/{path}")).await;
        let heard = world.host.heard();
        assert_eq!((status, body.as_str()), (StatusCode::OK, "fine"), "{path}");
        assert_eq!(heard.iter().map(|a| (a.method.as_str(), a.path.as_str())).collect::<Vec<_>>(), [(method, expected.as_str())], "{path}");
    }
}

#[tokio::test]
async fn nothing_else_is_reached_by_any_path() {
    let world = World::start(ok).await;
    let (own, other) = (world.copy.clone(), copy("beta-uid", "secret", "s").name().to_string());
    let in_prod = |path: &str| format!("/api/v1/namespaces/prod/{path}");
    let mut paths = vec![
        // Names of the host, of another tenant, of a pod that was there before, of somebody's pod with our name.
        (in_prod(&format!("pods/{own}/exec?command=id")), 404),
        (in_prod(&format!("pods/{other}/exec?command=id")), 404),
        (format!("/api/v1/namespaces/team-a/pods/{own}/exec?command=id"), 404),
        (format!("/api/v1/namespaces/team-a/pods/{other}/log"), 404),
        (format!("/api/v1/namespaces/kube-system/pods/{other}/proxy/"), 404),
        (in_prod("pods/host-w/exec?command=id"), 404),
        (in_prod("pods/w/log"), 404),
        (in_prod("pods/replaced/exec?command=id"), 400),
        (in_prod("pods/replaced/log"), 400),
        (in_prod("pods/foreign/exec?command=id"), 400),
        (in_prod("pods/foreign/proxy/"), 400),
        (in_prod("pods/foreign/portforward"), 400),
        // Nodes, and paths below streams.
        ("/api/v1/nodes/node-1/proxy/runningpods/".into(), 403),
        ("/api/v1/nodes/https:node-1:10250/proxy/exec/team-a/x/main".into(), 403),
        ("/api/v1/nodes/node-2/proxy/".into(), 404),
        (in_prod("pods/web/exec/../../../secrets"), 404),
        (in_prod("pods/web/log/x"), 404),
        ("/api/v1/pods/web/exec?command=id".into(), 404),
        // Services that lead elsewhere, and pods with addresses that are no pods'.
        (in_prod("services/outside:80/proxy/latest/meta-data"), 503),
        (in_prod("services/outside:http/proxy/"), 503),
        (in_prod("services/lies:http/proxy/"), 503),
        (in_prod("services/named:80/proxy/"), 503),
        (in_prod("services/absent:http/proxy/"), 503),
        (in_prod("services/absent:80/proxy/"), 404),
        (in_prod("pods/link:80/proxy/"), 400),
        // Names that are more than a name.
        (in_prod("pods/a:b:c:d/proxy/"), 400),
        (in_prod("pods/ftp:web:80/proxy/"), 400),
        (in_prod("pods/http:web:80/exec?command=id"), 404),
        (in_prod("pods/..%2Fweb/exec?command=id"), 404),
        (in_prod("pods/%2E%2E/exec?command=id"), 400),
        (in_prod("pods/../proxy/"), 400),
        (in_prod("pods/./log"), 400),
        (in_prod("pods/web%3F/exec?command=id"), 404),
        (in_prod("pods/web%00/log"), 404),
    ];
    // The same with another spelling of the host's namespace.
    paths.push((format!("/api/v1/namespaces/prod%2F..%2Fteam-a/pods/{own}/exec?command=id"), 404));
    paths.push((format!("/api/v1/namespaces/prod/../team-a/pods/{own}/log"), 404));
    for (path, code) in &paths {
        for method in ["GET", "POST"] {
            let (status, _, body) = world.ask(method, path).await;
            let is_log = path.contains("/log");
            let expected = if is_log && method == "POST" && *code != 404 { 405 } else { *code };
            if !(is_log && method == "POST") {
                assert_eq!(status.as_u16(), expected, "{method} {path}: {body}");
            }
            let heard = world.host.heard();
            assert!(heard.is_empty(), "{method} {path} reached the host: {heard:?}");
            assert!(!body.contains(&own) || path.contains(&own), "{path} tells the host's name: {body}");
        }
    }
}

/// What reaches the host stays below the pod, however the path is spelled and whoever normalizes it on the way.
#[tokio::test]
async fn paths_and_ports_do_not_lead_out_of_the_pod() {
    let world = World::start(ok).await;
    let below = |port: &str| format!("/api/v1/namespaces/team-a/pods/{}:{port}/proxy/", world.copy);
    for (path, expected) in [
        ("pods/web:80/proxy/../../../../../../api/v1/secrets", format!("{}api/v1/secrets", below("80"))),
        ("pods/web:80/proxy/%2e%2e/%2e%2e/x", format!("{}x", below("80"))),
        ("pods/web:80/proxy/..%2f..%2fx", format!("{}x", below("80"))),
        ("pods/web:80/proxy/%252e%252e/x", format!("{}%252e%252e/x", below("80"))),
        ("pods/web:80/proxy/a%3Fb=c%23d", format!("{}a%3Fb=c%23d", below("80"))),
        ("pods/web:80%3Fx=/proxy/a", format!("{}a", below("80%3Fx%3D"))),
        ("pods/web:%252F..%252Fother/proxy/a", format!("{}a", below("%252F%2E%2E%252Fother"))),
        ("pods/web:../proxy/a", format!("{}a", below("%2E%2E"))),
        ("pods/web:80%0d%0aX:/proxy/a", "".to_string()),
    ] {
        let (status, _, body) = world.ask("GET", &format!("/api/v1/namespaces/prod/{path}")).await;
        let heard: Vec<String> = world.host.heard().into_iter().map(|a| a.path).collect();
        if expected.is_empty() {
            assert!(status.is_client_error() && heard.is_empty(), "{path}: {status} {body} {heard:?}");
        } else {
            assert_eq!(heard, [expected], "{path}: {status} {body}");
        }
    }
    // A pod may be called as schemes are.
    let (status, ..) = world.ask("GET", "/api/v1/namespaces/prod/pods/http:web:80/proxy/a").await;
    assert_eq!((status, world.host.heard().len()), (StatusCode::OK, 1));
}

#[tokio::test]
async fn bodies_and_verbs_pass_and_credentials_do_not() {
    let world = World::start(ok).await;
    let mut request =
        Request::post("/api/v1/namespaces/prod/services/web:80/proxy/upload").body(Full::new(vec![7u8; 5 << 20].into())).unwrap();
    for (name, value) in [
        ("authorization", "Bearer x"),
        ("impersonate-user", "system:admin"),
        ("x-remote-user", "system:admin"),
        ("cookie", "session=1"),
        ("content-type", "x/y"),
    ] {
        if name != "impersonate-user" {
            request.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
    }
    let (status, ..) = world.send(request).await;
    let heard = world.host.heard();
    assert_eq!((status, heard[0].body.len()), (StatusCode::OK, 5 << 20), "a body larger than an object may be passes");
    let told = |name: &str| heard[0].headers.get(name).map(|v| v.to_str().unwrap().to_string());
    assert_eq!([told("authorization"), told("x-remote-user")], [None, None]);
    assert_eq!([told("cookie"), told("content-type")], [Some("session=1".into()), Some("x/y".into())]);
}

#[test]
fn the_host_is_never_told_to_act_as_somebody() {
    let mut headers = HeaderMap::new();
    for (name, value) in
        [("impersonate-user", "root"), ("impersonate-extra-a", "b"), ("cookie", "a"), ("upgrade", "websocket"), ("x-a", "1")]
    {
        headers.insert(HeaderName::from_static(name), value.parse().unwrap());
    }
    let kept = forwarded_headers(&headers, true, false);
    let mut names: Vec<&str> = kept.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "upgrade", "x-a"]);
}

fn answers_of_programs(asked: &Asked) -> Response<Full<Bytes>> {
    let (own, rest) = asked.path.split_once("/proxy").map(|(own, rest)| (format!("{own}/proxy"), rest)).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(format!("<a href=\"{own}/next\">next</a>"))));
    let mut head = |status: u16, name: &'static str, value: String| {
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response.headers_mut().insert(name, HeaderValue::from_str(&value).unwrap());
    };
    match rest {
        "/moved" => head(302, "location", format!("{own}/there?a=b")),
        "/away" => head(302, "location", "https://example.com/x".into()),
        "/page" => head(200, "content-type", "text/html".into()),
        "/plain" => head(418, "content-type", "text/plain".into()),
        _ => {
            let pod = own.split('/').nth(6).unwrap_or_default().split(':').next().unwrap_or_default();
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "reason": "ServiceUnavailable",
                "message": format!("error trying to reach service of {pod}")});
            response = Response::new(Full::new(Bytes::from(status.to_string())));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
        }
    }
    response
}

#[tokio::test]
async fn answers_name_the_tenants_paths() {
    let world = World::start(answers_of_programs).await;
    let at = "/api/v1/namespaces/prod/services/web:80/proxy";
    let location = |headers: &HeaderMap| headers.get(LOCATION).map(|l| l.to_str().unwrap().to_string());
    let (status, headers, _) = world.ask("GET", &format!("{at}/moved")).await;
    assert_eq!((status.as_u16(), location(&headers)), (302, Some(format!("{at}/there?a=b"))));
    let (_, headers, _) = world.ask("GET", &format!("{at}/away")).await;
    assert_eq!(location(&headers).as_deref(), Some("https://example.com/x"));
    let (_, _, page) = world.ask("GET", &format!("{at}/page")).await;
    assert_eq!(page, format!("<a href=\"{at}/next\">next</a>"));
    let (status, ..) = world.ask("GET", &format!("{at}/plain")).await;
    assert_eq!(status.as_u16(), 418);
    let (status, _, refusal) = world.ask("GET", &format!("{at}/refused")).await;
    let refusal: Value = serde_json::from_str(&refusal).unwrap();
    assert_eq!((status.as_u16(), refusal["message"].as_str()), (503, Some("error trying to reach service of web")));
    // Without its last slash the root of a site has no base for links.
    world.host.heard();
    let (status, headers, _) = world.ask("GET", &format!("{at}?a=b")).await;
    assert_eq!((status.as_u16(), location(&headers), world.host.heard().len()), (301, Some(format!("{at}/?a=b")), 0));
}

fn refusals(asked: &Asked) -> Response<Full<Bytes>> {
    let pod = asked.path.split('/').nth(6).unwrap_or_default();
    if asked.path.contains("/exec") {
        let mut plain = Response::new(Full::new(Bytes::from(format!("container c not found in pod {pod}_team-a"))));
        *plain.status_mut() = StatusCode::NOT_FOUND;
        return plain;
    }
    let message = match asked.path.contains("/attach") {
        true => format!("pods \"{pod}\" is forbidden: User \"sublet\" cannot create resource \"pods/attach\" in API group \"\""),
        false => format!("container \"main\" in pod \"{pod}\" is waiting to start"),
    };
    let code = if asked.path.contains("/attach") { 403 } else { 400 };
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "BadRequest", "message": message});
    let mut response = json_answer(Some(&status));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

#[tokio::test]
async fn refusals_speak_the_tenants_names() {
    let world = World::start(refusals).await;
    let message = |body: &str| serde_json::from_str::<Value>(body).unwrap()["message"].as_str().unwrap().to_string();
    let (status, _, body) = world.ask("GET", "/api/v1/namespaces/prod/pods/web/log").await;
    assert_eq!((status.as_u16(), message(&body)), (400, "container \"main\" in pod \"web\" is waiting to start".into()));
    let (status, _, body) = world.ask("POST", "/api/v1/namespaces/prod/pods/web/exec?command=a").await;
    assert_eq!((status.as_u16(), body.as_str()), (404, "container c not found in pod web_prod"));
    let (status, _, body) = world.ask("POST", "/api/v1/namespaces/prod/pods/web/attach").await;
    assert!(status.as_u16() == 503 && message(&body).contains("does not allow Sublet"), "{status} {body}");
}

/// Asks over a WebSocket and gives back the first message.
async fn first_message(world: &World, path: &str, protocol: &str) -> Message {
    let (client, server) = tokio::io::duplex(1 << 16);
    let service = TowerToHyperService::new(world.api.server.system_service());
    tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), service).with_upgrades());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::builder()
        .uri(path)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", protocol);
    let response = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS, "{path}");
    assert_eq!(response.headers().get("sec-websocket-accept").unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let upgraded = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    let mut socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await;
    socket.next().await.unwrap().unwrap()
}

#[tokio::test]
async fn logs_and_watches_come_over_websockets() {
    let world = World::start(ok).await;
    let log = "/api/v1/namespaces/prod/pods/web/log";
    assert_eq!(first_message(&world, log, "binary.k8s.io").await, Message::binary(&b"fine"[..]));
    assert_eq!(first_message(&world, log, "base64.binary.k8s.io").await, Message::text("ZmluZQ=="));
    let heard = world.host.heard();
    assert!(heard.iter().all(|asked| !asked.headers.contains_key("upgrade")), "the host is asked for a plain log: {heard:?}");
    let event = first_message(&world, "/api/v1/namespaces/prod/pods?watch=true&fieldSelector=metadata.name=web", "binary.k8s.io").await;
    let event: Value = serde_json::from_str(event.to_text().unwrap()).unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["metadata"]["name"].as_str()), (Some("ADDED"), Some("web")));
}
