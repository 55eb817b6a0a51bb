//! Keys and certificates of a control plane: its authority, what it signs, and kubeconfigs.
//!
//! Entry types: [`Pki`] (everything one API server needs, in memory), [`Authority`] (signs leaves and
//! requests), [`Request`] (what somebody with a key of their own asks for), [`Kubeconfig`].
//!
//! Invariants: nothing here touches a file but `Pki::open`; private keys are written with mode 0600 before
//! they have their name; the time is an argument.

mod authority;
mod der;
mod files;
mod kubeconfig;
mod pki;
mod request;

pub use authority::{Authority, CertifiedKey, Leaf, Usage, expires_at, names};
pub use kubeconfig::{Credential, Kubeconfig};
pub use pki::{ADMIN, ADMIN_GROUP, Pki, PkiConfig};
pub use request::{Parts, Request};

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot make a key or certificate")]
    Make(#[from] rcgen::Error),
    #[error("{0} is not a certificate in PEM")]
    Parse(&'static str),
    #[error("{0}")]
    Request(String),
    /// The authority ended before the certificate would begin.
    #[error("the signer has expired: NotAfter={0}")]
    Expired(jiff::Timestamp),
    #[error("cannot use {path}")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
    /// A folder with some of the files; making the others anew would lock clients out.
    #[error("{present} is there but {missing} is not: restore it, or remove both to start with a new authority")]
    Incomplete { present: String, missing: String },
}
