//! A server with its admission plugins, compared with what a reference kube-apiserver answered to the same
//! requests (`golden/record_admission.py` records the answers).

mod common;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use regex::Regex;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_apiserver::admission::UserInfo;
use sublet_apiserver::server::{InProcess, Server};

/// What another server or another time makes different.
const UNSTABLE: [&str; 8] =
    ["resourceVersion", "managedFields", "uid", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "nodePort"];

#[tokio::test]
async fn every_request_is_answered_as_upstream_answers_it() {
    let steps: Vec<Value> = serde_json::from_str(include_str!("golden/admission.json")).expect("JSON");
    let masks = Masks::new();
    let server = common::server().await;
    let mut failures = Vec::new();
    for step in &steps {
        let (code, warnings, answer) = send(&server, step).await;
        let expected: Vec<&str> = step["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut different = Vec::new();
        if json!(code.as_u16()) != step["code"] {
            different.push(format!("code {code}, not {}", step["code"]));
        }
        if warnings != expected {
            different.push(format!("warnings {warnings:?}, not {expected:?}"));
        }
        differences("", &masks.stable(&answer), &step["answer"], &mut different);
        if !different.is_empty() {
            failures.push(format!("{}: {}", step["name"], different.join("; ")));
        }
    }
    assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), steps.len(), failures.join("\n"));
}

async fn send(server: &Server, step: &Value) -> (StatusCode, Vec<String>, Value) {
    let text = |key: &str| step[key].as_str().unwrap_or_default();
    let groups = vec!["system:masters".to_string(), "system:authenticated".to_string()];
    let user = UserInfo { name: "admin".into(), uid: "admin".into(), groups, ..UserInfo::default() };
    let body = if step["body"].is_null() { Bytes::new() } else { Bytes::from(step["body"].to_string()) };
    let media_type = if step["type"].is_string() { text("type") } else { "application/json" };
    let request = Request::builder()
        .method(text("method"))
        .uri(text("path"))
        .header("content-type", media_type)
        .extension(InProcess(Arc::new(user)))
        .body(Full::new(body))
        .expect("a request");
    let response = server.handle(request).await;
    let unquoted = |header: &str| {
        let text = header.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"')).map_or("", |(text, _)| text);
        text.replace("\\\"", "\"")
    };
    let headers = response.headers().get_all("warning");
    let warnings = headers.iter().map(|header| unquoted(header.to_str().expect("text"))).collect();
    let code = response.status();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, warnings, serde_json::from_slice(&bytes).expect("JSON"))
}

struct Masks(Vec<(Regex, &'static str)>);

impl Masks {
    fn new() -> Self {
        let masks = [
            ("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
            ("kube-api-access-[a-z0-9]{5}", "kube-api-access-NAME"),
            (r"\bg-[a-z0-9]{5}\b", "g-NAME"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
        ];
        Self(masks.map(|(pattern, name)| (Regex::new(pattern).expect("a pattern"), name)).into())
    }

    fn stable(&self, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let kept = map.iter().filter(|(key, _)| !UNSTABLE.contains(&key.as_str()));
                kept.map(|(key, value)| (key.clone(), self.stable(value))).collect()
            }
            Value::Array(list) => list.iter().map(|item| self.stable(item)).collect(),
            Value::String(text) => {
                let line = text.split('\n').next().unwrap_or_default().to_string();
                Value::String(self.0.iter().fold(line, |text, (pattern, name)| pattern.replace_all(&text, *name).into_owned()))
            }
            other => other.clone(),
        }
    }
}

fn differences(path: &str, ours: &Value, theirs: &Value, all: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                match (a.get(key), b.get(key)) {
                    (Some(x), Some(y)) => differences(&format!("{path}.{key}"), x, y, all),
                    (Some(x), None) => all.push(format!("{path}.{key} is ours alone: {x}")),
                    (_, y) => all.push(format!("{path}.{key} is missing: {}", y.unwrap_or_default())),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (x, y)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{index}]"), x, y, all);
            }
        }
        (a, b) if a == b => {}
        (a, b) => all.push(format!("{path} is {a}, not {b}")),
    }
}
