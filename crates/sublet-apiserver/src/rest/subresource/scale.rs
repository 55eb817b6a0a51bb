//! The scale subresource, for built-in and custom kinds.

use crate::facts::builtin;
use crate::http::{HttpResponse, respond};
use crate::registry::{ScalePaths, Subresource};
use crate::rest::write::{Change, Written};
use crate::rest::{ResourceRequest, decode, options};
use crate::server::Server;
use http::StatusCode;
use serde_json::{Value, json};
use sublet_machinery::selector::Selector;
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt, apply, patch};

impl Server {
    pub(crate) async fn scale(&self, request: &ResourceRequest<'_>, subresource: &Subresource) -> Result<HttpResponse, ApiError> {
        let paths = &scale_paths(subresource);
        if request.info.verb == "get" {
            let scale = scale_of(&self.live(request).await?, paths);
            return self.present_scale(request, &scale);
        }
        let dry_run = options::dry_run(request.query, "UpdateOptions")?;
        let written = match &decode::parse_body_as_patch_or_object(request)? {
            decode::ScaleBody::Apply(config) => self.apply_scale(request, config, paths, dry_run).await?,
            body => {
                let change = |live: &Value| {
                    let current = scale_of(live, paths);
                    let wanted = match body {
                        decode::ScaleBody::Object(scale) | decode::ScaleBody::Apply(scale) => scale.clone(),
                        decode::ScaleBody::Merge(patch) => patch::merge_patch::apply(&current, patch)?,
                        decode::ScaleBody::Json(operations) => patch::json_patch::apply(&current, operations)?,
                    };
                    scaled(request, live, &current, &wanted, paths)
                };
                self.modify_live(request, dry_run, change).await?
            }
        };
        let object = match written {
            Written::Value(object) => object,
            Written::Entry(entry) => self.object_at(entry.value(), &request.resource).await?,
        };
        self.present_scale(request, &scale_of(&object, paths))
    }

