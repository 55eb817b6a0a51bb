//! Rules against what upstream expects of them in its own test tables (apiextensions-apiserver 1.37,
//! `pkg/apiserver/schema/cel`): results, messages, costs and estimates, transitions, ratcheting.

use super::{OBJECT_COST_MAX, Place, Ratchet, Rules, Run, Verdict, compile_rule, variables};
use crate::cel::{self, CALL_COST_MAX};
use serde_json::{Value, json};
use sublet_machinery::structural::{Correlated, build};
use sublet_machinery::{FieldError, FieldErrorKind, FieldPath, Schema};

/// The groups of upstream's tables in which we differ, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[
    ("compile", "unmodified expression may use CEL environment features planned to be added in future releases", "there are none"),
    ("expressions", "URL parsing", "getQuery of a repeated key"),
    ("expressions", "cost for extended lib calculated correctly: isSorted", "costs of list functions"),
    ("expressions", "date-time format", "a constant time out of range is refused in other words"),
    ("expressions", "embedded object with usage of reserved keywords", "embedded metadata has name and generateName alone"),
    ("expressions", "invalid data", "validation by the schema has refused it before"),
    ("expressions", "numbers", "a float stays a double"),
    ("expressions", "optionals", "the time zero of Go is no zero value"),
    ("expressions", "stdlib list functions", "sum of no durations; min and max of lists and maps are refused when they run"),
    ("expressions", "stdlib regex functions", "wrong patterns are told in other words, and when they run"),
    ("levels", "allOf.additionalProperties", "rules inside of additionalProperties of allOf are not run"),
    ("levels", "properties.allOf.additionalProperties.allOf.properties", "rules inside of additionalProperties of allOf are not run"),
    ("messages", "runtime cost preserved if messageExpression fails during evaluation", "costs of a call that fails"),
    ("messages", "runtime cost preserved if messageExpression fails during evaluation (no message set)", "costs of a call that fails"),
];

/// Groups of rules of which some cost more or less than upstream counts, at run time or by estimate.
const COST_OTHERWISE: usize = 28;

struct Case<'a> {
    value: &'a Value,
    wrong: Vec<String>,
}

impl<'a> Case<'a> {
    fn flag(&self, key: &str) -> bool {
        self.value[key] == true
    }

    fn number(&self, key: &str) -> u64 {
        self.value[key].as_u64().unwrap_or_default()
    }

    fn texts(&self, key: &str) -> Vec<&'a str> {
        self.value[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn entries(&self, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.value[key].as_object().into_iter().flatten()
    }

    fn old(&self) -> Option<&'a Value> {
        self.value.get("old")
    }

    fn schema(&self, is_resource: bool) -> Schema {
        schema_of(&self.value["schema"], is_resource)
    }

    /// The schema with a rule of its own.
    fn schema_with(&self, rule: &str, is_resource: bool) -> Schema {
        let mut schema = self.value["schema"].clone();
        let mut rules = schema["x-kubernetes-validations"].as_array().cloned().unwrap_or_default();
        rules.push(json!({ "rule": rule }));
        schema["x-kubernetes-validations"] = json!(rules);
        schema_of(&schema, is_resource)
    }

    /// Runs the rules and returns what they say and cost.
    fn run(&self, schema: &Schema, is_resource: bool, ratchets: bool) -> (Verdict, u64) {
        let budget = if self.number("budget") > 0 { self.number("budget") } else { OBJECT_COST_MAX };
        let Some(rules) = Rules::compile_at(schema.node(), is_resource) else { return (Verdict::default(), 0) };
        let (object, old) = (&self.value["object"], self.old());
        let place = Place { node: schema.node(), is_resource, path: FieldPath::new("root") };
        let current = old.filter(|_| ratchets).map(|old| Correlated { new: object, old, node: schema.node() });
        let mut run = Run { rules: &rules, budget, spent: false, verdict: Verdict::default() };
        run.value(&place, schema.node(), object, old, Ratchet { current, parent: None });
        (run.verdict, budget - run.budget)
    }

