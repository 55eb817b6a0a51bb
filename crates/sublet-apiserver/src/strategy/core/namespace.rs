//! Namespaces: the name as a label, the finalizer that empties them.

use super::super::edit::{copy_or_remove, ensure, fill_zero};
use super::super::status::keep_spec;
use super::super::{Grace, NameRule, Strategy, keep_status};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub(crate) const NAMESPACE: Strategy = Strategy {
    default,
    prepare_create,
    prepare_update,
    prepare_status_update: keep_spec,
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