    /// Server-side apply of a Scale: the owners of the replicas are those of the object, seen through the Scale.
    async fn apply_scale(
        &self,
        request: &ResourceRequest<'_>,
        config: &Value,
        paths: &ScalePaths,
        dry_run: bool,
    ) -> Result<Written, ApiError> {
        if request.query.get("fieldManager").is_empty() {
            let error = FieldError::required(&FieldPath::new("fieldManager"), "is required for apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        let schema = builtin().kind("autoscaling", "v1", "Scale").expect("the facts have Scale");
        let (manager, force) = (request.field_manager()?, request.query.bool("force"));
        let api_version = request.resource.api_version();
        let replicas = paths.spec_replicas.trim_start_matches('/').replace('/', ".");
        let unusable = |error: String| ApiError::internal(format!("failed to decode managed fields: {error}"));
        let change = |live: &Value| {
            let owners = live["metadata"].get("managedFields");
            let versions = live.array_at("/metadata/managedFields").iter().filter_map(|e| e["apiVersion"].as_str());
            let paths_of_versions: Vec<(&str, Option<&str>)> =
                versions.chain([api_version.as_str()]).map(|version| (version, Some(replicas.as_str()))).collect();
            let fields = apply::ScaleFields { api_version: &api_version, paths: &paths_of_versions };
            let mut current = scale_of(live, paths);
            if let Some(entries) = apply::managed_fields_to_scale(owners, &fields).map_err(unusable)? {
                current["metadata"]["managedFields"] = entries;
            }
            let writer = apply::Writer {
                manager: &manager,
                subresource: "scale",
                api_version: "autoscaling/v1",
                now: &self.now(),
                reset_fields: &apply::FieldSet::new(),
            };
            let options = apply::ApplyOptions { writer, kind: "Scale", force };
            let applied = apply::apply(Some(&current), config, schema.node(), &options)?.object;
            let mut object = scaled(request, live, &current, &applied, paths)?;
            let of_scale = applied["metadata"].get("managedFields");
            match apply::managed_fields_from_scale(owners, of_scale, &fields).map_err(unusable)? {
                Some(entries) => object.metadata_mut().insert("managedFields".into(), entries),
                None => object.metadata_mut().remove("managedFields"),
            };
            Ok(Change::Applied(object))
        };
        self.modify(request, None, dry_run, change).await
    }

    fn present_scale(&self, request: &ResourceRequest<'_>, scale: &Value) -> Result<HttpResponse, ApiError> {
        Ok(respond::value(StatusCode::OK, request.accepted, scale))
    }
}

/// Where the numbers of a Scale are in its object.
pub(crate) fn scale_paths(subresource: &Subresource) -> ScalePaths {
    subresource.scale.clone().unwrap_or_else(|| ScalePaths {
        spec_replicas: "/spec/replicas".into(),
        status_replicas: "/status/replicas".into(),
        label_selector: Some("/spec/selector".into()),
    })
}

/// The object with the replicas of a Scale, after checking it.
fn scaled(request: &ResourceRequest<'_>, live: &Value, current: &Value, wanted: &Value, paths: &ScalePaths) -> Result<Value, ApiError> {
    let invalid = |error: FieldError| Err(ApiError::invalid("autoscaling", "Scale", live.name(), &[error]));
    if !wanted.name().is_empty() && wanted.name() != live.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            wanted.name(),
            live.name()
        )));
    }
    let replicas = match &wanted["spec"]["replicas"] {
        Value::Null => 0,
        number => match number.as_i64() {
            Some(replicas) => replicas,
            None => {
                let why = format!(
                    "json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
                    decode::go_type(number)
                );
                return Err(if request.info.verb == "patch" {
                    decode::unfit_patch(wanted.to_string(), why)
                } else {
                    ApiError::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}"))
                });
            }
        },
    };
    let path = FieldPath::new("spec.replicas");
    if replicas < 0 {
        return invalid(FieldError::invalid(&path, replicas, "must be greater than or equal to 0"));
    }
    if replicas > i64::from(i32::MAX) {
        return invalid(FieldError::invalid(&path, replicas, "must be a 32-bit number"));
    }
    if !wanted.uid().is_empty() && wanted.uid() != live.uid() {
        let why = format!("Precondition failed: UID in precondition: {}, UID in object meta: {}", wanted.uid(), live.uid());
        return Err(ApiError::conflict(&request.resource.group, &request.resource.plural, live.name(), why));
    }
    let version = wanted.resource_version();
    if !version.is_empty() && version != current.resource_version() {
        return Err(ApiError::modified(&request.resource.group, &request.resource.plural, live.name()));
    }
    let mut object = live.clone();
    object.set_at(&paths.spec_replicas, json!(replicas));
    Ok(object)
}

pub(crate) fn scale_of(object: &Value, paths: &ScalePaths) -> Value {
    let metadata = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {},
        "status": {"replicas": object.i64_at(&paths.status_replicas).unwrap_or(0)},
    });
    // None is the same as zero, and upstream does not write it.
    if let Some(replicas) = object.i64_at(&paths.spec_replicas).filter(|replicas| *replicas != 0) {
        scale["spec"]["replicas"] = json!(replicas);
    }
    if let Some(selector) = paths.label_selector.as_ref().and_then(|p| object.pointer(p)) {
        let text = match selector {
            Value::String(text) => text.clone(),
            map if map["matchLabels"].is_object() || map["matchExpressions"].is_array() => {
                Selector::from_object(map).map(|s| s.to_string()).unwrap_or_default()
            }
            // The plain map of a ReplicationController.
            map => {
                let pairs = map.as_object().into_iter().flatten();
                pairs.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect::<Vec<_>>().join(",")
            }
        };
        if !text.is_empty() {
            scale["status"]["selector"] = json!(text);
        }
    }
    scale
}
