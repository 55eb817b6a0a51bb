//! Writes a JSON object entry by entry, so that a large document is never held as one value.

use serde_json::Value;
use std::io::{Result, Write};

/// An open JSON object.
pub(super) struct ObjectWriter<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl ObjectWriter<'_> {
    pub(super) fn entry(&mut self, key: &str, value: &Value) -> Result<()> {
        self.key(key)?;
        serde_json::to_writer(&mut *self.out, value)?;
        Ok(())
    }

    /// An entry that is an object with entries of its own.
    pub(super) fn object(&mut self, key: &str, fill: impl FnOnce(&mut ObjectWriter<'_>) -> Result<()>) -> Result<()> {
        self.key(key)?;
        write_object(self.out, fill)
    }

    fn key(&mut self, key: &str) -> Result<()> {
        if !self.first {
            self.out.write_all(b",")?;
        }
        self.first = false;
        serde_json::to_writer(&mut *self.out, key)?;
        self.out.write_all(b":")
    }
}

pub(super) fn write_object(out: &mut dyn Write, fill: impl FnOnce(&mut ObjectWriter<'_>) -> Result<()>) -> Result<()> {
    out.write_all(b"{")?;
    fill(&mut ObjectWriter { out: &mut *out, first: true })?;
    out.write_all(b"}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_and_objects_nest() {
        let mut out = Vec::new();
        write_object(&mut out, |o| {
            o.entry("a", &json!([1]))?;
            o.object("b\"", |o| o.entry("c", &json!(null)).and_then(|()| o.entry("d", &json!({}))))?;
            o.object("e", |_| Ok(()))
        })
        .expect("memory can be written");
        assert_eq!(String::from_utf8(out).expect("text"), r#"{"a":[1],"b\"":{"c":null,"d":{}},"e":{}}"#);
    }
}
