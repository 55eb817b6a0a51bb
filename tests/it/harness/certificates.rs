//! Client certificates, good and bad.

use super::server::Server;
use jiff::{SignedDuration, Timestamp};
use sublet_pki::{Authority, CertifiedKey, Leaf, Usage};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// A certificate for a user, of the server's own authority.
pub fn issue(server: &Server, user: &str, group: &str) -> CertifiedKey {
    leaf(&authority(server), user, group, Usage::Client, Timestamp::now())
}

/// As `issue`, but over for an hour.
pub fn expired(server: &Server, user: &str, group: &str) -> CertifiedKey {
    leaf(&authority(server), user, group, Usage::Client, Timestamp::now() - HOUR - HOUR)
}

/// As `issue`, but good for servers only.
pub fn for_servers(server: &Server, user: &str, group: &str) -> CertifiedKey {
    leaf(&authority(server), user, group, Usage::Server, Timestamp::now())
}

/// Of an authority that the server does not know.
pub fn of_a_stranger(user: &str, group: &str) -> CertifiedKey {
    let stranger = Authority::new("stranger", Timestamp::now()).unwrap();
    leaf(&stranger, user, group, Usage::Client, Timestamp::now())
}

fn authority(server: &Server) -> Authority {
    let folder = server.pki_folder();
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    Authority::from_pem(CertifiedKey { certificate_pem: read("ca.crt"), key_pem: read("ca.key") }).unwrap()
}

fn leaf(authority: &Authority, user: &str, group: &str, usage: Usage, now: Timestamp) -> CertifiedKey {
    let organization = (!group.is_empty()).then_some(group);
    authority.issue(&Leaf { common_name: user, organization, names: &[], usage, lifetime: HOUR }, now).unwrap()
}
