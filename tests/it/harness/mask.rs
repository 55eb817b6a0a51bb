//! Makes answers comparable: what differs from run to run gets a name by the order of its appearance,
//! so that "the same version as before" still shows.

use regex::Regex;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::LazyLock;

static UUID: LazyLock<Regex> = LazyLock::new(|| Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap());
static TIME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").unwrap());
static TOKEN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"eyJ[\w-]+\.eyJ[\w-]+\.[\w-]+").unwrap());
static CONTINUE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\beyJ[\w-]{30,}").unwrap());
static CURRENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(current: |ResourceVersion in record \()\d+").unwrap());
static VERSION_PARAMETER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"resourceVersion=(\d+)").unwrap());
static CREDENTIAL: LazyLock<Regex> = LazyLock::new(|| Regex::new("X509SHA256=[0-9a-f]{64}").unwrap());

/// Objects in messages are Go structs there, with their own names and order of fields.
static OBJECT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"Invalid value: (\[\{.*?\}\]|\{[^}]*\})").unwrap());

/// What upstream tells about its own insides: where its Go types are registered, keys in etcd.
static INSIDES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#" in scheme "[^"]*"|StorageError: invalid object, Code: 4, Key: [^,]*, ResourceVersion: 0, AdditionalErrorMsg: "#).unwrap()
});

/// Upstream quotes all of a patch that does not fit, and its reasons are those of its several decoders.
static PATCH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"(?s)(patch: |^)Invalid value: "(map\[|\{).*"#).unwrap());

/// Smaller numbers are the test's own, such as `resourceVersion=1`.
const OWN_VERSIONS_MAX: u64 = 1;

#[derive(Default)]
pub struct Mask {
    versions: HashMap<String, String>,
    uids: HashMap<String, String>,
    /// Texts that only this test knows, with their stand-ins.
    own: Vec<(String, String)>,
    patterns: Vec<(Regex, &'static str)>,
}

impl Mask {
    pub fn add(&mut self, text: impl Into<String>, stand_in: impl Into<String>) {
        self.own.push((text.into(), stand_in.into()));
    }

    pub fn pattern(&mut self, pattern: &str, stand_in: &'static str) {
        self.patterns.push((Regex::new(pattern).unwrap(), stand_in));
    }

    pub fn value(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    if key == "resourceVersion"
                        && let Value::String(version) = value
                    {
                        *version = self.version(version);
                    } else if key == "columnDefinitions" {
                        without_descriptions(value);
                    } else {
                        self.value(value);
                    }
                }
                if map.get("continue").is_some_and(|c| c == "") {
                    map.remove("continue");
                }
            }
            Value::Array(list) => list.iter_mut().for_each(|v| self.value(v)),
            Value::String(text) => *text = self.text(text),
            _ => {}
        }
    }

    /// A resourceVersion by its number of appearance.
    fn version(&mut self, version: &str) -> String {
        match version.parse::<u64>() {
            Ok(number) if number > OWN_VERSIONS_MAX => {
                let next = format!("<rv{}>", self.versions.len() + 1);
                self.versions.entry(version.into()).or_insert(next).clone()
            }
            _ => version.into(),
        }
    }

    pub fn text(&mut self, text: &str) -> String {
        let mut text = INSIDES.replace_all(text, "").into_owned();
        for (pattern, stand_in) in &self.patterns {
            text = pattern.replace_all(&text, *stand_in).into_owned();
        }
        for (own, stand_in) in &self.own {
            text = text.replace(own, stand_in);
        }
        let text = UUID.replace_all(&text, |found: &regex::Captures<'_>| {
            let next = format!("<uid{}>", self.uids.len() + 1);
            self.uids.entry(found[0].to_string()).or_insert(next).clone()
        });
        let text = TIME.replace_all(&text, "<time>");
        let text = TOKEN.replace_all(&text, "<token>");
        let text = CONTINUE.replace_all(&text, "<continue>");
        let text = OBJECT.replace_all(&text, "Invalid value: <object>");
        let text = CURRENT.replace_all(&text, "$1<rv>");
        let text = PATCH.replace_all(&text, "$1<the patch does not fit>");
        let text = CREDENTIAL.replace_all(&text, "<credential>");
        let text =
            VERSION_PARAMETER.replace_all(&text, |found: &regex::Captures<'_>| format!("resourceVersion={}", self.version(&found[1])));
        text.into_owned()
    }
}

/// Columns are compared; what is said about them is each server's own.
fn without_descriptions(columns: &mut Value) {
    for column in columns.as_array_mut().into_iter().flatten() {
        column["description"] = "<description>".into();
    }
}

/// JSON with a line for each part that fits one.
pub fn compact(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, 0, "");
    out
}

const LINE_MAX: usize = 120;

fn write(out: &mut String, value: &Value, indent: usize, prefix: &str) {
    let line = format!("{:indent$}{prefix}{value}", "");
    let inner = |key: &str| if key.is_empty() { String::new() } else { format!("{}: ", Value::from(key)) };
    let children: Vec<(&str, &Value)> = match value {
        Value::Object(map) if line.len() > LINE_MAX => map.iter().map(|(k, v)| (k.as_str(), v)).collect(),
        Value::Array(list) if line.len() > LINE_MAX => list.iter().map(|v| ("", v)).collect(),
        _ => {
            out.push_str(&line);
            out.push('\n');
            return;
        }
    };
    let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
    out.push_str(&format!("{:indent$}{prefix}{open}\n", ""));
    for (key, child) in children {
        write(out, child, indent + 1, &inner(key));
    }
    out.push_str(&format!("{:indent$}{close}\n", ""));
}
