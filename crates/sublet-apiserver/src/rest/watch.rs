//! Watches: the log of a resource, seen through a selection.

use super::ResourceRequest;
use super::convert::{self, storage_resource};
use super::options::{ListOptions, parse_version};
use super::selection::Selection;
use crate::http::HttpResponse;
use crate::http::body::{Body, BoxError};
use crate::http::negotiate::{Accepted, Encoding, Form};
use crate::protobuf::{self, ProtobufError};
use crate::registry::Resource;
use crate::server::Server;
use crate::store::Store;
use crate::store::entry::Entry;
use crate::store::log::{EventType, LogEvent, frame};
use crate::table;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ApiError;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Events taken from the log at once.
const EVENTS_BATCH: usize = 256;
/// Bytes of lines that are sent as one part, and steps to gather them.
const PART_BYTES_MAX: usize = 16 << 10;
const PART_STEPS_MAX: usize = 64;
/// A watch on which much happens sends a part so often, with all that happened in between: a part costs more than what is in it, in
/// wake-ups, records and writes, for each watcher.
const GATHER: Duration = Duration::from_millis(10);
/// Parts that a watch may send at once after a pause: what people and controllers do one after the other waits for nothing.
const PARTS_AT_ONCE: f64 = 6.0;
/// How long a watch is quiet for each of them.
const PART_EARNED: Duration = Duration::from_millis(15);
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Watches without a time-out end between this and twice this, as upstream's.
const TIMEOUT_MIN: Duration = Duration::from_secs(1800);

/// One watcher: where it stands and what it wants to see.
struct Watcher {
    /// Converts for versions that are not stored.
    server: Server,
    store: Store,
    bucket: String,
    /// Start of the keys of its namespace, or empty.
    prefix: String,
    resource: Arc<Resource>,
    selection: Selection,
    encoding: Encoding,
    form: Form,
    include_object: table::IncludeObject,
    /// The first table of a watch carries the column headers.
    headers_sent: bool,
    /// What it was shown is complete up to here.
    position: u64,
    /// How far the log was read.
    taken_to: u64,
    /// The newest revision that the client knows of.
    told: u64,
    /// Whether it waits for more before it sends again.
    gathers: bool,
    /// When the last part was sent, and when the next one may be. Until then nobody need wake the watcher.
    sent: Instant,
    next_at: Instant,
    /// Parts that it may send without waiting.
    spare: f64,
    /// The present state, as far as it was not shown yet.
    initial: std::vec::IntoIter<Arc<Entry>>,
    /// Whether the end of the present state is to be told.
    marks_initial_end: bool,
    /// Events that were taken from the log. They are encoded when the client has room: most are shared, and all are many.
    events: VecDeque<Arc<LogEvent>>,
    ready: VecDeque<Bytes>,
    changes: watch::Receiver<u64>,
    bookmarks: Option<Instant>,
    deadline: Instant,
    stop: CancellationToken,
    ended: bool,
    /// One of the watches that a server has.
    _slot: OwnedSemaphorePermit,
}

impl Server {
    /// `in_process`: nothing is between the watch and its reader that would be worth gathering for.
    pub(crate) async fn handle_watch(&self, request: &ResourceRequest<'_>, in_process: bool) -> Result<HttpResponse, ApiError> {
        let mut options = ListOptions::parse(request.query, true)?;
        // The deprecated watch of one object by its path.
        if !request.info.name.is_empty() {
            options.field_selector = format!("metadata.name={}", request.info.name);
        }
        let selection = Selection::parse(&request.resource, &options.label_selector, &options.field_selector)?;
        if request.accepted.encoding == Encoding::Yaml {
            return Err(ApiError::not_acceptable(
                "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                 application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
            ));
        }
        let bucket = storage_resource(&request.resource);
        let namespaced = request.resource.namespaced && !request.info.namespace.is_empty();
        let prefix = if namespaced { format!("{bucket}/{}/", request.info.namespace) } else { String::new() };
        // Registered before the first read, so that nothing falls in between.
        let changes = self.store().changes(&bucket);
        let timeout = options.timeout_seconds.map_or_else(default_timeout, |s| Duration::from_secs(s.min(86_400)));
        let mut watcher = Watcher {
            server: self.clone(),
            store: self.store().clone(),
            bucket,
            prefix,
            resource: request.resource.clone(),
            selection,
            encoding: request.accepted.encoding,
            form: request.accepted.form,
            include_object: table::IncludeObject::parse(request.query.get("includeObject")).unwrap_or_default(),
            headers_sent: false,
            position: 0,
            taken_to: 0,
            told: 0,
            gathers: !in_process,
            sent: Instant::now(),
            next_at: Instant::now(),
            spare: PARTS_AT_ONCE,
            initial: Vec::new().into_iter(),
            marks_initial_end: false,
            events: VecDeque::new(),
            ready: VecDeque::new(),
            changes,
            bookmarks: options.allow_bookmarks.then(|| Instant::now() + BOOKMARK_INTERVAL),
            deadline: Instant::now() + timeout,
            stop: self.stop_token().clone(),
            ended: false,
            _slot: self.allow_watch()?,
        };
        let version = parse_version(&options.resource_version)?;
        self.start(&mut watcher, version, &options).await?;
        Ok(stream(watcher, request.accepted))
    }

