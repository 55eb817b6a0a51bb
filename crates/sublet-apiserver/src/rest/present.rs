//! Showing objects: whole, as metadata only, or as a table; one or a list.

use super::ResourceRequest;
use super::convert::{entry_json, from_storage};
use super::list::Page;
use super::list_body::{JsonList, ListBody, ProtobufList};
use crate::http::negotiate::{Encoding, Form, PROTOBUF};
use crate::http::{HttpResponse, respond};
use crate::protobuf;
use crate::registry::Resource;
use crate::server::Server;
use crate::store::entry::Entry;
use crate::table;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt, Reason};

/// Lists of more bytes than this are parsed and shown in parts.
const PARSED_BYTES_MAX: usize = 2 << 20;
/// Objects of a part.
const PARSED_MAX: usize = 128;

impl Server {
    pub(crate) async fn present_entry(
        &self,
        request: &ResourceRequest<'_>,
        status: StatusCode,
        entry: &Arc<Entry>,
    ) -> Result<HttpResponse, ApiError> {
        let entry = &self.entry_at(entry, &request.resource).await?;
        if request.accepted.form == Form::Whole {
            let json = entry_json(&request.resource, entry);
            if request.accepted.encoding == Encoding::Protobuf {
                let resource = &request.resource;
                return Ok(respond::protobuf(status, protobuf::encode_json(&resource.api_version(), &resource.kind, &json)));
            }
            return Ok(respond::json(status, request.accepted, json));
        }
        let mut object = entry.value();
        from_storage(&request.resource, &mut object);
        self.present_value(request, status, &object)
    }

    /// Shows an object that is already in the form of the request's version.
    pub(crate) fn present_value(
        &self,
        request: &ResourceRequest<'_>,
        status: StatusCode,
        object: &Value,
    ) -> Result<HttpResponse, ApiError> {
        let shown = match request.accepted.form {
            Form::Whole => return Ok(respond::value(status, request.accepted, object)),
            Form::Metadata if request.accepted.of_list => {
                return Err(ApiError::new(
                    406,
                    Reason::NotAcceptable,
                    format!(
                        "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
                        request.resource.internal_package(),
                        request.resource.kind
                    ),
                ));
            }
            Form::Metadata => table::partial(object),
            Form::Table => {
                let metadata = json!({"resourceVersion": object.resource_version()});
                self.table(request, std::slice::from_ref(object), metadata)?
            }
        };
        Ok(respond::value(status, request.accepted, &shown))
    }

    pub(crate) fn present_list(&self, request: &ResourceRequest<'_>, page: Page) -> Result<HttpResponse, ApiError> {
        let mut metadata = json!({"resourceVersion": page.revision.to_string()});
        if !page.continue_token.is_empty() {
            metadata["continue"] = json!(page.continue_token);
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        let resource = &request.resource;
        if request.accepted.form == Form::Metadata && !request.accepted.of_list {
            return Err(ApiError::new(
                406,
                Reason::NotAcceptable,
                format!(
                    "you requested PartialObjectMetadata, but the requested object is a list (*{}.{})",
                    resource.internal_package(),
                    resource.list_kind
                ),
            ));
        }
        if request.accepted.form == Form::Whole && request.accepted.encoding == Encoding::Protobuf {
            let written = ProtobufList::new(resource, &metadata).and_then(|form| self.list_body(request, &form, &page));
            return Ok(match written {
                Ok(body) => body.respond(PROTOBUF),
                Err(error) => respond::protobuf(StatusCode::OK, Err(error)),
            });
        }
        if request.accepted.form == Form::Whole {
            let form = JsonList { resource, metadata: &metadata };
            let Ok(body) = self.list_body(request, &form, &page);
            return Ok(match body {
                ListBody::Plain(json) => respond::json(StatusCode::OK, request.accepted, json),
                gzip => gzip.respond("application/json"),
            });
        }
        // A parsed object takes many times its bytes, so that of a long list few are at a time.
        let bytes: usize = page.entries.iter().map(|e| e.json.len()).sum();
        let at_once = if bytes > PARSED_BYTES_MAX { PARSED_MAX } else { page.entries.len().max(1) };
        let objects = |entries: &[Arc<Entry>]| -> Vec<Value> {
            let object = |entry: &Arc<Entry>| {
                let mut object = entry.value();
                from_storage(resource, &mut object);
                object
            };
            entries.iter().map(object).collect()
        };
        let shown = match request.accepted.form {
            Form::Table => {
                let mut chunks = page.entries.chunks(at_once);
                let mut shown = self.table(request, &objects(chunks.next().unwrap_or_default()), metadata)?;
                for chunk in chunks {
                    let mut more = self.table(request, &objects(chunk), Value::Null)?;
                    if let (Some(rows), Some(more)) = (shown["rows"].as_array_mut(), more["rows"].as_array_mut()) {
                        rows.append(more);
                    }
                }
                shown
            }
            _ => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "items": page.entries.chunks(at_once).flat_map(|c| objects(c).iter().map(table::partial).collect::<Vec<_>>()).collect::<Vec<_>>(),
            }),
        };
        Ok(respond::value(StatusCode::OK, request.accepted, &shown))
    }

    fn table(&self, request: &ResourceRequest<'_>, objects: &[Value], metadata: Value) -> Result<Value, ApiError> {
        let asked = request.query.get("includeObject");
        let include_object = table::IncludeObject::parse(asked).ok_or_else(|| {
            let error = FieldError::invalid(&FieldPath::new("includeObject"), asked, "must be 'Metadata', 'Object', 'None', or empty");
            ApiError::bad_request(format!("Unable to convert to Table as requested: {error}"))
        })?;
        let list = request.info.name.is_empty();
        let options = table::TableOptions { include_object, no_headers: false, list, now: self.clock_now() };
        Ok(table::render(&request.resource, objects, &options, metadata))
    }
}

/// The table in one event of a watch. Only the first has headers.
pub(crate) fn table_of_one(resource: &Resource, object: &Value, include_object: table::IncludeObject, no_headers: bool) -> Value {
    let metadata = json!({"resourceVersion": object.resource_version()});
    let options = table::TableOptions { include_object, no_headers, list: true, now: jiff::Timestamp::now() };
    table::render(resource, std::slice::from_ref(object), &options, metadata)
}
