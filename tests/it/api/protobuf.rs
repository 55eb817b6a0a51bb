//! Protobuf of built-in kinds: bodies, answers, lists, watches. An answer must say in protobuf what it says in JSON.

use super::{config_map, deployment, pod};
use crate::harness::server::Server;
use crate::harness::{Request, client::Client};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sublet_apiserver::protobuf;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

fn decode(body: &[u8]) -> Value {
    protobuf::decode(body, None).unwrap()
}

/// What Go shows of an object that went through protobuf.
fn shown(object: &Value) -> Value {
    decode(&protobuf::encode(object).unwrap())
}

async fn namespace(client: &Client, name: &str) -> String {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let answer = client.send(&Request::post("/api/v1/namespaces", &object)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    client.send(&Request::post(format!("/api/v1/namespaces/{name}/serviceaccounts"), &account)).await;
    format!("/api/v1/namespaces/{name}")
}

fn post(path: &str, object: &Value) -> Request {
    Request::new(http::Method::POST, path).body(PROTOBUF, protobuf::encode(object).unwrap()).accept(PROTOBUF)
}

#[tokio::test]
async fn answers_say_what_json_says() {
    let server = Server::for_api();
    let client = server.client();
    let core = namespace(&client, "protobuf-answers").await;
    let apps = "/apis/apps/v1/namespaces/protobuf-answers/deployments";
    for (path, name, object) in [
        (format!("{core}/configmaps"), "a", config_map("a", json!({"x": "y"}))),
        (format!("{core}/pods"), "b", pod("b")),
        (apps.to_string(), "c", deployment("c", 0)),
    ] {
        let created = client.send(&post(&path, &object)).await;
        assert_eq!((created.status.as_u16(), created.header("content-type").as_deref()), (201, Some(PROTOBUF)), "{path}");
        for path in [format!("{path}/{name}"), path.clone()] {
            let as_json = client.send(&Request::get(&path)).await.json();
            let as_protobuf = client.send(&Request::get(&path).accept(PROTOBUF)).await;
            assert_eq!(decode(&as_protobuf.body), shown(&as_json), "{path}");
            let metadata = client.send(&Request::get(&path).accept(METADATA)).await;
            let metadata = if path.ends_with(name) { decode(&metadata.body) } else { Value::Null };
            assert!(metadata.is_null() || metadata["metadata"] == decode(&as_protobuf.body)["metadata"], "{path}");
        }
    }
    for path in ["/apis", "/api/v1", "/apis/apps/v1"] {
        let document = decode(&client.send(&Request::get(path).accept(PROTOBUF)).await.body);
        let as_json = client.send(&Request::get(path)).await.json();
        assert_eq!(document["resources"], shown(&as_json)["resources"], "{path}");
    }
}

#[tokio::test]
async fn errors_and_deletes_speak_protobuf() {
    let server = Server::for_api();
    let client = server.client();
    let maps = format!("{}/configmaps", namespace(&client, "protobuf-deletes").await);
    let absent = client.send(&Request::get(format!("{maps}/absent")).accept(PROTOBUF)).await;
    assert_eq!(decode(&absent.body)["message"], "configmaps \"absent\" not found");
    let rubbish = client.send(&Request::new(http::Method::POST, &maps).body(PROTOBUF, "abc")).await;
    assert_eq!(
        rubbish.str("/message"),
        "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a protobuf message, \
         expected prefix [107 56 115 0] (616263)"
    );
    client.send(&post(&maps, &config_map("a", json!({})))).await;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "another"}});
    let refused = Request::delete(format!("{maps}/a")).body(PROTOBUF, protobuf::encode(&options).unwrap()).accept(PROTOBUF);
    assert_eq!(client.send(&refused).await.status, 409);
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    let deleted = Request::delete(format!("{maps}/a")).body(PROTOBUF, protobuf::encode(&options).unwrap()).accept(PROTOBUF);
    assert_eq!(decode(&client.send(&deleted).await.body)["status"], "Success");
}

#[tokio::test]
async fn watches_are_frames() {
    let server = Server::for_api();
    let client = server.client();
    let maps = format!("{}/configmaps", namespace(&client, "protobuf-watches").await);
    client.send(&post(&maps, &config_map("a", json!({"x": "1"})))).await;
    let answer = client.open(&Request::get(format!("{maps}?watch=1&fieldSelector=metadata.name%3Da")).accept(PROTOBUF)).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let mut frames = Frames { body: answer.into_body(), rest: Vec::new() };
    let added = frames.next().await;
    assert_eq!((&added["type"], &added["object"]["data"]["x"]), (&json!("ADDED"), &json!("1")));
    let stored = client.send(&Request::get(format!("{maps}/a"))).await.json();
    assert_eq!(added["object"], shown(&stored));
    client.send(&Request::delete(format!("{maps}/a"))).await;
    let deleted = frames.next().await;
    assert_eq!((&deleted["type"], &deleted["object"]["metadata"]["name"]), (&json!("DELETED"), &json!("a")));
}

struct Frames {
    body: hyper::body::Incoming,
    rest: Vec<u8>,
}

impl Frames {
    /// The next event; its message has no envelope, so that one is put around it.
    async fn next(&mut self) -> Value {
        loop {
            if let Some((length, rest)) = self.rest.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if rest.len() >= length {
                    let event = Bytes::copy_from_slice(&rest[..length]);
                    self.rest.drain(..4 + length);
                    let mut enveloped = b"k8s\0\x0a\x10\x0a\x02v1\x12\x0aWatchEvent\x12".to_vec();
                    let mut length = length;
                    while length >= 0x80 {
                        enveloped.push(length as u8 | 0x80);
                        length >>= 7;
                    }
                    enveloped.push(length as u8);
                    enveloped.extend_from_slice(&event);
                    return decode(&enveloped);
                }
            }
            let frame = self.body.frame().await.expect("the watch goes on").unwrap();
            self.rest.extend_from_slice(&frame.into_data().unwrap_or_default());
        }
    }
}
