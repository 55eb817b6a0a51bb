//! Objects from one version to another. Most versions are converted here; some custom resources have a converter of
//! their tenant's, which is asked over the network.

use super::Server;
use crate::crd::{Conversion, kind_text};
use crate::registry::Resource;
use crate::rest::convert::{from_storage, is_stored_form, to_storage};
use crate::rest::selection::fields_of;
use crate::rest::write::encode;
use crate::store::entry::{Encoded, Entry};
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::{ApiError, ObjectExt, Reason};

/// How long a converter may take.
const CONVERTER_TIMEOUT: Duration = Duration::from_secs(30);
/// The most objects of one question.
const BATCH_MAX: usize = 500;

/// The converter of a resource, if it has one.
fn converter(resource: &Resource) -> Option<&Arc<Conversion>> {
    resource.custom.as_ref().and_then(|custom| custom.conversion.as_ref())
}

impl Server {
    /// The object in the version of another row of the same resource.
    pub(crate) async fn convert_object(&self, mut object: Value, from: &Resource, to: &Resource) -> Result<Value, ApiError> {
        if converter(to).is_some() {
            return self.object_at(object, to).await;
        }
        to_storage(from, &mut object);
        from_storage(to, &mut object);
        Ok(object)
    }

    /// A stored object in the version of a row.
    pub(crate) async fn object_at(&self, mut stored: Value, row: &Resource) -> Result<Value, ApiError> {
        if let Some(conversion) = converter(row).filter(|_| stored.api_version() != row.api_version()) {
            let mut converted = self.ask_converter(conversion, std::slice::from_ref(&stored), row).await?;
            return Ok(converted.remove(0));
        }
        from_storage(row, &mut stored);
        Ok(stored)
    }

    /// Stored objects in the version of a row, as if they were stored like that.
    pub(crate) async fn entries_at(&self, mut entries: Vec<Arc<Entry>>, row: &Resource) -> Result<Vec<Arc<Entry>>, ApiError> {
        let Some(conversion) = converter(row) else { return Ok(entries) };
        let others: Vec<usize> = (0..entries.len()).filter(|at| !is_stored_form(row, &entries[*at])).collect();
        for batch in others.chunks(BATCH_MAX) {
            let objects: Vec<Value> = batch.iter().map(|at| entries[*at].value()).collect();
            let converted = self.ask_converter(conversion, &objects, row).await?;
            for (at, object) in batch.iter().zip(converted) {
                let stored = Encoded::new(&object, &fields_of(row, &object));
                let (key, revision) = (entries[*at].key.clone(), entries[*at].revision);
                entries[*at] = Arc::new(Entry::compose(key, revision, &stored.stored).map_err(ApiError::internal)?);
            }
        }
        Ok(entries)
    }

    pub(crate) async fn entry_at(&self, entry: &Arc<Entry>, row: &Resource) -> Result<Arc<Entry>, ApiError> {
        if converter(row).is_none() {
            return Ok(entry.clone());
        }
        Ok(self.entries_at(vec![entry.clone()], row).await?.remove(0))
    }

    /// The stored form of an object in the version of its row.
    pub(crate) async fn stored_form(&self, row: &Resource, object: &mut Value) -> Result<Encoded, ApiError> {
        let Some(conversion) = converter(row) else { return Ok(encode(row, object)) };
        *object = self.object_at_storage(conversion, std::mem::take(object)).await?;
        Ok(encode(&conversion.storage, object))
    }

    async fn object_at_storage(&self, conversion: &Conversion, object: Value) -> Result<Value, ApiError> {
        if object.api_version() == conversion.storage.api_version() {
            return Ok(object);
        }
        Ok(self.ask_converter(conversion, std::slice::from_ref(&object), &conversion.storage).await?.remove(0))
    }

    async fn ask_converter(&self, conversion: &Conversion, objects: &[Value], to: &Resource) -> Result<Vec<Value>, ApiError> {
        let of = objects.first().map(kind_text).unwrap_or_default();
        let failed = |why: String| ApiError::new(500, Reason::Unknown, why);
        let target = conversion.target.as_ref().map_err(|why| failed(format!("conversion webhook for {of} failed: {why}")))?;
        let review = conversion.review(objects, &to.api_version()).map_err(failed)?;
        let body = Bytes::from(serde_json::to_vec(&review.body).expect("a Value is always writable"));
        let answer = self.outgoing().call(self, target, body, CONVERTER_TIMEOUT).await;
        let answer = answer.map_err(|why| failed(format!("conversion webhook for {of} failed: {why}")))?;
        review.read(&answer, objects, to).map_err(failed)
    }
}
