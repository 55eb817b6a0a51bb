//! The server's own reads and writes, and its in-process service.

use super::handle::InProcess;
use super::{Server, system};
use crate::admission::UserInfo;
use crate::http::Body;
use crate::http::body::BoxError;
use crate::reader::{Reader, Writer};
use crate::registry::Resource;
use crate::rest::metadata;
use crate::rest::write::{apply_defaults, encode, is_finished};
use crate::store::{Store, storage_error};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use serde_json::Value;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use sublet_machinery::{ApiError, ObjectExt};
use sublet_storage::{Expect, StorageError};

impl Reader for Store {
    fn get(&self, group_resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        Store::get(self, group_resource, namespace, name).map(|e| Arc::new(e.value()))
    }

    fn list(&self, group_resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        Store::list(self, group_resource, namespace).entries.iter().map(|e| Arc::new(e.value())).collect()
    }

    fn revision(&self, group_resource: &str) -> u64 {
        self.resource_revision(group_resource)
    }
}

impl Reader for Server {
    fn get(&self, group_resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        Reader::get(self.store(), group_resource, namespace, name)
    }

    fn list(&self, group_resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        Reader::list(self.store(), group_resource, namespace)
    }

    fn revision(&self, group_resource: &str) -> u64 {
        Reader::revision(self.store(), group_resource)
    }
}

#[async_trait]
impl Writer for Server {
    fn server(&self) -> Option<&Server> {
        Some(self)
    }

    async fn create(&self, group_resource: &str, mut object: Value) -> Result<Value, ApiError> {
        let resource = self.row(group_resource)?;
        metadata::prepare_create(&resource, &mut object, &self.now());
        apply_defaults(&resource, &mut object);
        let (namespace, name) = (object.namespace().to_string(), object.name().to_string());
        let encoded = encode(&resource, &mut object);
        match self.store().write(group_resource, &namespace, &name, Some(encoded), Expect::Absent).await {
            Ok(entry) => Ok(entry.value()),
            Err(StorageError::Conflict { .. }) => Err(ApiError::already_exists(&resource.group, &resource.plural, &name)),
            Err(error) => Err(storage_error(&error)),
        }
    }

    async fn update(&self, group_resource: &str, mut object: Value) -> Result<Value, ApiError> {
        let resource = self.row(group_resource)?;
        let (namespace, name) = (object.namespace().to_string(), object.name().to_string());
        let entry = self
            .store()
            .get(group_resource, &namespace, &name)
            .ok_or_else(|| ApiError::not_found(&resource.group, &resource.plural, &name))?;
        let conflict = || ApiError::modified(&resource.group, &resource.plural, &name);
        if object.resource_version() != entry.revision.to_string() {
            return Err(conflict());
        }
        let finished = is_finished(&resource, &object);
        let encoded = (!finished).then(|| encode(&resource, &mut object));
        match self.store().write(group_resource, &namespace, &name, encoded, Expect::At(entry.revision)).await {
            Ok(entry) => {
                if finished {
                    self.after_delete(&resource, &object).await;
                }
                Ok(entry.value())
            }
            Err(StorageError::Conflict { .. }) => Err(conflict()),
            Err(error) => Err(storage_error(&error)),
        }
    }

    async fn delete(&self, group_resource: &str, namespace: &str, name: &str) -> Result<(), ApiError> {
        let resource = self.row(group_resource)?;
        match self.store().write(group_resource, namespace, name, None, Expect::Any).await {
            Ok(_) => Ok(()),
            Err(StorageError::Conflict { .. }) => Err(ApiError::not_found(&resource.group, &resource.plural, name)),
            Err(error) => Err(storage_error(&error)),
        }
    }
}

impl Server {
    /// The row that stores a resource.
    pub(crate) fn row(&self, group_resource: &str) -> Result<Arc<Resource>, ApiError> {
        let (plural, group) = group_resource.split_once('.').unwrap_or((group_resource, ""));
        let snapshot = self.registry().snapshot();
        let mut rows = snapshot.in_group(group).filter(|r| r.plural == plural);
        let first = rows.next().ok_or_else(ApiError::no_such_path)?;
        Ok(rows.find(|r| r.version == r.storage_version).unwrap_or(first).clone())
    }

    /// The server as a tower service that acts as `user`, without a network in between.
    pub fn service_as(&self, user: UserInfo) -> LocalService {
        LocalService { server: self.clone(), user: Arc::new(user) }
    }

    /// As [`Self::service_as`], as the system itself.
    pub fn system_service(&self) -> LocalService {
        self.service_as(system::system_user())
    }
}

/// Requests from within the process.
#[derive(Clone)]
pub struct LocalService {
    server: Server,
    user: Arc<UserInfo>,
}

impl<B> tower::Service<Request<B>> for LocalService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(InProcess(self.user.clone()));
        let server = self.server.clone();
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}
