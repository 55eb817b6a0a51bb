//! The address families of a Service: what follows from its policy, its addresses and the cluster
//! (as in registry/core/service/storage/alloc.go, 1.37).

use super::service::{self, cluster_ips, ip_families, kind, strings};
use serde_json::{Value, json};
use std::net::IpAddr;
use sublet_machinery::{FieldError, FieldPath, ObjectExt};

pub(super) const IPV4: &str = "IPv4";
pub(super) const IPV6: &str = "IPv6";

/// Fills `ipFamilyPolicy` and `ipFamilies`. `configured` are the families of the cluster, the default first.
pub(super) fn fill(service: &mut Value, old: Option<&Value>, configured: &[&'static str]) -> Result<(), Vec<FieldError>> {
    if kind(service) == "ExternalName" || is_settled_dual_stack(service, old) {
        return Ok(());
    }
    fill_policy(service, old);
    refuse(validate(service))?;
    let mut errors = old.map(|old| apply_downgrade(service, old)).unwrap_or_default();
    errors.extend(check_policy(service));
    errors.extend(infer_families(service, configured));
    refuse(errors)?;
    if service::is_headless(service) && !service::has_selector(service) {
        fill_headless(service, configured);
        return Ok(());
    }
    refuse(check_configured(service, configured))?;
    let mut families = ip_families(service);
    if families.is_empty() {
        families.extend(configured.first().map(|f| (*f).to_string()));
    }
    if policy(service) != "SingleStack" && families.len() == 1 && configured.len() == 2 {
        families.push(other(&families[0]).into());
    }
    service["spec"]["ipFamilies"] = json!(families);
    Ok(())
}

fn refuse(errors: Vec<FieldError>) -> Result<(), Vec<FieldError>> {
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

pub(super) fn policy(service: &Value) -> &str {
    service.str_at("/spec/ipFamilyPolicy").unwrap_or_default()
}

/// A service that prefers two families keeps what it has when the cluster's families change.
pub(super) fn is_settled_dual_stack(service: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else { return false };
    let prefers = |s: &Value| policy(s) == "PreferDualStack";
    prefers(service)
        && (policy(old).is_empty() || prefers(old))
        && kind(service) == kind(old)
        && ["ClusterIP", "NodePort", "LoadBalancer"].contains(&kind(service))
        && cluster_ips(service) == cluster_ips(old)
        && ip_families(service) == ip_families(old)
}

fn fill_policy(service: &mut Value, old: Option<&Value>) {
    if service.str_at("/spec/ipFamilyPolicy").is_some() {
        return;
    }
    let policy = match old.map(policy).filter(|p| !p.is_empty()) {
        Some(policy) => policy,
        None if service::is_headless(service) && !service::has_selector(service) => "RequireDualStack",
        None => "SingleStack",
    };
    service["spec"]["ipFamilyPolicy"] = json!(policy);
}

/// Rules that must hold before anything is allocated.
fn validate(service: &Value) -> Vec<FieldError> {
    let spec = FieldPath::new("spec");
    let (ips_path, families_path) = (spec.child("clusterIPs"), spec.child("ipFamilies"));
    let ips = cluster_ips(service);
    let shown = || service["spec"]["clusterIPs"].clone();
    let mut errors = Vec::new();
    let first = service.str_at("/spec/clusterIP").unwrap_or_default();
    match (first.is_empty(), ips.first()) {
        (false, None) => errors.push(FieldError::required(&ips_path, "")),
        (false, Some(ip)) if ip != first => errors.push(FieldError::invalid(&ips_path, shown(), "first value must match `clusterIP`")),
        (true, Some(_)) => errors.push(FieldError::invalid(&ips_path, shown(), "must be empty when `clusterIP` is not specified")),
        _ => {}
    }
    let families = ip_families(service);
    for (i, family) in families.iter().enumerate() {
        if family != IPV4 && family != IPV6 {
            errors.push(FieldError::not_supported(&families_path.index(i), family.as_str(), &[IPV4, IPV6]));
        }
        if families[..i].contains(family) {
            errors.push(FieldError::duplicate(&families_path.index(i), family.as_str()));
        }
    }
    let policies = ["SingleStack", "PreferDualStack", "RequireDualStack"];
    if !policies.contains(&policy(service)) {
        errors.push(FieldError::not_supported(&spec.child("ipFamilyPolicy"), policy(service), &policies));
    }
    errors.extend(validate_addresses(&ips, &families, &ips_path, &shown));
    errors
}

fn validate_addresses(ips: &[String], families: &[String], path: &FieldPath, shown: &dyn Fn() -> Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut unreadable = false;
    for (i, ip) in ips.iter().enumerate() {
        if i == 0 && ip == service::NONE {
            if ips.len() > 1 {
                unreadable = true;
                errors.push(FieldError::invalid(path, shown(), "'None' must be the first and only value"));
            }
        } else if ip.parse::<IpAddr>().is_err() {
            unreadable = true;
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(&path.index(i), ip.as_str(), detail));
        }
    }
    if ips.len() > 2 {
        errors.push(FieldError::invalid(path, shown(), "may only hold up to 2 values"));
    }
    if unreadable {
        return errors;
    }
    let found: Vec<&str> = ips.iter().map(|ip| family_of(ip)).collect();
    if ips.len() > 1 && !(found.contains(&IPV4) && found.contains(&IPV6)) {
        errors.push(FieldError::invalid(path, shown(), "may specify no more than one IP for each IP family"));
    }
    for (i, (ip, family)) in ips.iter().zip(families).enumerate().filter(|(_, (ip, _))| *ip != service::NONE) {
        if found[i] != family && (family == IPV4 || family == IPV6) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.push(FieldError::invalid(&path.index(i), ip.as_str(), detail));
        }
    }
    errors
}