    async fn start(&self, watcher: &mut Watcher, version: Option<u64>, options: &ListOptions) -> Result<(), ApiError> {
        let initial = options.send_initial_events;
        if let Some(version) = version.filter(|v| *v > 0) {
            if initial == Some(true) || version > self.store().revision() {
                self.wait_for(version).await?;
            }
            if initial != Some(true) {
                (watcher.position, watcher.told) = (version, version);
                return Ok(());
            }
        }
        let snapshot = self.store().list(&watcher.bucket, None);
        watcher.position = snapshot.revision;
        // Upstream: without sendInitialEvents, "" and "0" begin with the present state.
        if initial != Some(false) {
            watcher.initial = self.entries_at(snapshot.entries, &watcher.resource).await?.into_iter();
        }
        watcher.marks_initial_end = initial == Some(true) && options.allow_bookmarks;
        Ok(())
    }
}

fn default_timeout() -> Duration {
    TIMEOUT_MIN + Duration::from_secs(u64::from(rand::random::<u16>()) * 1800 / 65536)
}

fn stream(watcher: Watcher, accepted: Accepted) -> HttpResponse {
    let body = Body::stream(futures::stream::unfold(watcher, |mut watcher| async move {
        let part = watcher.next_part().await?;
        Some((Ok::<Bytes, BoxError>(part), watcher))
    }));
    let mut response = http::Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let media_type = match accepted.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    };
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(media_type));
    response.headers_mut().insert(CACHE_CONTROL, http::HeaderValue::from_static("no-cache, private"));
    response
}

impl Watcher {
    /// The next line, and those that are there with it when they are small: each part costs a frame and a write.
    async fn next_part(&mut self) -> Option<Bytes> {
        let first = self.next().await?;
        let mut part = Vec::new();
        for _ in 0..PART_STEPS_MAX {
            if let Some(line) = self.ready.front() {
                if first.len().max(part.len()) + line.len() > PART_BYTES_MAX {
                    break;
                }
                if part.is_empty() {
                    part.extend_from_slice(&first);
                }
                part.extend_from_slice(line);
                self.ready.pop_front();
            } else if self.ended || !self.go_on() {
                break;
            }
        }
        if self.gathers {
            self.pace(Instant::now());
        }
        Some(if part.is_empty() { first } else { part.into() })
    }

