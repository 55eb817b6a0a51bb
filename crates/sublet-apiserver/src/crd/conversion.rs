//! `conversion.strategy: Webhook`: the tenant's own converter between the versions of a custom resource.

use crate::outgoing::Target;
use crate::registry::Resource;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_machinery::structural::{self, Decoded};
use uuid::Uuid;

/// How objects of one definition are converted.
#[derive(Debug)]
pub struct Conversion {
    pub(crate) target: Result<Target, String>,
    review_versions: Vec<String>,
    /// The row of the version in storage, served or not.
    pub(crate) storage: Arc<Resource>,
}

/// A question to the converter.
pub(crate) struct Review {
    uid: String,
    version: &'static str,
    pub(crate) body: Value,
}

impl Conversion {
    /// `None` when versions differ in name alone.
    pub(super) fn of(crd: &Value, storage: Arc<Resource>) -> Option<Self> {
        if crd.str_at("/spec/conversion/strategy") != Some("Webhook") {
            return None;
        }
        let webhook = &crd["spec"]["conversion"]["webhook"];
        let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten();
        Some(Self {
            target: Target::of_client_config(&webhook["clientConfig"]),
            review_versions: versions.filter_map(Value::as_str).map(str::to_string).collect(),
            storage,
        })
    }

    /// Asks for objects in another version.
    pub(crate) fn review(&self, objects: &[Value], api_version: &str) -> Result<Review, String> {
        let known = self.review_versions.iter().find_map(|version| ["v1", "v1beta1"].into_iter().find(|known| known == version));
        let version = known.ok_or("no supported conversion review versions")?;
        let uid = Uuid::new_v4().to_string();
        let body = json!({
            "kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": objects},
        });
        Ok(Review { uid, version, body })
    }
}

impl Review {
    /// Reads the answer: an object for each that was asked for, in its new version.
    pub(crate) fn read(&self, bytes: &[u8], originals: &[Value], to: &Resource) -> Result<Vec<Value>, String> {
        let of = originals.first().map(kind_text).unwrap_or_default();
        let failed = |why: String| format!("conversion webhook for {of} failed: {why}");
        let review: Value =
            serde_json::from_slice(bytes).map_err(|e| failed(format!("couldn't get version/kind; json parse error: {e}")))?;
        let response = &review["response"];
        if self.version == "v1" && (review.kind() != "ConversionReview" || review.api_version() != "apiextensions.k8s.io/v1") {
            let got = kind_text(&review);
            return Err(failed(format!("expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {got}")));
        }
        if !response.is_object() {
            return Err(failed("no response provided".into()));
        }
        let uid = response["uid"].as_str().unwrap_or_default();
        if self.version == "v1" && uid != self.uid {
            return Err(failed(format!("expected response.uid={:?}, got {uid:?}", self.uid)));
        }
        let status = response.str_at("/result/status").unwrap_or_default();
        if status != "Success" {
            let message = response.str_at("/result/message").filter(|m| !m.is_empty()).map(str::to_string);
            return Err(failed(message.unwrap_or_else(|| format!("response.result.status was '{status}', not 'Success'"))));
        }
        let converted = response.array_at("/convertedObjects");
        if converted.len() != originals.len() {
            return Err(format!("conversion webhook for {of} returned {} objects, expected {}", converted.len(), originals.len()));
        }
        let pairs = originals.iter().zip(converted);
        pairs.enumerate().map(|(index, (original, converted))| take(index, original, converted.clone(), to)).collect()
    }
}

/// One converted object: the same object as before, with the metadata that it had.
fn take(index: usize, original: &Value, mut converted: Value, to: &Resource) -> Result<Value, String> {
    let of = kind_text(original);
    let invalid = |why: String| format!("conversion webhook for {of} returned invalid converted object at index {index}: {why}");
    let wanted = to.api_version();
    if converted.api_version() != wanted {
        return Err(invalid(format!("invalid groupVersion (expected {wanted}, received {})", converted.api_version())));
    }
    if converted.kind() != original.kind() {
        return Err(invalid(format!("invalid kind (expected {}, received {})", original.kind(), converted.kind())));
    }
    for (what, before, after) in [
        ("name", original.name(), converted.name()),
        ("namespace", original.namespace(), converted.namespace()),
        ("UID", original.uid(), converted.uid()),
    ] {
        if before != after {
            return Err(invalid(format!("must have the same {what}: {before} != {after}")));
        }
    }
    let metadata = |why: String| format!("conversion webhook for {of} returned invalid metadata in object at index {index}: {why}");
    let kept = restore(original, &converted).map_err(metadata)?;
    converted["metadata"] = Value::Object(kept);
    let mut decoded = Decoded { value: converted, ..Decoded::default() };
    super::read(to, &mut decoded).map_err(|e| invalid(e.message))?;
    structural::default(&mut decoded.value, to.schema.node());
    Ok(decoded.value)
}

/// Converters may change labels and annotations; all else of the metadata stays.
fn restore(original: &Value, converted: &Value) -> Result<Map<String, Value>, String> {
    let given = converted.get("metadata").ok_or("missing metadata in converted object")?;
    let given = given.as_object().ok_or("invalid metadata in converted object")?;
    let mut kept = original["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match given.get(field).filter(|v| !v.is_null()) {
            None => drop(kept.remove(field)),
            Some(Value::Object(map)) => {
                if let Some((key, _)) = map.iter().find(|(_, value)| !value.is_string()) {
                    return Err(format!("metadata.{field}[{key}] must be a string in converted object"));
                }
                kept.insert(field.into(), Value::Object(map.clone()));
            }
            Some(_) => return Err(format!("invalid metadata.{field} in converted object")),
        }
    }
    Ok(kept)
}

/// `group/version, Kind=Kind`
pub(crate) fn kind_text(object: &Value) -> String {
    format!("{}, Kind={}", object.api_version(), object.kind())
}
