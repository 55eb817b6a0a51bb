//! Everything one API server needs to be spoken to securely.

use crate::files::{self, Pair};
use crate::{Authority, CertifiedKey, Leaf, PkiError, Usage, expires_at, names};
use jiff::{SignedDuration, Timestamp};
use std::path::Path;

/// How long a leaf lives, and when before its end it is made anew.
const LEAF_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Who administers the cluster.
pub const ADMIN: &str = "admin";
/// The group that authorization lets do everything.
pub const ADMIN_GROUP: &str = "system:masters";

#[derive(Clone, Debug)]
pub struct PkiConfig {
    /// Goes into the name of the authority, for people who look at certificates.
    pub cluster: String,
    /// DNS names and IP addresses by which clients reach the server.
    pub names: Vec<String>,
}

/// Keys and certificates of one control plane, in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Pki {
    /// Signs the server and its clients.
    pub authority: Authority,
    pub serving: CertifiedKey,
    /// A client in `system:masters`.
    pub admin: CertifiedKey,
    /// Signs the client certificate by which the server vouches for users to extension API servers.
    pub front_proxy_authority: Authority,
    pub front_proxy: CertifiedKey,
    /// Signs service account tokens: a P-256 key in PEM (PKCS 8).
    pub service_account_key_pem: String,
}

impl Pki {
    pub fn new(config: &PkiConfig, now: Timestamp) -> Result<Self, PkiError> {
        let authority = Authority::new(&format!("{}-ca", config.cluster), now)?;
        let front_proxy_authority = Authority::new(&format!("{}-front-proxy-ca", config.cluster), now)?;
        Ok(Self {
            serving: serving(&authority, config, now)?,
            admin: admin(&authority, now)?,
            front_proxy: front_proxy(&front_proxy_authority, now)?,
            service_account_key_pem: rcgen::KeyPair::generate()?.serialize_pem(),
            authority,
            front_proxy_authority,
        })
    }

    /// Issues leaves anew that end soon or do not name the server any more; true when there were some.
    pub fn renew(&mut self, config: &PkiConfig, now: Timestamp) -> Result<bool, PkiError> {
        let before = self.clone();
        let named = names(&self.serving.certificate_pem)?;
        if ends_soon(&self.serving, now)? || config.names.iter().any(|name| !named.contains(&canonical(name))) {
            self.serving = serving(&self.authority, config, now)?;
        }
        if ends_soon(&self.admin, now)? {
            self.admin = admin(&self.authority, now)?;
        }
        if ends_soon(&self.front_proxy, now)? {
            self.front_proxy = front_proxy(&self.front_proxy_authority, now)?;
        }
        Ok(*self != before)
    }

    /// A new key for a client of this name, and its certificate.
    pub fn client(&self, user: &str, group: Option<&str>, lifetime: SignedDuration, now: Timestamp) -> Result<CertifiedKey, PkiError> {
        let leaf = Leaf { common_name: user, organization: group, names: &[], usage: Usage::Client, lifetime };
        self.authority.issue(&leaf, now)
    }

    /// Loads everything from a folder; what is missing is made, what ends soon is renewed. Files are named
    /// as kubeadm names them.
    pub fn open(dir: &Path, config: &PkiConfig, now: Timestamp) -> Result<Self, PkiError> {
        files::make_folder(dir)?;
        let authority = open_authority(&Pair::new(dir, "ca"), &format!("{}-ca", config.cluster), now)?;
        let front_proxy_authority = open_authority(&Pair::new(dir, "front-proxy-ca"), &format!("{}-front-proxy-ca", config.cluster), now)?;
        let leaf_files = [Pair::new(dir, "apiserver"), Pair::new(dir, "admin"), Pair::new(dir, "front-proxy-client")];
        let [serving_file, admin_file, front_proxy_file] = &leaf_files;
        let mut pki = Self {
            serving: open_leaf(serving_file, || serving(&authority, config, now))?,
            admin: open_leaf(admin_file, || admin(&authority, now))?,
            front_proxy: open_leaf(front_proxy_file, || front_proxy(&front_proxy_authority, now))?,
            service_account_key_pem: open_service_account_key(dir)?,
            authority,
            front_proxy_authority,
        };
        let before = pki.clone();
        if pki.renew(config, now)? {
            let leaves = [(&before.serving, &pki.serving), (&before.admin, &pki.admin), (&before.front_proxy, &pki.front_proxy)];
            for (file, (_, leaf)) in leaf_files.iter().zip(leaves).filter(|(_, (old, new))| old != new) {
                file.write(leaf)?;
            }
        }
        Ok(pki)
    }
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pki").field("serving", &self.serving).finish_non_exhaustive()
    }
}