/// SingleStack is the clear wish to give the second family up; anything else must not lose it silently.
fn apply_downgrade(service: &mut Value, old: &Value) -> Vec<FieldError> {
    let (ips, families) = (cluster_ips(service), ip_families(service));
    let (old_ips, old_families) = (cluster_ips(old), ip_families(old));
    if policy(service) == "SingleStack" {
        if ips == old_ips && ips.len() > 1 {
            service["spec"]["clusterIPs"] = json!(ips[..1]);
        }
        if families == old_families && families.len() > 1 {
            service["spec"]["ipFamilies"] = json!(families[..1]);
        }
        return Vec::new();
    }
    let path = FieldPath::new("spec.ipFamilyPolicy");
    let mut errors = Vec::new();
    if !ips.is_empty() && ips.len() < old_ips.len() {
        errors.push(FieldError::invalid(&path, policy(service), "must be 'SingleStack' to release the secondary cluster IP"));
    }
    if !families.is_empty() && families.len() < old_families.len() {
        errors.push(FieldError::invalid(&path, policy(service), "must be 'SingleStack' to release the secondary IP family"));
    }
    errors
}

fn check_policy(service: &Value) -> Vec<FieldError> {
    let path = FieldPath::new("spec.ipFamilyPolicy");
    let mut errors = Vec::new();
    if policy(service) == "SingleStack" {
        for (count, what) in [(cluster_ips(service).len(), "cluster IPs"), (ip_families(service).len(), "IP families")] {
            if count == 2 {
                let detail = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
                errors.push(FieldError::invalid(&path, policy(service), detail));
            }
        }
    }
    errors
}

/// Addresses that were asked for tell the families.
fn infer_families(service: &mut Value, configured: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut families = ip_families(service);
    for (i, ip) in cluster_ips(service).iter().enumerate().take_while(|(_, ip)| *ip != service::NONE) {
        if i < families.len() {
            continue;
        }
        let family = family_of(ip);
        if configured.contains(&family) {
            families.push(family.into());
        } else {
            let path = FieldPath::new("spec.clusterIPs").index(i);
            let detail = format!("{family} is not configured on this cluster");
            errors.push(FieldError::invalid(&path, service["spec"]["clusterIPs"].clone(), detail));
        }
    }
    if !families.is_empty() {
        service["spec"]["ipFamilies"] = json!(families);
    }
    errors
}

/// Without a selector the endpoints are the user's, so both families are allowed anywhere.
fn fill_headless(service: &mut Value, configured: &[&str]) {
    let mut families = ip_families(service);
    if families.is_empty() {
        families.extend(configured.first().map(|f| (*f).to_string()));
    }
    if families.len() == 1 && policy(service) != "SingleStack" {
        families.push(other(&families[0]).into());
    }
    service["spec"]["ipFamilies"] = json!(families);
}

fn check_configured(service: &Value, configured: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if policy(service) == "RequireDualStack" && configured.len() < 2 {
        let path = FieldPath::new("spec.ipFamilyPolicy");
        errors.push(FieldError::invalid(&path, policy(service), "this cluster is not configured for dual-stack services"));
    }
    for (i, family) in strings(&service["spec"]["ipFamilies"]).iter().enumerate() {
        if !configured.contains(&family.as_str()) {
            let path = FieldPath::new("spec.ipFamilies").index(i);
            errors.push(FieldError::invalid(&path, family.as_str(), "not configured on this cluster"));
        }
    }
    errors
}

fn other(family: &str) -> &'static str {
    if family == IPV4 { IPV6 } else { IPV4 }
}

pub(super) fn family_of(ip: &str) -> &'static str {
    match ip.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => IPV4,
        Ok(IpAddr::V6(_)) => IPV6,
        Err(_) => "unknown",
    }
}
