//! Expressions of admission: what they can name, how they are compiled, and match conditions.

mod authorizer;

pub(super) use authorizer::Asker;

use crate::cel::{self, AUTHORIZER, CALL_COST_MAX, CompileError, EvalError, Fields, Program, Type, Val};
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// Costs of all match conditions of one webhook or policy for one request.
const MATCH_COST_MAX: u64 = 2_500_000;

/// What expressions can name beside `object`, `oldObject`, `request` and `namespaceObject`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras<'a> {
    pub(crate) params: bool,
    pub(crate) authorizer: bool,
    /// The type of `variables`.
    pub(crate) variables: Option<&'a Arc<Fields>>,
    /// `Object{...}` and `JSONPatch{...}`.
    pub(crate) messages: bool,
}

/// The variables of expressions in admission.
pub(crate) fn declare(extras: Extras<'_>) -> Vec<(&'static str, Type<'static>)> {
    let mut declared = vec![
        ("object", Type::Dyn),
        ("oldObject", Type::Dyn),
        ("namespaceObject", Type::Fields(NAMESPACE.clone())),
        ("request", Type::Fields(REQUEST.clone())),
    ];
    if extras.params {
        declared.push(("params", Type::Dyn));
    }
    if extras.authorizer {
        declared.push(("authorizer", Type::Opaque(AUTHORIZER)));
    }
    if extras.messages {
        declared.extend([("Object", Type::Type), ("JSONPatch", Type::Type)]);
    }
    if let Some(fields) = extras.variables {
        declared.push(("variables", Type::Fields(fields.clone())));
    }
    declared
}