    fn wrong(&mut self, text: impl Into<String>) {
        self.wrong.push(text.into());
    }

    fn expressions(&mut self) {
        let cost = self.number("cost");
        for rule in self.texts("valid") {
            let (verdict, used) = self.run(&self.schema_with(rule, self.flag("root")), self.flag("root"), false);
            if !verdict.errors.is_empty() {
                self.wrong(format!("{rule}: {:?}", shown(&verdict.errors)));
            } else if cost > 0 && used != cost || self.flag("skipped") && used != 0 {
                self.wrong(format!("{rule}: costs {used}, upstream {cost}"));
            }
        }
        for (rule, expected) in self.entries("rules") {
            let (verdict, _) = self.run(&self.schema_with(rule, true), true, false);
            let expected = expected.as_str().unwrap_or_default();
            let all = verdict.errors.iter().all(|e| e.kind == FieldErrorKind::Invalid && e.to_string().contains(expected));
            if verdict.errors.is_empty() || !all {
                self.wrong(format!("{rule}: want {expected}, got {:?}", shown(&verdict.errors)));
            }
        }
    }

    fn errors(&mut self, ratchets: bool) {
        let (verdict, used) = self.run(&self.schema(self.flag("root")), self.flag("root"), ratchets);
        let errors = shown(&verdict.errors);
        let expected = self.texts("errors");
        let all = expected.iter().all(|text| errors.iter().any(|e| e.contains(text)));
        if errors.len() != expected.len() || !all {
            self.wrong(format!("want {expected:?}, got {errors:?}"));
        }
        let warnings = self.texts("warnings");
        if ratchets && !(warnings.len() == verdict.warnings.len() && warnings.iter().all(|w| verdict.warnings.iter().any(|v| v == w))) {
            self.wrong(format!("want warnings {warnings:?}, got {:?}", verdict.warnings));
        }
        let remaining = self.number("remaining");
        if remaining > 0 && self.number("budget") - used != remaining {
            self.wrong(format!("{used} used, upstream leaves {remaining}"));
        }
    }

    fn reasons(&mut self) {
        let (verdict, _) = self.run(&self.schema(true), true, false);
        let mut found: Vec<Value> =
            verdict.errors.iter().map(|e| json!({"type": format!("FieldValue{:?}", e.kind), "field": e.path.to_string()})).collect();
        let mut expected = self.value["fields"].as_array().cloned().unwrap_or_default();
        found.sort_by_key(Value::to_string);
        expected.sort_by_key(Value::to_string);
        if found != expected {
            self.wrong(format!("want {expected:?}, got {found:?}"));
        }
    }

    fn costs(&mut self) {
        for (rule, expected) in self.entries("costs") {
            let (verdict, used) = self.run(&self.schema_with(rule, true), true, false);
            if !verdict.errors.is_empty() || Some(used) != expected.as_u64() {
                self.wrong(format!("{rule}: costs {used}, upstream {expected}, {:?}", shown(&verdict.errors)));
            }
        }
    }

    fn estimated(&mut self) {
        for (rule, expected) in self.entries("costs") {
            let estimate = estimate(&self.schema_with(rule, false));
            if estimate.as_ref().ok() != expected.as_u64().as_ref() {
                self.wrong(format!("{rule}: {estimate:?}, upstream {expected}"));
            }
        }
    }

    fn estimates(&mut self) {
        for (schema, cost, more) in [("schema", "cost", "more"), ("set", "setCost", "setMore")] {
            let estimate = estimate(&schema_of(&self.value[schema], false));
            let (cost, more) = (self.number(cost), self.number(more));
            if !estimate.as_ref().is_ok_and(|e| (cost == 0 || *e == cost) && *e >= more) {
                self.wrong(format!("{schema}: {estimate:?}, upstream {cost}, at least {more}"));
            }
        }
    }

