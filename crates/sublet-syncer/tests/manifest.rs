//! Every field of every synced kind has one owner. A new Kubernetes version that brings fields makes
//! this fail until somebody has decided about each of them.

use std::collections::BTreeMap;
use sublet_syncer::resources::manifest::{Owner, owner_of};
use sublet_syncer::resources::{SyncedKind, TO_HOST};

const FACTS: &str = include_str!("facts/fields.txt");

type Fields<'a> = Vec<(&'a str, bool, &'a str)>;

/// Type name to its fields: name, whether it is a list, type of the value or of the items.
fn types() -> BTreeMap<&'static str, Fields<'static>> {
    let field = |text: &'static str| {
        let (name, kind) = text.split_once(':').expect("a field has a type part");
        (name, kind.starts_with("[]"), kind.trim_start_matches("[]"))
    };
    FACTS
        .lines()
        .map(|line| line.split_once(' ').expect("a type has fields"))
        .map(|(name, rest)| (name, rest.split(' ').map(field).collect()))
        .collect()
}

/// The three lists of containers share their entries.
fn canonical(path: &str) -> String {
    path.replace("/initContainers/*", "/containers/*").replace("/ephemeralContainers/*", "/containers/*")
}

fn walk(kind: &SyncedKind, path: &str, type_name: &str, types: &BTreeMap<&str, Fields<'_>>, missing: &mut Vec<String>) {
    for (name, list, of) in types.get(type_name).into_iter().flatten() {
        if path.is_empty() && matches!(*name, "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let here = canonical(&format!("{path}/{name}"));
        let exact = kind.fields.iter().copied().flatten().any(|f| f.path == here);
        let below = kind.fields.iter().copied().flatten().any(|f| f.path.starts_with(&format!("{here}/")));
        let inherits = matches!(owner_of(kind.fields, &here), Some(owner) if owner != Owner::Parts);
        match (exact || inherits, below) {
            (false, false) => missing.push(format!("{} {here}", kind.kind)),
            (_, true) => {
                let items = if *list { "/*" } else { "" };
                walk(kind, &format!("{here}{items}"), of, types, missing);
            }
            (true, false) => {}
        }
    }
}

#[test]
fn every_field_has_an_owner() {
    let types = types();
    let mut missing = Vec::new();
    for kind in TO_HOST {
        assert!(types.contains_key(kind.kind), "no facts about {}", kind.kind);
        walk(kind, "", kind.kind, &types, &mut missing);
    }
    assert!(missing.is_empty(), "fields without an owner:\n{}", missing.join("\n"));
}

#[test]
fn every_entry_names_a_field_that_exists() {
    let types = types();
    let mut unknown = Vec::new();
    for kind in TO_HOST {
        for field in kind.fields.iter().copied().flatten() {
            let mut at = kind.kind;
            let mut known = true;
            for segment in field.path.split('/').skip(1).filter(|s| *s != "*") {
                // Ephemeral containers have one field more than the others, under the same entries.
                let at_type = if at == "Container" { "EphemeralContainer" } else { at };
                match types.get(at_type).and_then(|fields| fields.iter().find(|(name, ..)| *name == segment)) {
                    Some((_, _, of)) => at = of,
                    None => known = false,
                }
            }
            if !known {
                unknown.push(format!("{} {}", kind.kind, field.path));
            }
        }
    }
    assert!(unknown.is_empty(), "entries without a field:\n{}", unknown.join("\n"));
}
