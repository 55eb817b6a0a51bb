//! Ownership of the number of replicas, as the scale subresource shows it.

use super::managers::{ManagerId, Managers, Operation, Owned};
use super::path::PathElement;
use super::set::FieldSet;
use serde_json::Value;

const SCALE_VERSION: &str = "autoscaling/v1";

/// Where a resource keeps its replicas: one path for every version in which it is served.
#[derive(Clone, Copy, Debug)]
pub struct ScaleFields<'a> {
    /// The version of the request.
    pub api_version: &'a str,
    /// (apiVersion, dotted path); versions without a path have no scale.
    pub paths: &'a [(&'a str, Option<&'a str>)],
}

impl ScaleFields<'_> {
    /// The path at a version: outer `None` for a version that is not served.
    fn path(&self, api_version: &str) -> Option<Option<Vec<PathElement>>> {
        let (_, path) = self.paths.iter().find(|(version, _)| *version == api_version)?;
        Some(path.map(|p| p.split('.').map(PathElement::field).collect()))
    }
}

fn scale_path() -> [PathElement; 2] {
    [PathElement::field("spec"), PathElement::field("replicas")]
}

/// The entries that a Scale object carries, from those of its resource.
pub fn managed_fields_to_scale(parent: Option<&Value>, fields: &ScaleFields<'_>) -> Result<Option<Value>, String> {
    let mut scale = Managers::default();
    for (id, owned) in Managers::decode(parent)?.0 {
        let Some(Some(path)) = fields.path(&owned.api_version) else { continue };
        if owned.set.has(&path) {
            let mut set = FieldSet::new();
            set.insert(&scale_path());
            scale.0.insert(id, Owned::new(SCALE_VERSION, set, owned.time));
        }
    }
    Ok(scale.encode())
}

/// The entries of the resource after a write of its Scale object with these entries.
pub fn managed_fields_from_scale(parent: Option<&Value>, scale: Option<&Value>, fields: &ScaleFields<'_>) -> Result<Option<Value>, String> {
    let mut scale = Managers::decode(scale)?;
    let mut out = Managers::default();
    for (id, mut owned) in Managers::decode(parent)?.0 {
        let Some(path) = fields.path(&owned.api_version) else { continue };
        let Some(path) = path.filter(|p| owned.set.has(p)) else {
            out.0.insert(id, owned);
            continue;
        };
        if scale.0.remove(&scale_id(&id)).is_none() {
            // Whoever scaled has taken the field.
            let mut taken = FieldSet::new();
            taken.insert(&path);
            owned.change_set(|set| set.difference(&taken));
        }
        if !owned.set.is_empty() {
            out.0.insert(id, owned);
        }
    }
    let path = fields.path(fields.api_version).flatten().unwrap_or_default();
    for (id, _) in scale.0.into_iter().filter(|(_, owned)| owned.set.has(&scale_path())) {
        let id = ManagerId::new(&id.manager, id.operation, fields.api_version, &id.subresource);
        let owned = out.0.entry(id).or_insert_with(|| Owned::new(fields.api_version, FieldSet::new(), None));
        owned.change_set(|mut set| {
            set.insert(&path);
            set
        });
    }
    Ok(out.encode())
}

/// The entry of a manager among those of the Scale object, all of which are of the one version.
fn scale_id(id: &ManagerId) -> ManagerId {
    ManagerId { api_version: if id.operation == Operation::Update { SCALE_VERSION.into() } else { String::new() }, ..id.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DEPLOYMENT: ScaleFields<'_> = ScaleFields { api_version: "apps/v1", paths: &[("apps/v1", Some("spec.replicas"))] };

    fn entry(manager: &str, operation: &str, api_version: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn a_scaler_takes_the_replicas_and_nothing_else() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let parent = json!([
            entry("user", "Apply", "apps/v1", json!({"f:spec": {"f:replicas": {}, "f:selector": {}}})),
            entry("old", "Update", "apps/v1", replicas.clone()),
        ]);
        let scale = managed_fields_to_scale(Some(&parent), &DEPLOYMENT).unwrap().unwrap();
        assert_eq!(
            scale,
            json!([entry("user", "Apply", "autoscaling/v1", replicas.clone()), entry("old", "Update", "autoscaling/v1", replicas.clone())])
        );
        assert_eq!(managed_fields_from_scale(Some(&parent), Some(&scale), &DEPLOYMENT).unwrap().unwrap(), parent);

        let mut scaler = entry("hpa", "Update", "autoscaling/v1", replicas.clone());
        scaler["subresource"] = json!("scale");
        let after = managed_fields_from_scale(Some(&parent), Some(&json!([scaler])), &DEPLOYMENT).unwrap().unwrap();
        scaler["apiVersion"] = json!("apps/v1");
        assert_eq!(after, json!([entry("user", "Apply", "apps/v1", json!({"f:spec": {"f:selector": {}}})), scaler]));
    }
}
