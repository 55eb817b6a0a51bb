//! Which of the kinds that not every host serves this one serves, and how they are defined there.

use super::host::{HostCache, HostKind};
use super::host_kind::WATCHED;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::CUSTOM_RESOURCE_DEFINITIONS;
use tokio_util::sync::CancellationToken;

/// Between two looks at a kind that the host does not serve.
const LOOK_PAUSE: Duration = Duration::from_secs(30);
/// Looks that a kind is left out of once it is served: definitions are large, and rarely change.
const SERVED_PAUSES: u32 = 10;

/// How the host stands to a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Offer {
    /// Served, by this definition.
    Served(Arc<Value>),
    Missing,
    /// The host does not let us look.
    Hidden,
}

/// What was seen so far.
pub type Offers = BTreeMap<HostKind, Offer>;

/// Looks again and again until cancelled.
pub(super) async fn follow(cache: Arc<HostCache>, cancel: CancellationToken) {
    let kinds: Vec<(HostKind, String)> = WATCHED.iter().filter_map(|w| Some((w.kind, w.kind.definition()?))).collect();
    for look in 0_u32.. {
        for (kind, definition) in &kinds {
            let served = matches!(cache.offer(*kind), Some(Offer::Served(_)));
            if served && !look.is_multiple_of(SERVED_PAUSES) {
                continue;
            }
            let offer = tokio::select! {
                offer = ask(&cache, kind.gvr(), definition) => offer,
                () = cancel.cancelled() => return,
            };
            if let Some(offer) = offer {
                cache.set_offer(*kind, offer);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_PAUSE) => {}
            () = cache.asked_to_look() => {}
            () = cancel.cancelled() => return,
        }
    }
}

/// Nothing, when the host does not answer.
async fn ask(cache: &HostCache, gvr: &Gvr, definition: &str) -> Option<Offer> {
    match cache.client().get_opt(&CUSTOM_RESOURCE_DEFINITIONS, "", definition).await {
        Ok(Some(found)) if serves(&found, &gvr.version) => Some(Offer::Served(Arc::new(found))),
        Ok(_) => Some(Offer::Missing),
        Err(error) if error.api().is_some_and(|e| e.code == 403) => Some(Offer::Hidden),
        Err(error) => {
            tracing::debug!(%definition, %error, "the host does not say whether it serves a kind, will ask again");
            None
        }
    }
}

fn serves(definition: &Value, version: &str) -> bool {
    let served = definition.array_at("/spec/versions").iter().any(|v| v["name"] == version && v["served"] == true);
    served && definition.is_condition_true("Established")
}