fn serving(authority: &Authority, config: &PkiConfig, now: Timestamp) -> Result<CertifiedKey, PkiError> {
    let leaf =
        Leaf { common_name: "kube-apiserver", organization: None, names: &config.names, usage: Usage::Server, lifetime: LEAF_LIFETIME };
    authority.issue(&leaf, now)
}

fn admin(authority: &Authority, now: Timestamp) -> Result<CertifiedKey, PkiError> {
    let leaf = Leaf { common_name: ADMIN, organization: Some(ADMIN_GROUP), names: &[], usage: Usage::Client, lifetime: LEAF_LIFETIME };
    authority.issue(&leaf, now)
}

fn front_proxy(authority: &Authority, now: Timestamp) -> Result<CertifiedKey, PkiError> {
    let leaf = Leaf { common_name: "front-proxy-client", organization: None, names: &[], usage: Usage::Client, lifetime: LEAF_LIFETIME };
    authority.issue(&leaf, now)
}

fn ends_soon(leaf: &CertifiedKey, now: Timestamp) -> Result<bool, PkiError> {
    Ok(expires_at(&leaf.certificate_pem)? - RENEW_BEFORE < now)
}

/// An IP address as certificates give it back.
fn canonical(name: &str) -> String {
    name.parse::<std::net::IpAddr>().map_or_else(|_| name.to_string(), |address| address.to_string())
}

fn open_authority(file: &Pair, common_name: &str, now: Timestamp) -> Result<Authority, PkiError> {
    if let Some(certified) = file.read()? {
        return Authority::from_pem(certified);
    }
    let authority = Authority::new(common_name, now)?;
    file.write(authority.certified_key())?;
    Ok(authority)
}

fn open_leaf(file: &Pair, make: impl FnOnce() -> Result<CertifiedKey, PkiError>) -> Result<CertifiedKey, PkiError> {
    if let Some(leaf) = file.read()? {
        return Ok(leaf);
    }
    let leaf = make()?;
    file.write(&leaf)?;
    Ok(leaf)
}

fn open_service_account_key(dir: &Path) -> Result<String, PkiError> {
    let path = dir.join("sa.key");
    if let Some(key) = files::read(&path)? {
        return Ok(key);
    }
    let key = rcgen::KeyPair::generate()?;
    files::write_private(&path, &key.serialize_pem())?;
    files::write_public(&dir.join("sa.pub"), &key.public_key_pem())?;
    Ok(key.serialize_pem())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn now() -> Timestamp {
        "2026-05-01T10:00:00Z".parse().unwrap()
    }

    fn config(names: &[&str]) -> PkiConfig {
        PkiConfig { cluster: "alpha".into(), names: names.iter().map(ToString::to_string).collect() }
    }

    #[test]
    fn a_second_start_finds_everything_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path(), &config(&["localhost"]), now()).unwrap();
        let second = Pki::open(dir.path(), &config(&["localhost"]), now()).unwrap();
        assert!(first == second);
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            let private = entry.path().extension().is_some_and(|e| e == "key");
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077 == 0, private, "{:?}", entry.path());
        }
    }

    #[test]
    fn leaves_are_renewed_before_their_end_and_for_new_names() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path(), &config(&["localhost"]), now()).unwrap();
        let named = Pki::open(dir.path(), &config(&["localhost", "0:0::1"]), now()).unwrap();
        assert!(named.serving != first.serving && named.admin == first.admin && named.authority == first.authority);
        let later = now() + SignedDuration::from_hours(300 * 24);
        let mut renewed = Pki::open(dir.path(), &config(&["localhost", "0:0::1"]), later).unwrap();
        assert!(renewed.admin != first.admin && renewed.authority == first.authority);
        assert!(!renewed.renew(&config(&["localhost"]), later).unwrap());
    }

    #[test]
    fn an_authority_without_its_key_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        Pki::open(dir.path(), &config(&["localhost"]), now()).unwrap();
        std::fs::remove_file(dir.path().join("ca.key")).unwrap();
        assert!(matches!(Pki::open(dir.path(), &config(&["localhost"]), now()), Err(PkiError::Incomplete { .. })));
    }
}
