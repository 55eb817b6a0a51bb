//! Names that custom resources ask for, those in force, and the conditions that tell.

use super::taken::{Names, Taken};
use super::view::{self, text};
use serde_json::{Map, Value, json};
use sublet_machinery::ObjectExt;

/// The status after names are judged and the definition is established, or `None` when it is right
/// already. `all` are the names of all definitions (of any group); `now` is the time of transitions, RFC 3339.
///
/// A name is refused when another definition of the group has it in force; whoever came first keeps it.
/// Upstream does not look at built-in resources here, as their groups are protected.
pub fn accept<'a>(crd: &Value, all: impl Iterator<Item = &'a Names>, now: &str) -> Option<Value> {
    let taken = Taken::new(crd, all);
    let mut status = crd.get("status").filter(|s| s.is_object()).cloned().unwrap_or_else(|| json!({}));
    let (names, conflict) = judge(&crd["spec"]["names"], &crd["status"]["acceptedNames"], &taken);
    status["acceptedNames"] = names;
    let accepted = match conflict {
        None => condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
        Some((reason, message)) => condition("NamesAccepted", false, reason, &message),
    };
    let is_accepted = accepted["status"] == "True";
    set_condition(&mut status, accepted, now);
    if !crd.is_condition_true("Established") {
        let established = if !is_accepted {
            crd.condition("Established")
                .cloned()
                .unwrap_or_else(|| condition("Established", false, "NotAccepted", "not all names are accepted"))
        } else if has_broken_ca(crd) {
            condition("Established", false, "InvalidCABundle", "The conversion webhook CABundle is invalid")
        } else {
            condition("Established", true, "InitialNamesAccepted", "the initial names have been accepted")
        };
        set_condition(&mut status, established, now);
    }
    if let Some(approval) = approval(crd) {
        set_condition(&mut status, approval, now);
    }
    (crd.get("status") != Some(&status)).then_some(status)
}

/// The names in force after this one asked, and the last conflict found.
fn judge(asked: &Value, accepted: &Value, taken: &Taken<'_>) -> (Value, Option<(&'static str, String)>) {
    let mut names = accepted.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    let mut one = |key: &str, reason: &'static str| {
        let name = text(asked, key);
        if name != text(accepted, key) && taken.has_resource(name) {
            conflict = Some((reason, in_use(name)));
        } else if name.is_empty() {
            names.remove(key);
        } else {
            names.insert(key.into(), json!(name));
        }
    };
    one("plural", "PluralConflict");
    one("singular", "SingularConflict");
    let (asked_short, accepted_short) = (view::strings(&asked["shortNames"]), view::strings(&accepted["shortNames"]));
    let short_conflicts: Vec<String> =
        asked_short.iter().filter(|name| !accepted_short.contains(name) && taken.has_resource(name)).map(|name| in_use(name)).collect();
    let mut kinds_conflict = None;
    for (key, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        let name = text(asked, key);
        if name != text(accepted, key) && taken.has_kind(name) {
            kinds_conflict = Some((reason, in_use(name)));
        } else {
            names.insert(key.into(), json!(name));
        }
    }
    if short_conflicts.is_empty() {
        put_list(&mut names, "shortNames", &asked["shortNames"]);
    } else {
        conflict = Some(("ShortNamesConflict", aggregate(&short_conflicts)));
    }
    put_list(&mut names, "categories", &asked["categories"]);
    (Value::Object(names), kinds_conflict.or(conflict))
}

fn in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

fn aggregate(texts: &[String]) -> String {
    if let [one] = texts { one.clone() } else { format!("[{}]", texts.join(", ")) }
}

fn put_list(names: &mut Map<String, Value>, key: &str, list: &Value) {
    match list.as_array() {
        Some(items) if !items.is_empty() => names.insert(key.into(), list.clone()),
        _ => names.remove(key),
    };
}