    /// The next line; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            if self.go_on() {
                // What is not selected costs time too, and others want to have theirs.
                tokio::task::coop::consume_budget().await;
                continue;
            }
            if self.next_at > Instant::now() {
                self.gather().await;
                continue;
            }
            self.changes.mark_unchanged();
            match self.store.events_after(&self.bucket, self.position, EVENTS_BATCH) {
                Ok((events, complete_to)) => {
                    let moved = !events.is_empty();
                    if let Err(error) = self.take_all(events).await {
                        self.ended = true;
                        let line = self.error(&error);
                        self.ready.push_back(line);
                        continue;
                    }
                    self.taken_to = complete_to.max(self.taken_to);
                    if moved {
                        continue;
                    }
                }
                Err(_) => {
                    self.ended = true;
                    let oldest = self.store.revision();
                    let error = ApiError::expired(format!("too old resource version: {} ({oldest})", self.position));
                    return Some(self.error(&error));
                }
            }
            self.wait().await;
        }
    }

    /// Takes the next step with what is there already; `false`: there is nothing.
    fn go_on(&mut self) -> bool {
        if let Some(entry) = self.initial.next() {
            if entry.key.starts_with(&self.prefix) && self.selection.matches(&entry) {
                let line = self.encode(EventType::Added, &LogEvent::new(entry, None, false));
                self.ready.push_back(line);
            }
            return true;
        }
        if std::mem::take(&mut self.marks_initial_end) {
            let bookmark = self.bookmark(true);
            self.ready.push_back(bookmark);
            return true;
        }
        let Some(event) = self.events.pop_front() else {
            self.position = self.taken_to.max(self.position);
            return false;
        };
        self.position = event.revision;
        self.take(&event);
        true
    }

    async fn take_all(&mut self, events: Vec<Arc<LogEvent>>) -> Result<(), ApiError> {
        let resource = self.resource.clone();
        if resource.custom.as_ref().is_none_or(|custom| custom.conversion.is_none()) {
            self.events.extend(events);
            return Ok(());
        }
        let prefix = self.prefix.clone();
        for event in events.into_iter().filter(|event| event.entry.key.starts_with(&prefix)) {
            let mut entries = vec![event.entry.clone()];
            entries.extend(event.previous.clone());
            let mut entries = self.server.entries_at(entries, &resource).await?.into_iter();
            let entry = entries.next().expect("an entry for each");
            self.events.push_back(Arc::new(LogEvent::new(entry, entries.next(), event.deleted)));
        }
        Ok(())
    }

    async fn wait(&mut self) {
        let bookmark_at = self.bookmarks.unwrap_or(self.deadline).min(self.deadline);
        tokio::select! {
            // The sender lives as long as the store, which this watcher holds.
            _ = self.changes.changed() => {}
            () = tokio::time::sleep_until(bookmark_at) => {
                if self.bookmarks.is_some() {
                    self.bookmarks = Some(Instant::now() + BOOKMARK_INTERVAL);
                    self.catch_up();
                    // A quiet server has nothing to tell: most watches of a tenant are quiet for hours.
                    if self.position > self.told {
                        let line = self.bookmark(false);
                        self.ready.push_back(line);
                    }
                }
                if Instant::now() >= self.deadline {
                    self.ended = true;
                }
            }
            () = self.stop.cancelled() => self.ended = true,
        }
    }

    /// Says when the next part may follow the one that is sent now. Only quiet earns spare parts: who waited in between earns nothing.
    fn pace(&mut self, now: Instant) {
        let quiet = (now - self.sent).saturating_sub(GATHER);
        self.spare = (self.spare + quiet.as_secs_f64() / PART_EARNED.as_secs_f64()).min(PARTS_AT_ONCE);
        self.sent = now;
        if self.spare >= 1.0 {
            self.spare -= 1.0;
        } else {
            self.next_at = now + GATHER;
        }
    }

    /// Lets more come.
    async fn gather(&mut self) {
        tokio::select! {
            () = tokio::time::sleep_until(self.next_at) => {}
            () = self.stop.cancelled() => self.ended = true,
        }
    }

    /// Moves on over what happened to other resources, when nothing happened to this one.
    fn catch_up(&mut self) {
        if let Ok((events, complete_to)) = self.store.events_after(&self.bucket, self.position, 1)
            && events.is_empty()
        {
            self.position = complete_to.max(self.position);
        }
    }

    fn take(&mut self, event: &LogEvent) {
        if !event.entry.key.starts_with(&self.prefix) {
            return;
        }
        let now = !event.deleted && self.selection.matches(&event.entry);
        let before = event.previous.as_ref().is_some_and(|p| self.selection.matches(p));
        let event_type = match (before, now) {
            (false, true) => EventType::Added,
            (true, true) => EventType::Modified,
            (true, false) => EventType::Deleted,
            (false, false) => return,
        };
        let line = self.encode(event_type, event);
        self.told = event.revision;
        self.ready.push_back(line);
    }

    fn encode(&mut self, event_type: EventType, event: &LogEvent) -> Bytes {
        let shared = self.form == Form::Whole && convert::is_stored_form(&self.resource, &event.entry);
        if shared && self.encoding == Encoding::Protobuf {
            let frame = event.protobuf_frame(event_type, &self.resource.api_version(), &self.resource.kind);
            return frame.unwrap_or_else(|e| self.fail(&e));
        }
        if shared {
            return event.json_frame(event_type);
        }
        let entry: Arc<Entry> = match (event_type, event.deleted, &event.previous) {
            (EventType::Deleted, false, Some(previous)) => Arc::new(previous.at_revision(event.revision)),
            _ => event.entry.clone(),
        };
        let mut object = entry.value();
        convert::from_storage(&self.resource, &mut object);
        let shown = match self.form {
            Form::Whole => object,
            Form::Metadata => table::partial(&object),
            Form::Table => {
                super::present::table_of_one(&self.resource, &object, self.include_object, std::mem::replace(&mut self.headers_sent, true))
            }
        };
        self.write(event_type.as_str(), &shown)
    }

    /// One event in the encoding of this watch.
    fn write(&mut self, event_type: &str, object: &Value) -> Bytes {
        if self.encoding == Encoding::Protobuf {
            return protobuf::watch_event(event_type, object).unwrap_or_else(|e| self.fail(&e));
        }
        frame(event_type, object.to_string().as_bytes())
    }

    fn error(&mut self, error: &ApiError) -> Bytes {
        self.write("ERROR", &error.to_status())
    }

    /// An object that cannot be encoded ends the watch: the client would wait for it in vain.
    fn fail(&mut self, error: &ProtobufError) -> Bytes {
        self.ended = true;
        let status = ApiError::internal(format!("protobuf: {error}")).to_status();
        protobuf::watch_event("ERROR", &status).unwrap_or_default()
    }

    fn bookmark(&mut self, initial_end: bool) -> Bytes {
        self.told = self.position;
        let mut metadata = json!({"resourceVersion": self.position.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata});
        let object = match self.form {
            Form::Whole => object,
            Form::Metadata => table::partial(&object),
            // As upstream, a row of an object that has nothing but a version.
            Form::Table => {
                super::present::table_of_one(&self.resource, &object, self.include_object, std::mem::replace(&mut self.headers_sent, true))
            }
        };
        self.write("BOOKMARK", &object)
    }
}