/// Compiles an expression whose result must be of one of the types; any will do when there are none.
pub(crate) fn compile(
    text: &str,
    variables: &[(&str, Type<'static>)],
    wanted: &[Type<'static>],
) -> Result<(Program, Type<'static>), String> {
    let compiled = cel::compile(text, variables, None).map_err(|error| match error {
        CompileError::Wrong(_) => error.to_string(),
        CompileError::Unusable(_) => format!("program {error}"),
    })?;
    match wanted {
        [one] if *one != compiled.result => Err(format!("must evaluate to {one} but got {}", compiled.result)),
        [_, _, ..] if !wanted.contains(&compiled.result) => {
            // Types have a longer name where they are listed.
            let name = |wanted: &Type<'_>| if *wanted == Type::Null { "null_type".into() } else { wanted.to_string() };
            let names: Vec<String> = wanted.iter().map(name).collect();
            Err(format!("must evaluate to one of [{}] but got {}", names.join(" "), compiled.result))
        }
        _ => Ok((compiled.program, compiled.result)),
    }
}

/// The values of one request. Null stands for what is not there.
pub(super) struct Input<'v> {
    pub(super) object: &'v Value,
    pub(super) old: &'v Value,
    pub(super) request: &'v Value,
    pub(super) namespace: &'v Value,
    pub(super) params: &'v Value,
    pub(super) asker: Option<&'v Asker>,
}

impl<'v> Input<'v> {
    pub(super) fn values(&self) -> Result<Vec<(&'static str, Val<'v>)>, String> {
        let of = |value: &'v Value| cel::of_json(value, None, false);
        let mut values = vec![
            ("object", of(self.object)?),
            ("oldObject", of(self.old)?),
            ("request", of(self.request)?),
            ("namespaceObject", of(self.namespace)?),
            ("params", of(self.params)?),
        ];
        if let Some(asker) = self.asker {
            values.push(("authorizer", asker.value()));
        }
        Ok(values)
    }
}

/// A compiled condition with its text, which errors show.
#[derive(Debug)]
pub(super) struct Condition {
    text: String,
    program: Result<Program, String>,
}

/// What match conditions say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Matches,
    Skip,
    /// Some have no result, and none is false.
    Failed(String),
}

impl Condition {
    /// From the `matchConditions` of a webhook or policy.
    pub(super) fn all(stated: &Value, extras: Extras<'_>) -> Vec<Self> {
        let variables = declare(extras);
        let conditions = stated.as_array().into_iter().flatten();
        conditions
            .map(|condition| {
                let text = condition["expression"].as_str().unwrap_or_default().to_string();
                let program = compile(&text, &variables, &[Type::Bool]).map(|(program, _)| program);
                Self { program, text }
            })
            .collect()
    }
}

/// Whether all conditions are true. One that is false decides, whatever others fail.
pub(super) fn check(conditions: &[Condition], input: &Input<'_>) -> Verdict {
    if conditions.is_empty() {
        return Verdict::Matches;
    }
    let values = match input.values() {
        Ok(values) => values,
        Err(error) => return Verdict::Failed(error),
    };
    let (mut budget, mut errors) = (MATCH_COST_MAX, Vec::new());
    for condition in conditions {
        let program = match &condition.program {
            Ok(program) => program,
            Err(error) => {
                errors.push(format!("compilation error: {error}"));
                continue;
            }
        };
        let (result, cost) = program.eval(&values, CALL_COST_MAX);
        if cost > budget {
            return Verdict::Failed("validation failed due to running out of cost budget, no further validation rules will be run".into());
        }
        budget -= cost;
        match result {
            Ok(Val::Bool(true)) => {}
            Ok(_) => return Verdict::Skip,
            Err(error) => errors.push(failed(&condition.text, &error)),
        }
    }
    match errors.as_slice() {
        [] => Verdict::Matches,
        [one] => Verdict::Failed(one.clone()),
        _ => Verdict::Failed(format!("[{}]", errors.join(", "))),
    }
}

/// `expression 'x' resulted in error: y`
pub(super) fn failed(text: &str, error: &EvalError) -> String {
    format!("expression '{text}' resulted in error: {error}")
}

/// The type of `request`, and that of `namespaceObject`.
static REQUEST: LazyLock<Arc<Fields>> = LazyLock::new(|| {
    let texts = || Type::List(Box::new(Type::String));
    let gvk = fields("kubernetes.GroupVersionKind", [("group", Type::String), ("version", Type::String), ("kind", Type::String)]);
    let gvr = fields("kubernetes.GroupVersionResource", [("group", Type::String), ("version", Type::String), ("resource", Type::String)]);
    let user = fields(
        "kubernetes.UserInfo",
        [
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", texts()),
            ("extra", Type::Map(Box::new(Type::String), Box::new(texts()))),
        ],
    );
    fields(
        "kubernetes.AdmissionRequest",
        [
            ("kind", Type::Fields(gvk.clone())),
            ("resource", Type::Fields(gvr.clone())),
            ("subResource", Type::String),
            ("requestKind", Type::Fields(gvk)),
            ("requestResource", Type::Fields(gvr)),
            ("requestSubResource", Type::String),
            ("name", Type::String),
            ("namespace", Type::String),
            ("operation", Type::String),
            ("userInfo", Type::Fields(user)),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
});

static NAMESPACE: LazyLock<Arc<Fields>> = LazyLock::new(|| {
    let texts = || Type::List(Box::new(Type::String));
    let map = || Type::Map(Box::new(Type::String), Box::new(Type::String));
    let condition = fields(
        "kubernetes.NamespaceCondition",
        [
            ("status", Type::String),
            ("type", Type::String),
            ("lastTransitionTime", Type::Timestamp),
            ("message", Type::String),
            ("reason", Type::String),
        ],
    );
    let status =
        fields("kubernetes.NamespaceStatus", [("conditions", Type::List(Box::new(Type::Fields(condition)))), ("phase", Type::String)]);
    let metadata = fields(
        "kubernetes.NamespaceMetadata",
        [
            ("name", Type::String),
            ("generateName", Type::String),
            ("namespace", Type::String),
            ("labels", map()),
            ("annotations", map()),
            ("UID", Type::String),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", Type::String),
            ("finalizers", texts()),
        ],
    );
    let spec = fields("kubernetes.NamespaceSpec", [("finalizers", texts())]);
    fields("kubernetes.Namespace", [("metadata", Type::Fields(metadata)), ("spec", Type::Fields(spec)), ("status", Type::Fields(status))])
});

fn fields<const N: usize>(name: &'static str, fields: [(&str, Type<'static>); N]) -> Arc<Fields> {
    Arc::new(Fields { name, fields: fields.into_iter().map(|(name, found)| (name.to_string(), found)).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const EXTRAS: Extras<'static> = Extras { params: false, authorizer: true, variables: None, messages: false };

    fn verdict(expressions: &[&str]) -> Verdict {
        let stated: Vec<Value> = expressions.iter().map(|e| json!({"name": "c", "expression": e})).collect();
        let object = json!({"metadata": {"name": "web", "namespace": "ns", "labels": {"a": "b"}}, "spec": {"replicas": 3}});
        let request =
            json!({"operation": "CREATE", "namespace": "ns", "userInfo": {"username": "eve", "groups": ["dev"]}, "options": null});
        let input =
            Input { object: &object, old: &Value::Null, request: &request, namespace: &Value::Null, params: &Value::Null, asker: None };
        check(&Condition::all(&json!(stated), EXTRAS), &input)
    }

    #[test]
    fn conditions_see_the_request() {
        for text in [
            "object.metadata.namespace == 'ns'",
            "oldObject == null",
            "request.operation == 'CREATE' && request.namespace == 'ns'",
            "request.userInfo.groups.exists(g, g == 'dev')",
            "object.spec.replicas > 2 && !has(object.spec.paused)",
            "has(request.userInfo.username) && !has(request.userInfo.uid)",
            "request.userInfo.username in ['eve']",
        ] {
            assert_eq!(verdict(&[text]), Verdict::Matches, "{text}");
        }
        assert_eq!(verdict(&["object.spec.replicas > 5"]), Verdict::Skip);
    }

    #[test]
    fn one_false_condition_decides_and_failures_come_next() {
        let failing = "object.spec.missing == 1";
        let text = "expression 'object.spec.missing == 1' resulted in error: no such key: missing";
        assert_eq!(verdict(&["true", failing]), Verdict::Failed(text.into()));
        assert_eq!(verdict(&[failing, "false"]), Verdict::Skip);
        assert_eq!(verdict(&[failing, failing]), Verdict::Failed(format!("[{text}, {text}]")));
    }

    #[test]
    fn what_does_not_compile_says_why() {
        let error = |text: &str| compile(text, &declare(EXTRAS), &[Type::Bool]).map(|_| ()).unwrap_err();
        assert_eq!(error("'a'"), "must evaluate to bool but got string");
        assert_eq!(error("object.metadata.name"), "must evaluate to bool but got dyn");
        assert!(
            error("request.nothing == 1").starts_with("compilation failed: ERROR: <input>:1:8: undefined field 'nothing'"),
            "{}",
            error("request.nothing == 1")
        );
        assert!(compile("authorizer.requestResource.check('get').allowed()", &declare(EXTRAS), &[Type::Bool]).is_ok());
    }
}
