//! One of several processes leads: whoever holds a Lease, and only as long as it can prove it.
//!
//! Clocks of different machines are never compared. Another holder counts as gone when its Lease did not
//! change for the Lease's own duration on our clock; and a leader that could not renew for less than that
//! stops before anybody else may start.

use crate::client::{Client, ClientError};
use crate::clock::Clock;
use crate::resources::LEASES;
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Who wants to lead what.
#[derive(Clone, Debug)]
pub struct LeaderConfig {
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Ours among all candidates: the name of the pod.
    pub identity: String,
    /// How long a silent leader is waited for.
    pub lease: Duration,
    /// How long a leader goes on that cannot renew; less than `lease`.
    pub renew_deadline: Duration,
    /// How often a Lease is renewed, or looked at.
    pub retry: Duration,
}

impl LeaderConfig {
    /// Leadership moves within seconds, and a slow API server of a few seconds costs nobody the lead.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease: Duration::from_secs(8),
            renew_deadline: Duration::from_secs(6),
            retry: Duration::from_secs(1),
        }
    }
}

/// How leading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Led {
    /// We were cancelled, and let the Lease go.
    Released,
    /// Somebody else may lead by now: the process should end, and begin anew.
    Lost,
}

/// What the Lease says about us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nobody holds it, or we do.
    Ours,
    /// Held by another one, who may still be there.
    Others,
    /// Held by another one who has been silent for too long.
    Expired,
}

/// What was seen of the Lease, and when it last changed on our clock.
struct Observed {
    lease: Option<Value>,
    changed: Instant,
}

impl Observed {
    fn see(&mut self, lease: Option<Value>, now: Instant) {
        let version = |lease: &Option<Value>| lease.as_ref().map(|l| l.resource_version().to_string());
        if version(&self.lease) != version(&lease) {
            self.changed = now;
        }
        self.lease = lease;
    }

    fn standing(&self, identity: &str, now: Instant) -> Standing {
        let Some(lease) = &self.lease else { return Standing::Ours };
        let holder = lease.str_at("/spec/holderIdentity").unwrap_or_default();
        if holder.is_empty() || holder == identity {
            return Standing::Ours;
        }
        let seconds = lease.i64_at("/spec/leaseDurationSeconds").and_then(|s| u64::try_from(s).ok()).unwrap_or(1);
        if now.duration_since(self.changed) >= Duration::from_secs(seconds) { Standing::Expired } else { Standing::Others }
    }
}

/// Waits for the lead, then runs `work` with a token that is cancelled when the lead or `cancel` ends.
/// The lead is let go after `work` has returned.
pub async fn lead<F, W>(client: &Client, clock: &Clock, config: &LeaderConfig, cancel: CancellationToken, work: F) -> Led
where
    F: FnOnce(CancellationToken) -> W,
    W: Future<Output = ()>,
{
    let mut observed = Observed { lease: None, changed: Instant::now() };
    loop {
        match try_hold(client, clock, config, &mut observed).await {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "the lease cannot be had, will retry"),
        }
        tokio::select! {
            () = tokio::time::sleep(config.retry) => {}
            () = cancel.cancelled() => return Led::Released,
        }
    }
    tracing::info!(identity = config.identity, "leads");
    let stop = cancel.child_token();
    let renewal = async {
        let end = keep(client, clock, config, &mut observed, &cancel).await;
        stop.cancel();
        end
    };
    let ((), end) = tokio::join!(
        async {
            work(stop.clone()).await;
            stop.cancel();
        },
        renewal
    );
    if end == Led::Released {
        release(client, clock, config, &mut observed).await;
    }
    end
}