    fn compile(&mut self) {
        let schema = self.schema(false);
        let found = super::validate(&json!({"type": "object", "properties": {"x": self.value["schema"]}}), &FieldPath::new("s"));
        let results = self.value["results"].as_array().cloned().unwrap_or_default();
        for (index, (rule, expected)) in schema.node().get().rules.iter().zip(&results).enumerate() {
            let at = |part: &str| {
                let path = format!("s.properties[x].x-kubernetes-validations[{index}].{part}");
                let own = found.iter().filter(|e| e.path.to_string() == path && e.kind == FieldErrorKind::Invalid);
                own.map(ToString::to_string).collect::<Vec<_>>()
            };
            let alternatives = expected.as_array().cloned().unwrap_or_else(|| vec![expected.clone()]);
            for expected in alternatives {
                let fits = match expected.as_object().and_then(|m| m.iter().find(|(k, _)| *k != "type")) {
                    Some((key, Value::String(text))) if key == "error" => at("rule").iter().any(|e| e.contains(text)),
                    Some((key, Value::String(text))) if key == "messageError" => at("messageExpression").iter().any(|e| e.contains(text)),
                    Some((key, _)) if key == "ok" => at("rule").is_empty(),
                    Some((key, value)) if key == "transition" => compile_rule(schema.node(), rule, false).uses_old == (*value == true),
                    _ => true,
                };
                if !fits {
                    self.wrong(format!("{}: want {expected}, got {:?}", rule.rule, shown(&found)));
                }
            }
        }
    }
}

/// A schema that is the root of a resource, or one that is not.
fn schema_of(schema: &Value, is_resource: bool) -> Schema {
    if is_resource {
        return build(Some(schema), false, "");
    }
    let mut below = build(Some(&json!({"type": "object", "properties": {"x": schema}})), false, "");
    below.root = below.node().property("x").expect("x was just put there").id();
    below
}

fn estimate(schema: &Schema) -> Result<u64, String> {
    let node = schema.node();
    let rule = node.get().rules.last().ok_or("no rule")?;
    let variables = variables(node, rule, false).ok_or("no type")?;
    cel::compile(&rule.rule, &variables, Some(node)).map(|c| c.cost_max).map_err(|e| e.to_string())
}

fn shown(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_do_what_upstream_expects() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../../tests/cases/cel.json")).expect("the table is JSON");
    assert!(cases.len() > 300);
    let (mut report, mut known, mut costs) = (Vec::new(), 0, 0);
    for value in &cases {
        let mut case = Case { value, wrong: Vec::new() };
        let (test, name) = (value["test"].as_str().unwrap_or_default(), value["name"].as_str().unwrap_or_default());
        match test {
            "expressions" => case.expressions(),
            "levels" | "optional" | "messages" => case.errors(false),
            "ratcheting" => case.errors(true),
            "reasons" => case.reasons(),
            "costs" => case.costs(),
            "estimated" => case.estimated(),
            "estimates" => case.estimates(),
            "compile" => case.compile(),
            other => panic!("{other}"),
        }
        // Upstream's limit of a call is a parameter in one case; here it is a constant.
        let limited = test == "messages" && value.get("limit").is_some_and(|limit| *limit != json!(CALL_COST_MAX));
        if matches!(test, "costs" | "estimated") {
            costs += usize::from(!case.wrong.is_empty());
            continue;
        }
        if DIFFERENT.iter().any(|(t, n, _)| (*t, *n) == (test, name)) || limited {
            known += 1;
            assert!(limited || !case.wrong.is_empty(), "{test} {name} is no longer different");
        } else if !case.wrong.is_empty() {
            report.push(format!("{test}: {name}\n  {}", case.wrong.join("\n  ")));
        }
    }
    assert_eq!(costs, COST_OTHERWISE, "groups that cost otherwise than upstream's");
    assert!(report.is_empty(), "{} of {} groups differ, {known} are known to:\n{}", report.len(), cases.len(), report.join("\n"));
}
