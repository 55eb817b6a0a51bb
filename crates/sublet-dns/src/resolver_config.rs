//! `resolv.conf`: which servers the host asks, and what it appends to short names.

use std::net::{IpAddr, SocketAddr};

const DNS_PORT: u16 = 53;
/// As resolvers read it: more name servers are not asked.
const SERVERS_MAX: usize = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolverConfig {
    pub servers: Vec<SocketAddr>,
    pub searches: Vec<String>,
}

impl ResolverConfig {
    pub fn parse(text: &str) -> Self {
        let mut config = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    // An interface after `%` means nothing to another socket.
                    let address = words.next().and_then(|w| w.split('%').next()?.parse::<IpAddr>().ok());
                    if let Some(address) = address.filter(|_| config.servers.len() < SERVERS_MAX) {
                        config.servers.push(SocketAddr::new(address, DNS_PORT));
                    }
                }
                // The last line counts.
                Some("search" | "domain") => config.searches = words.map(|w| w.trim_end_matches('.').to_string()).collect(),
                _ => {}
            }
        }
        config.searches.retain(|s| !s.is_empty());
        config
    }

    /// Without the names by which a pod of the host finds the host's own Services: in a tenant's pod
    /// they would lead to the tenant's.
    pub fn without_cluster(mut self, domain: &str) -> Self {
        self.searches.retain(|s| s != domain && !s.ends_with(&format!(".{domain}")));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_resolvers_read_it() {
        let text = "# by hand\nsearch old\nnameserver 10.0.0.10\nnameserver fe80::1%eth0\nnameserver x\n\
                    search a.svc.cluster.local svc.cluster.local cluster.local example.org.\noptions ndots:5\n";
        let config = ResolverConfig::parse(text);
        assert_eq!(config.servers, ["10.0.0.10:53".parse().unwrap(), "[fe80::1]:53".parse().unwrap()]);
        assert_eq!(config.clone().without_cluster("cluster.local").searches, ["example.org"]);
        assert_eq!(config.searches.len(), 4);
    }
}
