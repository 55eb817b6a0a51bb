//! Limit ranges and resource quotas.

use super::super::edit::{ensure, fill, fill_zero, is_zero, items};
use super::super::quantities::round_up_list;
use super::super::status::{empty_status, keep_spec};
use super::super::{Strategy, keep_status};
use super::limits;
use serde_json::Value;

pub(crate) const LIMIT_RANGE: Strategy = Strategy {
    default: default_limit_range,
    prepare_create: name_limit_range,
    validate: limits::validate_limit_range,
    create_on_update: true,
    ..Strategy::PLAIN
};

pub(crate) const RESOURCE_QUOTA: Strategy = Strategy {
    default: default_quota,
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    validate: limits::validate_quota,
    validate_update: limits::validate_quota_update,
    validate_status_update: limits::validate_quota_status,
    warnings: limits::quota_warnings,
    warnings_update: Some(|_, _| Vec::new()),
    ..Strategy::PLAIN
};

/// A limit range without a name gets one.
fn name_limit_range(range: &mut Value) {
    fill_zero(ensure(range, "metadata"), "name", uuid::Uuid::new_v4().to_string());
}

/// Container limits complete each other: max gives the default, the default or min the default request.
fn default_limit_range(range: &mut Value) {
    for item in items(ensure(range, "spec"), "limits") {
        if item["type"] == "Container" {
            for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
                let source = item[from].as_object().cloned().unwrap_or_default();
                let target = ensure(item, to);
                for (name, quantity) in source {
                    fill(target, &name, quantity);
                }
            }
        }
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            round_up_list(item, list);
            if is_zero(&item[list]) {
                super::super::edit::remove(item, list);
            }
        }
    }
}

fn default_quota(quota: &mut Value) {
    round_up_list(ensure(quota, "spec"), "hard");
    let status = ensure(quota, "status");
    round_up_list(status, "hard");
    round_up_list(status, "used");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn container_limits_complete_each_other() {
        let mut range = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}, {"type": "Pod", "max": {"cpu": "4"}}]}});
        default_limit_range(&mut range);
        assert_eq!(
            range["spec"]["limits"],
            json!([{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}, "default": {"cpu": "2"},
                    "defaultRequest": {"cpu": "2", "memory": "1Mi"}}, {"type": "Pod", "max": {"cpu": "4"}}])
        );
    }
}
