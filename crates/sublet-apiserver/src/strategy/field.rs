//! Validation reads objects through [`Field`], a value that knows its path, and collects what is wrong in
//! [`Errors`]. A missing field reads as null, empty, zero or false, as it does through upstream's types.

use super::edit::is_zero;
use serde_json::Value;
use sublet_machinery::metadata;
use sublet_machinery::names;
use sublet_machinery::selector::{LabelSelectorOptions, validate_label_selector, validate_labels};
use sublet_machinery::{FieldError, FieldErrorKind, FieldPath, Quantity};

pub(crate) const IMMUTABLE: &str = "field is immutable";
pub(crate) const NEGATIVE: &str = "must be greater than or equal to 0";

static NULL: Value = Value::Null;

#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    pub value: &'a Value,
    pub path: FieldPath,
}

impl<'a> Field<'a> {
    pub fn root(value: &'a Value) -> Self {
        Self { value, path: FieldPath::root() }
    }

    pub fn new(value: &'a Value, path: FieldPath) -> Self {
        Self { value, path }
    }

    pub fn at(&self, key: &str) -> Self {
        Self { value: self.value.get(key).unwrap_or(&NULL), path: self.path.child(key) }
    }

    /// The same value, whose errors are told at another child of the parent.
    pub fn at_as(&self, key: &str, shown: &str) -> Self {
        Self { value: self.value.get(key).unwrap_or(&NULL), path: self.path.child(shown) }
    }