/// Whether a webhook converts and its CA bundle is none.
fn has_broken_ca(crd: &Value) -> bool {
    let bundle = crd.pointer("/spec/conversion/webhook/clientConfig/caBundle").and_then(Value::as_str).unwrap_or_default();
    !bundle.is_empty() && !super::validate::is_ca_bundle(bundle)
}

/// Protected groups carry a condition about their approval.
fn approval(crd: &Value) -> Option<Value> {
    use super::validate::{Approval, approval_state};
    if !super::validate::is_protected_group(view::group(crd)) {
        return None;
    }
    let (state, message) = approval_state(crd);
    let (status, reason) = match state {
        Approval::Approved => (true, "ApprovedAnnotation"),
        Approval::Bypassed => (false, "UnapprovedAnnotation"),
        Approval::Missing => (false, "MissingAnnotation"),
        Approval::Invalid => (false, "InvalidAnnotation"),
    };
    Some(condition("KubernetesAPIApprovalPolicyConformant", status, reason, &message))
}

pub(super) fn condition(kind: &str, status: bool, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": if status { "True" } else { "False" }, "reason": reason, "message": message})
}

/// Writes a condition over the one of its type; the transition time moves with the status alone.
pub(super) fn set_condition(status: &mut Value, mut condition: Value, now: &str) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let conditions = status["conditions"].as_array_mut().expect("was just made an array");
    match conditions.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(old) => {
            let time = if old["status"] == condition["status"] { old["lastTransitionTime"].clone() } else { json!(now) };
            condition["lastTransitionTime"] = time;
            *old = condition;
        }
        None => {
            condition["lastTransitionTime"] = json!(now);
            conditions.push(condition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn crd(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({"metadata": {"name": format!("{plural}.ex.com")}, "spec": {"group": "ex.com", "names": {
            "plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List"), "shortNames": short}}})
    }

    fn accepted(mut crd: Value, others: &[&Value]) -> Value {
        let others: Vec<Names> = others.iter().map(|other| Names::of(other)).collect();
        crd["status"] = accept(&crd, others.iter(), NOW).expect("the status changes");
        crd
    }

    #[test]
    fn the_first_one_is_established_at_once() {
        let first = accepted(crd("foos", "Foo", &["f"]), &[]);
        assert_eq!(
            first["status"],
            json!({"acceptedNames": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList", "shortNames": ["f"]},
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found", "lastTransitionTime": NOW},
                {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                    "message": "the initial names have been accepted", "lastTransitionTime": NOW},
            ]})
        );
        assert_eq!(accept(&first, std::iter::empty(), "later"), None);
    }

    #[test]
    fn conflicts_are_told_and_end_with_their_cause() {
        let first = accepted(crd("foos", "Foo", &["f", "g"]), &[]);
        let second = accepted(crd("bars", "Foo", &["f", "g"]), &[&first]);
        let names = &second["status"]["conditions"][0];
        assert_eq!((&names["reason"], &names["message"]), (&json!("ListKindConflict"), &json!("\"FooList\" is already in use")));
        assert_eq!(second["status"]["acceptedNames"], json!({"plural": "bars", "singular": "bar"}));
        assert!(!view::is_served(&second));
        let third = accepted(crd("bazs", "Baz", &["f", "g"]), &[&first]);
        assert_eq!(third["status"]["conditions"][0]["message"], json!("[\"f\" is already in use, \"g\" is already in use]"));
        assert!(view::is_served(&accepted(third, &[])));
    }

    #[test]
    fn a_served_definition_stays_established_when_new_names_conflict() {
        let first = accepted(crd("foos", "Foo", &["f"]), &[]);
        let mut second = accepted(crd("bars", "Bar", &[]), &[&first]);
        second["spec"]["names"]["shortNames"] = json!(["f"]);
        let second = accepted(second, &[&first]);
        assert!(view::is_served(&second) && !second.is_condition_true("NamesAccepted"));
    }
}
