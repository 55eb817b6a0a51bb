//! The body of a list: stored objects are copied, not encoded again, and compressed once for many readers.

use super::ResourceRequest;
use super::convert::{entry_json, from_storage, is_stored_form};
use super::list::Page;
use crate::http::negotiate::{Encoding, accepts_gzip};
use crate::http::{HttpResponse, respond};
use crate::packed::{self, ListForm};
use crate::protobuf::{ListEncoder, ProtobufError};
use crate::registry::Resource;
use crate::server::Server;
use crate::store::entry::Entry;
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;

pub(super) enum ListBody {
    Plain(Bytes),
    Gzip(Bytes),
}

impl ListBody {
    pub(super) fn respond(self, content_type: &'static str) -> HttpResponse {
        match self {
            Self::Plain(body) => respond::bytes(StatusCode::OK, content_type, body),
            Self::Gzip(body) => respond::compressed(StatusCode::OK, content_type, body),
        }
    }
}

impl Server {
    pub(super) fn list_body<F: ListForm>(&self, request: &ResourceRequest<'_>, form: &F, page: &Page) -> Result<ListBody, F::Error> {
        let rewritten = request.accepted.pretty || request.accepted.encoding == Encoding::Yaml;
        let large = page.entries.iter().map(|e| e.json.len()).sum::<usize>() >= respond::GZIP_BYTES_MIN;
        if large && !rewritten && accepts_gzip(request.headers) {
            return Ok(ListBody::Gzip(packed::gzip(self.store().id(), form, &page.entries)?.into()));
        }
        Ok(ListBody::Plain(packed::plain(form, &page.entries)?.into()))
    }
}

/// Items of built-in lists carry no type, those of custom resources do, as upstream's.
pub(super) struct JsonList<'a> {
    pub resource: &'a Resource,
    pub metadata: &'a Value,
}

impl ListForm for JsonList<'_> {
    type Error = Infallible;

    fn name(&self) -> Arc<str> {
        // What is read is completed by the definition that is in force.
        let definition = self.resource.custom.as_ref().map_or(0, |c| c.crd_revision);
        format!("json {}/{} {definition}", self.resource.api_version(), self.resource.plural).into()
    }

    fn write_item(&self, out: &mut Vec<u8>, entry: &Entry) -> Result<(), Infallible> {
        let typed = self.resource.custom.is_none();
        if !is_stored_form(self.resource, entry) {
            let mut object = entry.value();
            from_storage(self.resource, &mut object);
            if typed && let Some(map) = object.as_object_mut() {
                map.remove("apiVersion");
                map.remove("kind");
            }
            serde_json::to_writer(out, &object).expect("writing to memory");
        } else if typed {
            out.push(b'{');
            out.extend_from_slice(entry.body_without_type());
        } else {
            out.extend_from_slice(&entry.json);
        }
        Ok(())
    }

    fn separator(&self) -> &'static [u8] {
        b","
    }

    fn around(&self, _items_bytes: usize) -> Result<(Vec<u8>, Vec<u8>), Infallible> {
        let (list_kind, api_version, metadata) = (&self.resource.list_kind, self.resource.api_version(), self.metadata);
        let head = format!("{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[");
        Ok((head.into(), b"]}\n".into()))
    }
}

/// Each item is written from its stored JSON in one pass.
pub(super) struct ProtobufList<'a> {
    resource: &'a Resource,
    metadata: &'a Value,
    encoder: ListEncoder,
}

impl<'a> ProtobufList<'a> {
    pub(super) fn new(resource: &'a Resource, metadata: &'a Value) -> Result<Self, ProtobufError> {
        let encoder = ListEncoder::new(&resource.api_version(), &resource.list_kind)?;
        Ok(Self { resource, metadata, encoder })
    }
}

impl ListForm for ProtobufList<'_> {
    type Error = ProtobufError;

    fn name(&self) -> Arc<str> {
        format!("protobuf {}/{}", self.resource.api_version(), self.resource.plural).into()
    }

    fn write_item(&self, out: &mut Vec<u8>, entry: &Entry) -> Result<(), ProtobufError> {
        self.encoder.item(out, &entry_json(self.resource, entry))
    }

    fn separator(&self) -> &'static [u8] {
        b""
    }

    fn around(&self, items_bytes: usize) -> Result<(Vec<u8>, Vec<u8>), ProtobufError> {
        self.encoder.around(self.metadata, items_bytes)
    }
}