    /// The items of a list.
    pub fn items(&self) -> impl Iterator<Item = Self> + use<'a> {
        let path = self.path.clone();
        self.list().iter().enumerate().map(move |(index, value)| Self { value, path: path.index(index) })
    }

    /// The entries of a map, in order of their keys.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, Self)> + use<'a> {
        let path = self.path.clone();
        self.value.as_object().into_iter().flatten().map(move |(key, value)| (key.as_str(), Self { value, path: path.key(key) }))
    }

    pub fn list(&self) -> &'a [Value] {
        self.value.as_array().map_or(&[], Vec::as_slice)
    }

    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            Value::String(text) => text.len(),
            _ => 0,
        }
    }

    pub fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    pub fn int(&self) -> i64 {
        self.value.as_i64().unwrap_or_default()
    }

    pub fn flag(&self) -> bool {
        self.value.as_bool().unwrap_or_default()
    }

    pub fn quantity(&self) -> Quantity {
        Quantity::from_json(self.value).unwrap_or_default()
    }

    /// Present and not null: a set pointer.
    pub fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    pub fn is_zero(&self) -> bool {
        is_zero(self.value)
    }

    pub fn required(&self, detail: &str) -> FieldError {
        FieldError::required(&self.path, detail)
    }

    pub fn invalid(&self, detail: impl Into<String>) -> FieldError {
        FieldError::invalid(&self.path, self.value.clone(), detail)
    }

    /// The error shows a value that is not the field's own.
    pub fn invalid_as(&self, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::invalid(&self.path, value, detail)
    }

    /// The error of a rule that does not know the value: it tells `null`, whatever the field holds.
    pub fn invalid_unshown(&self, detail: &str) -> FieldError {
        FieldError::new(FieldErrorKind::Invalid, &self.path, None, format!("null: {detail}"))
    }

    pub fn forbidden(&self, detail: impl Into<String>) -> FieldError {
        FieldError::forbidden(&self.path, detail)
    }

    pub fn duplicate(&self) -> FieldError {
        FieldError::duplicate(&self.path, self.value.clone())
    }

    pub fn not_found(&self) -> FieldError {
        FieldError::not_found(&self.path, self.value.clone())
    }

    pub fn too_long(&self, bytes_max: usize) -> FieldError {
        FieldError::too_long(&self.path, bytes_max)
    }

    /// The supported values are told in the order given.
    pub fn unsupported(&self, supported: &[&str]) -> FieldError {
        let shown = if self.value.is_null() { Value::String(String::new()) } else { self.value.clone() };
        let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        FieldError::new(FieldErrorKind::NotSupported, &self.path, Some(shown), format!("supported values: {}", quoted.join(", ")))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Errors(pub Vec<FieldError>);

impl Errors {
    /// Runs a check and returns what it found.
    pub fn of(check: impl FnOnce(&mut Self)) -> Vec<FieldError> {
        let mut errors = Self::default();
        check(&mut errors);
        errors.0
    }

    pub fn add(&mut self, error: FieldError) {
        self.0.push(error);
    }

    pub fn extend(&mut self, errors: impl IntoIterator<Item = FieldError>) {
        self.0.extend(errors);
    }

    /// Whether the field has a value; an error when not.
    pub fn require(&mut self, field: &Field<'_>) -> bool {
        if field.is_zero() {
            self.add(field.required(""));
        }
        !field.is_zero()
    }

    pub fn require_all(&mut self, object: &Field<'_>, keys: &[&str]) {
        for key in keys {
            self.require(&object.at(key));
        }
    }

    /// Every message of the rule becomes an error that shows the field.
    pub fn words(&mut self, field: &Field<'_>, rule: fn(&str) -> Vec<String>) {
        self.extend(rule(field.text()).into_iter().map(|message| field.invalid_as(field.text(), message)));
    }

    pub fn dns_label(&mut self, field: &Field<'_>) {
        self.words(field, names::dns_label);
    }

    pub fn dns_subdomain(&mut self, field: &Field<'_>) {
        self.words(field, names::dns_subdomain);
    }

    pub fn qualified_name(&mut self, field: &Field<'_>) {
        self.words(field, names::qualified_name);
    }

    /// The value is one of those listed. An empty value is not supported either.
    pub fn one_of(&mut self, field: &Field<'_>, supported: &[&str]) {
        if !supported.contains(&field.text()) {
            self.add(field.unsupported(supported));
        }
    }

    /// As [`Self::one_of`] for fields that may be left out.
    pub fn one_of_if_set(&mut self, field: &Field<'_>, supported: &[&str]) {
        if field.is_set() {
            self.one_of(field, supported);
        }
    }

    /// As [`Self::one_of`], where an empty value is missing rather than wrong.
    pub fn required_one_of(&mut self, field: &Field<'_>, supported: &[&str]) {
        if self.require(field) {
            self.one_of(field, supported);
        }
    }

    pub fn non_negative(&mut self, field: &Field<'_>) {
        if field.int() < 0 {
            self.add(field.invalid(NEGATIVE));
        }
    }

    pub fn positive(&mut self, field: &Field<'_>) {
        if field.int() <= 0 {
            self.add(field.invalid_as(field.int(), "must be greater than zero"));
        }
    }

    /// A number, if set, lies between the bounds.
    pub fn in_range(&mut self, field: &Field<'_>, low: i64, high: i64) {
        if field.is_set() && !(low..=high).contains(&field.int()) {
            self.add(field.invalid(range(low, high)));
        }
    }

    pub fn port_number(&mut self, field: &Field<'_>) {
        self.extend(names::port_number(field.int()).into_iter().map(|m| field.invalid_as(field.int(), m)));
    }

    /// A number, or the name of a port.
    pub fn port(&mut self, field: &Field<'_>) {
        match field.value {
            Value::String(_) => self.words(field, names::port_name),
            _ => self.port_number(field),
        }
    }

    pub fn labels(&mut self, field: &Field<'_>) {
        if let Some(labels) = field.value.as_object() {
            self.extend(validate_labels(labels, &field.path));
        }
    }

    pub fn annotations(&mut self, field: &Field<'_>) {
        if let Some(annotations) = field.value.as_object() {
            self.extend(metadata::validate_annotations(annotations, &field.path));
        }
    }

    pub fn label_selector(&mut self, field: &Field<'_>) {
        self.extend(validate_label_selector(field.value, LabelSelectorOptions::default(), &field.path));
    }

    pub fn immutable(&mut self, field: &Field<'_>, old: &Value) {
        let same = field.value == old || (is_zero(field.value) && is_zero(old));
        if !same {
            self.add(field.invalid(IMMUTABLE));
        }
    }

    /// As [`Self::immutable`], where the error does not show the value (upstream's generated rules).
    pub fn immutable_unshown(&mut self, field: &Field<'_>, old: &Value) {
        let before = self.0.len();
        self.immutable(field, old);
        if self.0.len() > before {
            self.0.truncate(before);
            self.add(field.invalid_unshown(IMMUTABLE));
        }
    }

    /// A rule for names that is the kind's own. What names begin with is judged by it as well.
    pub fn own_name(&mut self, object: &Value, rule: impl Fn(&str) -> Vec<String>) {
        for key in ["generateName", "name"] {
            let field = Field::root(object).at("metadata").at(key);
            if !field.is_zero() {
                self.extend(rule(field.text()).into_iter().map(|message| field.invalid(message)));
            }
        }
    }

    pub fn ip(&mut self, field: &Field<'_>) {
        self.extend(names::validate_ip_legacy(&field.path, field.text(), true));
    }

    pub fn cidr(&mut self, field: &Field<'_>) {
        self.extend(names::validate_cidr_legacy(&field.path, field.text(), true));
    }
}

pub(crate) fn range(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// Repeats in a list, by a key of its items.
#[derive(Default)]
pub(crate) struct Seen(std::collections::BTreeSet<String>);

impl Seen {
    /// Whether the key was seen before; it is from now on.
    pub fn again(&mut self, key: impl Into<String>) -> bool {
        !self.0.insert(key.into())
    }

    pub fn has(&self, key: &str) -> bool {
        self.0.contains(key)
    }
}

/// What differs between two values, a line for each place: for messages about fields that may not change.
pub(crate) fn diff(old: &Value, new: &Value) -> String {
    let mut lines = Vec::new();
    walk("", old, new, &mut lines);
    lines.truncate(DIFF_LINES_MAX);
    lines.join("\n")
}

const DIFF_LINES_MAX: usize = 20;

fn walk(path: &str, old: &Value, new: &Value, lines: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                walk(&format!("{path}.{key}"), a.get(key).unwrap_or(&NULL), b.get(key).unwrap_or(&NULL), lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (x, y)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}[{index}]"), x, y, lines);
            }
        }
        (a, b) if a == b => {}
        (a, b) => lines.push(format!("{}: {a} -> {b}", path.trim_start_matches('.'))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_know_their_path() {
        let object = json!({"spec": {"list": [{"a": 1}], "map": {"x/y": "z"}}});
        let spec = Field::root(&object).at("spec");
        let item = spec.at("list").items().next().expect("one item");
        assert_eq!(item.at("a").required("").to_string(), "spec.list[0].a: Required value");
        let (_, entry) = spec.at("map").entries().next().expect("one entry");
        assert_eq!(entry.invalid("no").to_string(), "spec.map[x/y]: Invalid value: \"z\": no");
    }

    #[test]
    fn a_difference_names_its_place() {
        assert_eq!(diff(&json!({"a": [{"b": 1}], "c": 1}), &json!({"a": [{"b": 2}], "c": 1})), "a[0].b: 1 -> 2");
    }
}
