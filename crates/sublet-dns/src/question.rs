//! A question, with its name taken apart.

use hickory_proto::rr::{Name, RecordType};

/// What is asked. Names are compared in lower case and answered as they were asked.
#[derive(Clone, Debug)]
pub struct Question {
    pub name: Name,
    pub kind: RecordType,
    /// From the left, in lower case.
    labels: Vec<String>,
}

impl Question {
    pub fn new(name: Name, kind: RecordType) -> Self {
        let labels = name.iter().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect();
        Self { name, kind, labels }
    }

    /// The labels in front of `domain`, if the name is in it.
    pub fn within<'a>(&'a self, domain: &[String]) -> Option<Vec<&'a str>> {
        let front = self.labels.strip_suffix(domain)?;
        Some(front.iter().map(String::as_str).collect())
    }

    pub fn labels(&self) -> &[String] {
        &self.labels
    }
}

/// The labels of a domain in text.
pub fn labels_of(domain: &str) -> Vec<String> {
    domain.trim_matches('.').split('.').map(str::to_ascii_lowercase).collect()
}
