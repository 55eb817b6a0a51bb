//! One webhook of a configuration, parsed.

use super::super::conditions::{Condition, Extras};
use super::super::matching::Matcher;
use crate::outgoing::Target;
use serde_json::Value;
use std::time::Duration;
use sublet_machinery::ObjectExt;

#[derive(Debug)]
pub(super) struct Hook {
    /// `configuration/webhook/number`, unique among all hooks.
    pub(super) uid: String,
    pub(super) configuration: String,
    pub(super) name: String,
    pub(super) matcher: Matcher,
    pub(super) conditions: Vec<Condition>,
    pub(super) target: Result<Target, String>,
    pub(super) review_versions: Vec<String>,
    pub(super) timeout: Duration,
    /// `failurePolicy: Ignore`
    pub(super) fails_open: bool,
    /// Its side effects stay away from dry runs.
    pub(super) may_dry_run: bool,
    /// `reinvocationPolicy: IfNeeded`
    pub(super) asks_again: bool,
}

impl Hook {
    /// The hooks of a configuration.
    pub(super) fn all(configuration: &Value) -> Vec<Self> {
        let name = configuration.name();
        let hooks = configuration.array_at("/webhooks").iter().enumerate();
        hooks.map(|(index, hook)| Self::of(name, index, hook)).filter(|hook| hook.matcher.has_rules()).collect()
    }

    fn of(configuration: &str, index: usize, stated: &Value) -> Self {
        let text = |key: &str| stated[key].as_str().unwrap_or_default();
        let versions = stated["admissionReviewVersions"].as_array().into_iter().flatten();
        Self {
            uid: format!("{configuration}/{}/{index}", text("name")),
            configuration: configuration.to_string(),
            name: text("name").to_string(),
            matcher: Matcher::of(stated),
            conditions: Condition::all(&stated["matchConditions"], Extras { authorizer: true, ..Extras::default() }),
            target: Target::of_client_config(&stated["clientConfig"]),
            review_versions: versions.filter_map(Value::as_str).map(str::to_string).collect(),
            timeout: Duration::from_secs(stated["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30)),
            fails_open: text("failurePolicy") == "Ignore",
            may_dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            asks_again: text("reinvocationPolicy") == "IfNeeded",
        }
    }
}
