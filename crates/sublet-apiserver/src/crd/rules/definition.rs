//! Rules when their definition is written: whether they compile, and what they may cost.

use super::variables;
use crate::cel::{self, CompileError, Compiled, Type};
use serde_json::{Map, Value};
use sublet_machinery::schema::CelRule;
use sublet_machinery::{FieldError, FieldErrorKind, FieldPath, ListType, SchemaNode, ValueType, structural};

/// Costs of one rule, over all values that it can apply to.
const RULE_COST_MAX: u64 = 10_000_000;
/// Costs of all rules of a schema.
const SCHEMA_COST_MAX: u64 = 100_000_000;
const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;
/// The most expensive rules that are named when all together cost too much.
const NAMED_MAX: usize = 4;

/// Checks every rule of a schema that is right otherwise.
pub(in super::super) fn validate(schema: &Value, path: &FieldPath) -> Vec<FieldError> {
    let typed = structural::build(Some(schema), false, "");
    let mut checker = Checker { errors: Vec::new(), total: 0, expensive: Vec::new() };
    checker.walk(schema, typed.node(), path, &Place { is_root: true, count: Some(1), no_old: None });
    checker.finish(path)
}

#[derive(Clone)]
struct Place {
    is_root: bool,
    /// How many values there can be here; `None` when nothing bounds them.
    count: Option<u64>,
    /// The list or map whose items have no old values to compare with.
    no_old: Option<FieldPath>,
}

#[derive(Clone, Copy)]
enum Part {
    Rule,
    Message,
}

struct Checker {
    errors: Vec<FieldError>,
    total: u64,
    expensive: Vec<(u64, FieldPath)>,
}

impl Checker {
    fn walk(&mut self, schema: &Value, node: SchemaNode<'_>, path: &FieldPath, place: &Place) {
        let count = place.count.and_then(|count| Some(count.saturating_mul(elements(node)?)));
        let below = Place { is_root: false, count, no_old: place.no_old.clone() };
        if let (Some(schema), Some(node)) = (schema.get("additionalProperties").filter(|s| s.is_object()), node.additional()) {
            self.walk(schema, node, &path.child("additionalProperties"), &below);
        }
        for (name, property) in schema["properties"].as_object().into_iter().flat_map(Map::iter) {
            if let Some(node) = node.property(name) {
                self.walk(property, node, &path.child("properties").key(name), &below);
            }
        }
        if let (Some(items), Some(item_node)) = (schema.get("items").filter(|s| s.is_object()), node.items()) {
            let mut below = below;
            if node.list_type != ListType::Map {
                below.no_old.get_or_insert_with(|| path.clone());
            }
            self.walk(items, item_node, &path.child("items"), &below);
        }
        for (index, rule) in node.rules.iter().enumerate() {
            self.rule(rule, node, &path.child("x-kubernetes-validations").index(index), place);
        }
    }

