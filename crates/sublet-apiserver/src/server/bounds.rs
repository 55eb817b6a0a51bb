//! What one server may take of its process: connections and turns apart, bytes of bodies and watches.

use super::Server;
use crate::http::body::{self, BoxError};
use crate::http::negotiate::content_type;
use crate::rest::ResourceRequest;
use crate::rest::convert::storage_resource;
use bytes::Bytes;
use http_body::Body;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ApiError;
use sublet_share::{Budget, House, Share, Spent};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of request bodies that are being read. More are told to come back.
const READ_BYTES_MAX: usize = 48 << 20;
/// Bytes of request bodies that are being worked on; others wait. A body takes up to fifty times its size when it is
/// parsed, and two of the largest keep a heavy turn busy.
const WORK_BYTES_MAX: usize = 6 << 20;
/// Bodies up to this size are not counted among those: they are what clients send all day.
const SMALL_BYTES: usize = 8 << 10;
/// Bytes of lists that are being made and sent; others wait, and are told to come back.
const ANSWER_BYTES_MAX: usize = 96 << 20;
/// Lists up to this size are not counted.
const ANSWER_SMALL_BYTES: usize = 256 << 10;
/// Watches of one server.
const WATCHES_MAX: usize = 10_000;
/// How long a body may take to arrive, as upstream's bound for a request.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a request waits for others before it is told to come back.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bodies and objects from this size on take long to work on.
const HEAVY_BYTES: usize = 64 << 10;
/// Lists from this size on take long to write.
const HEAVY_LIST_BYTES: usize = 1 << 20;

/// The budgets of one server.
pub(crate) struct Bounds {
    share: Share,
    read: Budget,
    work: Budget,
    answers: Budget,
    watches: Arc<Semaphore>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            share: House::of_process().share(),
            read: Budget::new(READ_BYTES_MAX),
            work: Budget::new(WORK_BYTES_MAX),
            answers: Budget::new(ANSWER_BYTES_MAX),
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
        }
    }
}

impl Server {
    /// This server's part of the process; tasks that work for it run in its turns.
    pub fn share(&self) -> &Share {
        &self.bounds().share
    }

    /// Reads a body, and waits until it may be worked on. What it takes is given back when the second value is dropped.
    pub(crate) async fn take_body<B>(&self, body: B) -> Result<(Bytes, Spent), ApiError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let bounds = self.bounds();
        let mut reading = Spent::nothing();
        let read = body::read(body, |length| match bounds.read.try_spend(length) {
            Some(spent) => {
                reading.add(spent);
                Ok(())
            }
            None => Err(too_many()),
        });
        let body = tokio::time::timeout(READ_TIMEOUT, read).await.map_err(|_| timed_out())??;
        if body.len() <= SMALL_BYTES {
            return Ok((body, Spent::nothing()));
        }
        let mut spent = bounds.work.spend(body.len(), PATIENCE).await.ok_or_else(too_many)?;
        spent.add(reading);
        Ok((body, spent))
    }

    /// Waits until a list of about this size may be made. It is given back when the answer is sent.
    pub(crate) async fn allow_answer(&self, bytes: usize) -> Result<Option<Arc<Spent>>, ApiError> {
        if bytes <= ANSWER_SMALL_BYTES {
            return Ok(None);
        }
        let spent = self.bounds().answers.spend(bytes, PATIENCE).await.ok_or_else(too_many)?;
        Ok(Some(Arc::new(spent)))
    }

    /// One more watch, until what is returned is dropped.
    pub(crate) fn allow_watch(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.bounds().watches.clone().try_acquire_owned().map_err(|_| too_many())
    }

    /// Whether a request may compute for long: much to read or to write, or rules that others wrote.
    pub(crate) fn is_heavy(&self, request: &ResourceRequest<'_>) -> bool {
        let (info, resource) = (request.info, &request.resource);
        let bucket = storage_resource(resource);
        match info.verb {
            "get" => false,
            "list" | "watch" | "deletecollection" => self.store().bytes_of(&bucket) > HEAVY_LIST_BYTES,
            _ => {
                request.body.len() > HEAVY_BYTES
                    || resource.custom.as_ref().is_some_and(|custom| custom.rules.is_some() || request.body.len() > SMALL_BYTES)
                    || resource.group == "apiextensions.k8s.io"
                    || resource.group == "admissionregistration.k8s.io"
                    || content_type(request.headers) == "application/json-patch+json"
                    || is_long_yaml(request)
                    || self.has_policies()
                    || self.store().get(&bucket, &info.namespace, &info.name).is_some_and(|live| live.json.len() > HEAVY_BYTES)
            }
        }
    }

    fn has_policies(&self) -> bool {
        const BINDINGS: [&str; 2] = [
            "validatingadmissionpolicybindings.admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        ];
        BINDINGS.iter().any(|resource| self.store().count(resource) > 0)
    }
}

/// YAML takes many times as long to read as JSON, and an alias of it stands for any number of bytes.
fn is_long_yaml(request: &ResourceRequest<'_>) -> bool {
    let is_yaml = matches!(content_type(request.headers), "application/yaml" | "application/apply-patch+yaml");
    is_yaml && (request.body.len() > SMALL_BYTES || request.body.contains(&b'*'))
}

fn too_many() -> ApiError {
    ApiError::too_many_requests("Too many requests, please try again later.", 1)
}

/// As upstream says it.
fn timed_out() -> ApiError {
    let message = "Timeout: request did not complete within the allotted timeout";
    ApiError::new(504, sublet_machinery::Reason::Timeout, message)
}
