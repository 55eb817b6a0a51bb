//! What a question comes to.

use hickory_proto::rr::{Name, Record};

/// The codes of answers about the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The name exists, whether or not there are records of the kind.
    Exists,
    /// There is no such name: NXDOMAIN.
    NoName,
}

/// An answer about the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub code: Code,
    pub records: Vec<Record>,
    /// Addresses of what the records name.
    pub additional: Vec<Record>,
    /// The target of an alias that the client wants followed.
    pub follow: Option<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A name of the cluster.
    Cluster(Answer),
    /// A name of somebody else.
    Elsewhere,
}

impl Answer {
    pub fn no_name() -> Self {
        Self { code: Code::NoName, records: Vec::new(), additional: Vec::new(), follow: None }
    }

    /// The name exists and has no records of the kind.
    pub fn no_data() -> Self {
        Self::of(Vec::new())
    }

    pub fn of(records: Vec<Record>) -> Self {
        Self { code: Code::Exists, records, additional: Vec::new(), follow: None }
    }
}
