//! Namespaces: the name as a label, the finalizer that empties them.

use super::super::edit::{copy_or_remove, ensure, fill_zero};
use super::super::field::{Errors, Field};
use super::super::status::keep_spec;
use super::super::{Grace, NameRule, Strategy, keep_status};
use serde_json::{Value, json};
use sublet_machinery::{FieldError, ObjectExt, names};

pub(crate) const NAMESPACE: Strategy = Strategy {
    default,
    prepare_create,
    prepare_update,
    prepare_status_update: keep_spec,
    validate,
    validate_status_update,
    fields,
    grace: Grace::Namespace,
    name_rule: NameRule::DnsLabel,
    ..Strategy::PLAIN
};

const FINALIZER: &str = "kubernetes";
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

fn default(namespace: &mut Value) {
    let name = namespace.name().to_string();
    if !name.is_empty() {
        namespace.set_label(NAME_LABEL, &name);
    }
    ensure(namespace, "spec");
    fill_zero(ensure(namespace, "status"), "phase", "Active");
}

fn prepare_create(namespace: &mut Value) {
    namespace["status"] = json!({"phase": "Active"});
    let spec = ensure(namespace, "spec");
    fill_zero(spec, "finalizers", json!([]));
    if let Some(finalizers) = spec["finalizers"].as_array_mut()
        && !finalizers.iter().any(|f| f == FINALIZER)
    {
        finalizers.push(json!(FINALIZER));
    }
}

/// Finalizers change through `/finalize` alone.
fn prepare_update(new: &mut Value, old: &Value) {
    copy_or_remove(ensure(new, "spec"), &old["spec"], "finalizers");
    keep_status(new, old);
}

/// The `/finalize` subresource: the finalizers alone change.
pub(crate) const NAMESPACE_FINALIZE: Strategy =
    Strategy { prepare_update: |new, old| keep_status(new, old), validate_update: |_, _| Vec::new(), ..NAMESPACE };

fn validate(namespace: &Value) -> Vec<FieldError> {
    let finalizers = Field::root(namespace).at("spec").at("finalizers");
    Errors::of(|errors| {
        for name in finalizers.items().map(|f| Field::new(f.value, finalizers.path.clone())) {
            errors.words(&name, names::qualified_name);
            if !name.text().contains('/') && !matches!(name.text(), "kubernetes" | "orphan" | "foregroundDeletion") {
                errors.add(name.invalid("name is neither a standard finalizer name nor is it fully qualified"));
            }
        }
    })
}

/// The phase follows deletion, not the other way round.
fn validate_status_update(new: &Value, _: &Value) -> Vec<FieldError> {
    let phase = Field::root(new).at("status").at_as("phase", "Phase");
    Errors::of(|errors| match (new.is_deleting(), phase.text()) {
        (false, "Active") | (true, "Terminating") => {}
        (false, _) => errors.add(phase.invalid_as(phase.text(), "may only be 'Active' if `deletionTimestamp` is empty")),
        (true, _) => errors.add(phase.invalid_as(phase.text(), "may only be 'Terminating' if `deletionTimestamp` is not empty")),
    })
}

fn fields(namespace: &Value) -> Vec<(&'static str, String)> {
    vec![("status.phase", namespace["status"]["phase"].as_str().unwrap_or_default().into()), ("name", namespace.name().into())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_namespace_is_active_and_held_by_its_finalizer() {
        let mut namespace = json!({"metadata": {"name": "a"}, "status": {"phase": "Terminating"}});
        default(&mut namespace);
        prepare_create(&mut namespace);
        assert_eq!(
            namespace,
            json!({"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
                   "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
        );
    }
}