/// Renews until cancelled, or until it may be too late.
async fn keep(client: &Client, clock: &Clock, config: &LeaderConfig, observed: &mut Observed, cancel: &CancellationToken) -> Led {
    let mut renewed = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(config.retry) => {}
            () = cancel.cancelled() => return Led::Released,
        }
        let left = config.renew_deadline.saturating_sub(renewed.elapsed());
        match tokio::time::timeout(left, try_hold(client, clock, config, observed)).await {
            Ok(Ok(true)) => renewed = Instant::now(),
            Ok(Ok(false)) => {
                tracing::warn!("another one holds the lease");
                return Led::Lost;
            }
            Ok(Err(error)) => tracing::warn!(%error, "the lease cannot be renewed, will retry"),
            Err(_) => {}
        }
        if renewed.elapsed() >= config.renew_deadline {
            tracing::warn!("the lease could not be renewed in time");
            return Led::Lost;
        }
    }
}

/// Takes or renews the Lease if that is allowed; whether we hold it now.
async fn try_hold(client: &Client, clock: &Clock, config: &LeaderConfig, observed: &mut Observed) -> Result<bool, ClientError> {
    let live = client.get_opt(&LEASES, &config.namespace, &config.name).await?;
    observed.see(live, Instant::now());
    if observed.standing(&config.identity, Instant::now()) == Standing::Others {
        return Ok(false);
    }
    let now = clock.rfc3339_micro();
    let held = observed.lease.as_ref().is_some_and(|l| l.str_at("/spec/holderIdentity") == Some(&config.identity));
    let mut spec = json!({
        "holderIdentity": config.identity, "leaseDurationSeconds": config.lease.as_secs(), "renewTime": now,
    });
    let written = match &observed.lease {
        None => {
            spec["acquireTime"] = json!(now);
            spec["leaseTransitions"] = json!(0);
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": config.name, "namespace": config.namespace}, "spec": spec,
            });
            client.create(&LEASES, &lease).await
        }
        Some(live) => {
            if !held {
                spec["acquireTime"] = json!(now);
                spec["leaseTransitions"] = json!(live.i64_at("/spec/leaseTransitions").unwrap_or(0) + 1);
            }
            // Whoever was faster changed the version, and our write is refused.
            let patch = json!({"metadata": {"resourceVersion": live.resource_version()}, "spec": spec});
            client.merge_patch(&LEASES, &config.namespace, &config.name, patch).await
        }
    };
    match written {
        Ok(lease) => {
            observed.see(Some(lease), Instant::now());
            Ok(true)
        }
        // While we hold it, the next look tells whether it is still ours.
        Err(error) if error.is_conflict() || error.is_already_exists() => Ok(held),
        Err(error) => Err(error),
    }
}

/// Lets the next one begin at once.
async fn release(client: &Client, clock: &Clock, config: &LeaderConfig, observed: &mut Observed) {
    let Some(lease) = observed.lease.as_ref().filter(|l| l.str_at("/spec/holderIdentity") == Some(&config.identity)) else { return };
    let patch = json!({
        "metadata": {"resourceVersion": lease.resource_version()},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": clock.rfc3339_micro()},
    });
    if let Err(error) = client.merge_patch(&LEASES, &config.namespace, &config.name, patch).await {
        tracing::debug!(%error, "the lease was not released; it ends by itself");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, version: &str) -> Option<Value> {
        Some(json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 8}}))
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_holder_is_gone_only_after_its_own_time_on_our_clock() {
        let start = Instant::now();
        let mut observed = Observed { lease: None, changed: start };
        assert_eq!(observed.standing("me", start), Standing::Ours);
        // A Lease that is old already when it is first seen may be that of a holder whose clock is behind.
        observed.see(lease("other", "1"), start + Duration::from_secs(1));
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(observed.standing("me", at(8)), Standing::Others);
        assert_eq!(observed.standing("me", at(9)), Standing::Expired);
        observed.see(lease("other", "2"), at(8));
        assert_eq!(observed.standing("me", at(15)), Standing::Others);
        assert_eq!(observed.standing("other", at(15)), Standing::Ours);
        observed.see(lease("", "3"), at(15));
        assert_eq!(observed.standing("me", at(15)), Standing::Ours);
    }
}
