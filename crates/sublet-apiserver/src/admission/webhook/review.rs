//! AdmissionReview: the question to a webhook and its answer.

use super::super::Attributes;
use super::super::view::Versioned;
use super::hook::Hook;
use base64::Engine as _;
use serde_json::{Value, json};
use uuid::Uuid;

/// A question that one hook is asked.
pub(super) struct Review {
    uid: String,
    version: &'static str,
    pub(super) operation: &'static str,
    pub(super) body: Value,
}

/// What a hook answered, found to be in order.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    /// JSON text of a patch; empty without one.
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) status: Option<Value>,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
}

impl Review {
    /// In the first version that both sides know.
    pub(super) fn new(hook: &Hook, attributes: &Attributes<'_>, seen: &Versioned) -> Result<Self, String> {
        let known = hook.review_versions.iter().find_map(|version| ["v1", "v1beta1"].into_iter().find(|known| known == version));
        let Some(version) = known else {
            return Err("could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)".into());
        };
        let uid = Uuid::new_v4().to_string();
        let mut request = attributes.request_seen(&seen.resource, &seen.kind);
        request["uid"] = json!(uid);
        request["object"] = seen.object.clone();
        request["oldObject"] = seen.old.clone();
        let body = json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request});
        Ok(Self { uid, version, operation: attributes.operation_name(), body })
    }

    /// Reads an answer; the error is worded as upstream words it.
    pub(super) fn read(&self, bytes: &[u8], mutating: bool) -> Result<Answer, String> {
        let wrong = |why: String| format!("received invalid webhook response: {why}");
        let review: Value = serde_json::from_slice(bytes)
            .map_err(|e| format!("failed to call webhook: couldn't get version/kind; json parse error: {e}"))?;
        let (kind, api_version) = (review["kind"].as_str().unwrap_or_default(), review["apiVersion"].as_str().unwrap_or_default());
        let is_v1 = self.version == "v1";
        if is_v1 && (kind.is_empty() || api_version.is_empty()) {
            let what = if kind.is_empty() { "Kind" } else { "apiVersion" };
            return Err(format!("failed to call webhook: Object '{what}' is missing in '{}'", String::from_utf8_lossy(bytes).trim_end()));
        }
        let response = &review["response"];
        if !response.is_object() {
            return Err(wrong("webhook response was absent".into()));
        }
        if is_v1 {
            let uid = response["uid"].as_str().unwrap_or_default();
            if uid != self.uid {
                return Err(wrong(format!("expected response.uid={:?}, got {uid:?}", self.uid)));
            }
            if kind != "AdmissionReview" || api_version != "admission.k8s.io/v1" {
                let got = format!("{}, Kind={kind}", api_version);
                return Err(wrong(format!("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {got}")));
            }
        }
        let patch = base64::engine::general_purpose::STANDARD.decode(response["patch"].as_str().unwrap_or_default());
        let patch = patch.map_err(|e| format!("failed to call webhook: illegal base64 data in response.patch: {e}"))?;
        let patch_type = response["patchType"].as_str();
        if is_v1 {
            match (mutating, patch.is_empty(), patch_type) {
                (true, false, None) => return Err(wrong("webhook returned response.patch but not response.patchType".into())),
                (true, true, Some(_)) => return Err(wrong("webhook returned response.patchType but not response.patch".into())),
                (true, _, Some("")) => return Err(wrong("webhook returned invalid response.patchType of \"\"".into())),
                (false, false, _) => return Err(wrong("validating webhook may not return response.patch".into())),
                (false, _, Some(_)) => return Err(wrong("validating webhook may not return response.patchType".into())),
                _ => {}
            }
        }
        let texts = |value: &Value| value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_string)).collect();
        let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
        Ok(Answer {
            allowed: response["allowed"] == true,
            patch_type: if is_v1 { patch_type.unwrap_or_default().to_string() } else { "JSONPatch".into() },
            patch,
            status: response.get("status").or_else(|| response.get("result")).filter(|s| s.is_object()).cloned(),
            warnings: texts(&response["warnings"]),
            annotations: annotations.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string()))).collect(),
        })
    }
}
