//! What is kept of one request until it is answered.

use super::event::{Event, Origin};
use super::policy::{Level, Stage, Verdict};
use super::{AUDIT_ID, Auditor};
use crate::admission::UserInfo;
use crate::http::Body;
use crate::http::negotiate::PROTOBUF;
use crate::http::{HttpResponse, RequestInfo};
use flate2::read::GzDecoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use jiff::Timestamp;
use serde_json::Value;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// The address that a connection comes from.
#[derive(Clone, Copy, Debug)]
pub struct RemoteAddress(pub SocketAddr);

pub struct Record {
    auditor: Arc<Auditor>,
    verdict: Verdict,
    /// Guards the event; `None` when nothing more is to be told.
    event: Mutex<Option<Event>>,
}

impl Record {
    /// `None` when nothing is to be told about the request.
    pub(crate) fn begin(
        auditor: Arc<Auditor>,
        audit_id: &str,
        parts: &Parts,
        user: Option<&UserInfo>,
        info: &RequestInfo,
        received: Timestamp,
    ) -> Option<Arc<Self>> {
        let verdict = auditor.policy.judge(user, info);
        auditor.counters.levels[verdict.level as usize].fetch_add(1, Ordering::Relaxed);
        if verdict.level == Level::None {
            return None;
        }
        let header = |name| parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let origin = Origin {
            audit_id,
            uri: parts.uri.path_and_query().map_or_else(|| parts.uri.path().to_string(), ToString::to_string),
            source_ips: source_ips(parts),
            user_agent: header(USER_AGENT.as_str()),
            received,
        };
        let mut event = Event::new(verdict, origin, user, info);
        for (key, value) in &auditor.annotations {
            event.annotate(key, value);
        }
        Some(Arc::new(Self { auditor, verdict, event: Mutex::new(Some(event)) }))
    }

    fn with(&self, change: impl FnOnce(&mut Event)) {
        if let Some(event) = self.event.lock().expect("no holder of this lock panics").as_mut() {
            change(event);
        }
    }

    pub(crate) fn annotate(&self, key: &str, value: &str) {
        self.with(|event| event.annotate(key, value));
    }

    pub(crate) fn impersonated(&self, user: &UserInfo, constraint: &str) {
        self.with(|event| event.impersonated(user, constraint));
    }

    /// The object of the request, as `shown` makes it when it is wanted.
    pub(crate) fn requested(&self, object: &Value, shown: impl FnOnce() -> Value) {
        self.with(|event| {
            if event.request_object.is_null() {
                event.requested(self.verdict, object, shown);
            }
        });
    }

    /// A patch says nothing about the object that it meets.
    pub(crate) fn patched(&self, patch: &Value) {
        self.with(|event| event.requested(self.verdict, &Value::Null, || patch.clone()));
    }

    /// The line for a stage, if it is to be written. After `is_last` there is no other.
    fn line(&self, stage: Stage, is_last: bool) -> Option<Vec<u8>> {
        let mut event = self.event.lock().expect("no holder of this lock panics");
        let line = if self.verdict.writes(stage) { event.as_mut().map(|event| event.line(stage, Timestamp::now())) } else { None };
        if is_last {
            *event = None;
        }
        self.auditor.counters.events.fetch_add(u64::from(line.is_some()), Ordering::Relaxed);
        line
    }

    async fn write(&self, stage: Stage, is_last: bool) {
        if let Some(line) = self.line(stage, is_last) {
            self.auditor.log.send(line).await;
        }
    }

    pub(crate) async fn received(&self) {
        self.write(Stage::RequestReceived, false).await;
    }

    /// Of a request that was refused before anybody knew who sent it.
    pub(crate) async fn refused(&self, response: &mut HttpResponse) {
        self.with(|event| event.responded(self.verdict, response.status().as_u16(), object_of(response)));
        self.write(Stage::ResponseStarted, true).await;
    }

    /// Of any other one. What is answered bit by bit is complete at its end.
    pub(crate) async fn answered(self: Arc<Self>, response: &mut HttpResponse, long_running: bool) {
        let status = response.status().as_u16();
        let failed = status >= 400;
        let is_small = matches!(response.body(), Body::Full(Some(body)) if body.len() <= STATUS_BYTES_MAX);
        self.with(|event| {
            // What a success is about is told in the highest level alone; a deletion may answer with a Status.
            let told = if self.verdict.level >= Level::RequestResponse { !long_running } else { is_small && event.deletes() };
            let object = if failed || told { object_of(response) } else { None };
            event.responded(self.verdict, status, object);
        });
        if !long_running {
            return self.write(Stage::ResponseComplete, true).await;
        }
        self.write(Stage::ResponseStarted, false).await;
        if matches!(response.body(), Body::Stream(_)) {
            let body = std::mem::replace(response.body_mut(), Body::empty());
            *response.body_mut() = body.holding(self);
        }
        // Dropping the record completes it.
    }
}

/// A request that nobody waits for any more is complete as well.
impl Drop for Record {
    fn drop(&mut self) {
        if let Some(line) = self.line(Stage::ResponseComplete, true) {
            self.auditor.log.send_now(line);
        }
    }
}

/// A Status is shorter than this.
const STATUS_BYTES_MAX: usize = 64 << 10;
/// Of a compressed document no more is read.
const DOCUMENT_BYTES_MAX: u64 = 10 << 20;

/// The object in a response: what has a kind. Plain texts, OpenAPI and `/version` are none.
fn object_of(response: &HttpResponse) -> Option<Value> {
    let Body::Full(Some(body)) = response.body() else { return None };
    let mut unpacked = Vec::new();
    let body: &[u8] = if response.headers().contains_key(CONTENT_ENCODING) {
        GzDecoder::new(&body[..]).take(DOCUMENT_BYTES_MAX).read_to_end(&mut unpacked).ok()?;
        &unpacked
    } else {
        body
    };
    let media_type = response.headers().get(CONTENT_TYPE)?.to_str().ok()?.split(';').next()?.trim();
    let object: Value = match media_type {
        "application/json" => serde_json::from_slice(body).ok()?,
        "application/yaml" => serde_saphyr::from_slice(body).ok()?,
        PROTOBUF => crate::protobuf::decode(body, None).ok()?,
        _ => return None,
    };
    object["kind"].is_string().then_some(object)
}

/// Who forwarded the request, and who sent it: as upstream lists them.
fn source_ips(parts: &Parts) -> Vec<String> {
    let header = |name: &str| parts.headers.get(name).and_then(|v| v.to_str().ok());
    let forwarded = header("x-forwarded-for").unwrap_or_default().split(',').filter_map(|ip| ip.trim().parse::<IpAddr>().ok());
    let mut addresses: Vec<IpAddr> = forwarded.collect();
    if let Some(real) = header("x-real-ip").and_then(|ip| ip.trim().parse().ok())
        && !addresses.contains(&real)
    {
        addresses.push(real);
    }
    if let Some(RemoteAddress(remote)) = parts.extensions.get::<RemoteAddress>()
        && addresses.last() != Some(&remote.ip().to_canonical())
    {
        addresses.push(remote.ip().to_canonical());
    }
    addresses.iter().map(ToString::to_string).collect()
}

/// The name that the request has in the log: the one it came with, or a new one.
pub(crate) fn audit_id(parts: &Parts) -> http::HeaderValue {
    parts.headers.get(AUDIT_ID).filter(|id| !id.is_empty()).cloned().unwrap_or_else(|| {
        let id = uuid::Uuid::new_v4().to_string();
        http::HeaderValue::from_str(&id).expect("a UUID is good for a header")
    })
}
