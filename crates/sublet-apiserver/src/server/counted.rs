//! What is counted of a request on its way.

use super::Server;
use super::handle::is_long_running;
use super::metrics::Counted;
use crate::http::negotiate;
use crate::http::{Body, HttpResponse, Query, RequestInfo};
use http::HeaderMap;
use std::time::Duration;

/// A request in work.
pub(super) struct InFlight<'s> {
    server: &'s Server,
    writes: bool,
}

impl<'s> InFlight<'s> {
    pub(super) fn new(server: &'s Server, writes: bool) -> Self {
        server.metrics().requests.begin(writes);
        Self { server, writes }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.server.metrics().requests.end(self.writes);
    }
}

impl Server {
    /// Counts a request; one that lasts is counted among those in work until its answer ends.
    pub(super) fn count(
        &self,
        info: &RequestInfo,
        query: &Query,
        headers: &HeaderMap,
        mut response: HttpResponse,
        took: Duration,
    ) -> HttpResponse {
        let status = response.status().as_u16();
        // What answered with success is served.
        let served = status < 400 || self.registry().snapshot().find(&info.group, &info.version, &info.resource).is_some();
        let apply = info.verb == "patch" && negotiate::content_type(headers).starts_with("application/apply-patch");
        let counted = Counted { info, served, dry_run: query.has("dryRun"), apply };
        let lasts = is_long_running(info);
        self.metrics().requests.count(&counted, status, (!lasts).then_some(took));
        if lasts && let Body::Stream(_) = response.body() {
            let running = self.metrics().requests.lasting(&counted);
            let body = std::mem::replace(response.body_mut(), Body::empty());
            *response.body_mut() = body.holding(running);
        }
        response
    }
}