    fn rule(&mut self, rule: &CelRule, node: SchemaNode<'_>, path: &FieldPath, place: &Place) {
        if rule.rule.trim().is_empty() {
            return;
        }
        let Some(variables) = variables(node, rule, place.is_root || node.embedded_resource) else {
            let detail = "failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.errors.push(FieldError::new(FieldErrorKind::Internal, path, None, format!("internal error: {detail}")));
            return;
        };
        let rule_path = path.child("rule");
        let compiled = match compile(&rule.rule, &variables, node, Part::Rule) {
            Ok(compiled) if !matches!(compiled.result, Type::Bool | Type::Dyn) => Err("cel expression must evaluate to a bool".into()),
            result => result,
        };
        match &compiled {
            Ok(compiled) => {
                self.observe(compiled.cost_max, node, &rule_path, place, "estimated rule cost");
                self.message(rule, &variables, node, path);
            }
            Err(error) => self.errors.push(wrong(&rule_path, rule, error)),
        }
        if compiled.is_ok_and(|c| c.program.uses("oldSelf")) {
            if let Some(at) = &place.no_old {
                let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {at}");
                self.errors.push(FieldError::invalid(&rule_path, rule.rule.as_str(), detail));
            }
        } else if let Some(optional) = rule.optional_old_self {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(&path.child("optionalOldSelf"), optional, detail));
        }
    }

    fn message<'s>(&mut self, rule: &CelRule, variables: &[(&str, Type<'s>)], node: SchemaNode<'s>, path: &FieldPath) {
        if rule.message_expression.is_empty() {
            return;
        }
        let path = path.child("messageExpression");
        match compile(&rule.message_expression, variables, node, Part::Message) {
            Ok(compiled) if !matches!(compiled.result, Type::String | Type::Dyn) => {
                self.errors.push(wrong(&path, rule, "messageExpression must evaluate to a string"));
            }
            // A message is made for one value at a time.
            Ok(compiled) => self.charge(compiled.cost_max, &path, "estimated messageExpression cost"),
            Err(error) => self.errors.push(wrong(&path, rule, &error)),
        }
    }

    fn observe(&mut self, cost: u64, node: SchemaNode<'_>, path: &FieldPath, place: &Place, name: &str) {
        // Unbounded lists around the rule hold at most what fits into a request.
        let count = place.count.unwrap_or_else(|| REQUEST_BYTES_MAX / (cel::size_min(node) + 1));
        self.charge(cost.saturating_mul(count), path, name);
    }

    fn charge(&mut self, cost: u64, path: &FieldPath, name: &str) {
        if cost > RULE_COST_MAX {
            self.errors.push(FieldError::forbidden(path, exceeded(name, cost, RULE_COST_MAX)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_COST_MAX / 100 {
            self.expensive.push((cost, path.clone()));
        }
    }

    fn finish(mut self, path: &FieldPath) -> Vec<FieldError> {
        if self.total > SCHEMA_COST_MAX {
            self.expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.errors.extend(self.expensive.iter().take(NAMED_MAX).map(|(_, path)| FieldError::forbidden(path, detail)));
            let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
            self.errors.push(FieldError::forbidden(path, exceeded(name, self.total, SCHEMA_COST_MAX)));
        }
        self.errors
    }
}

fn compile<'s>(text: &str, variables: &[(&str, Type<'s>)], node: SchemaNode<'s>, part: Part) -> Result<Compiled<'s>, String> {
    cel::compile(text, variables, Some(node)).map_err(|error| match (part, &error) {
        (Part::Rule, CompileError::Wrong(_)) => error.to_string(),
        (Part::Rule, CompileError::Unusable(_)) => format!("program {error}"),
        (Part::Message, _) => format!("messageExpression {error}"),
    })
}

/// How many values one value of the schema has directly below it.
fn elements(node: SchemaNode<'_>) -> Option<u64> {
    let limits = node.limits.as_deref();
    match node.value_type {
        ValueType::Array => limits.and_then(|l| l.max_items),
        ValueType::Object if node.additional.is_some() && node.properties.is_empty() => limits.and_then(|l| l.max_properties),
        _ => Some(1),
    }
}

fn exceeded(name: &str, cost: u64, cost_max: u64) -> String {
    let factor = cost as f64 / cost_max as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_string()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where \
         arrays, maps, and strings are declared)"
    )
}

/// The error shows the rule in upstream's internal form, in which members have Go's names and order.
fn wrong(path: &FieldPath, rule: &CelRule, detail: &str) -> FieldError {
    let text = |text: &str| {
        let quoted = Value::from(text).to_string();
        quoted.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    };
    let reason = if rule.reason.is_empty() { "null".into() } else { text(&rule.reason) };
    let shown = format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{reason},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text(&rule.rule),
        text(&rule.message),
        text(&rule.message_expression),
        text(&rule.field_path),
        Value::from(rule.optional_old_self),
    );
    FieldError::new(FieldErrorKind::Invalid, path, None, format!("{shown}: {detail}"))
}
