//! Struct tags of a Go package, as far as the facts need them.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

#[derive(Debug, Default)]
pub struct Package {
    /// By name of the struct and number of the protobuf field.
    pub structs: BTreeMap<String, BTreeMap<u32, Tags>>,
    /// Types that write their JSON themselves.
    pub custom_json: BTreeSet<String>,
    /// Types that are no structs: names for texts, lists and maps.
    pub named: BTreeSet<String>,
}

/// What Go says about a field.
#[derive(Debug, Default)]
pub struct Tags {
    pub json: String,
    pub inline: bool,
    pub omit_empty: bool,
    pub omit_zero: bool,
    pub pointer: bool,
    /// The type as Go writes it, without pointers: `PullPolicy`, `[]Container`, `metav1.Time`.
    pub go_type: String,
}

impl Package {
    pub fn read(folder: &Path) -> Result<Self> {
        let mut package = Self::default();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            if name.ends_with(".go") && !name.ends_with("_test.go") && name != "generated.pb.go" {
                package.take(&fs::read_to_string(&path)?).with_context(|| path.display().to_string())?;
            }
        }
        Ok(package)
    }

    fn take(&mut self, text: &str) -> Result<()> {
        let mut open: Option<&str> = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("type ").and_then(|l| l.strip_suffix(" struct {")) {
                open = Some(name);
                self.structs.entry(name.to_string()).or_default();
            } else if let Some(name) = line.strip_prefix("type ").and_then(|l| l.strip_suffix(" struct{}")) {
                self.structs.entry(name.to_string()).or_default();
            } else if let Some((name, _)) = line.strip_prefix("type ").and_then(|l| l.split_once(' ')) {
                self.named.insert(name.to_string());
            } else if line == "}" {
                open = None;
            } else if let (Some(name), Some((number, tags))) = (open, field(line).with_context(|| line.to_string())?) {
                self.structs.entry(name.to_string()).or_default().insert(number, tags);
            } else if let Some((receiver, _)) = line.strip_prefix("func (").and_then(|l| l.split_once(") MarshalJSON()")) {
                let name = receiver.rsplit(' ').next().unwrap_or_default().trim_start_matches('*');
                self.custom_json.insert(name.to_string());
            }
        }
        Ok(())
    }
}

/// A line such as `Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,1,opt,name=replicas"``.
fn field(line: &str) -> Result<Option<(u32, Tags)>> {
    let Some((head, tag)) = line.split_once('`').filter(|(head, _)| !head.trim_start().starts_with("//")) else { return Ok(None) };
    let Some(protobuf) = value(tag, "protobuf") else { return Ok(None) };
    let Some(number) = protobuf.split(',').nth(1) else { return Ok(None) };
    let mut json = value(tag, "json").unwrap_or_default().split(',');
    let name = json.next().unwrap_or_default().to_string();
    let go_type = head.split_whitespace().last().unwrap_or_default();
    let mut tags = Tags { json: name, pointer: go_type.starts_with('*'), go_type: go_type.replace('*', ""), ..Tags::default() };
    for word in json {
        match word {
            "inline" => tags.inline = true,
            "omitempty" => tags.omit_empty = true,
            "omitzero" => tags.omit_zero = true,
            _ => {}
        }
    }
    // An embedded struct without a name in JSON is inline even where the tag does not say so.
    tags.inline |= tags.json.is_empty();
    Ok(Some((number.parse()?, tags)))
}

fn value<'a>(tag: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = tag.split_once(&format!("{key}:\""))?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_say_what_json_shows() {
        let mut package = Package::default();
        let text = "type A struct {\n\tTypeMeta `json:\",inline\"`\n\tVolumeSource `json:\",inline\" protobuf:\"bytes,2,opt,name=volumeSource\"`\n\
                    \t// Doc\n\tN *int32 `json:\"n,omitempty\" protobuf:\"varint,3,opt,name=n\"`\n}\ntype Policy string\nfunc (a B) MarshalJSON() ([]byte, error) {\n";
        package.take(text).unwrap();
        let a = &package.structs["A"];
        assert_eq!(a.keys().copied().collect::<Vec<_>>(), [2, 3]);
        assert!(a[&2].inline && a[&3].pointer && a[&3].omit_empty && !a[&3].inline);
        assert_eq!((a[&3].go_type.as_str(), a[&2].go_type.as_str()), ("int32", "VolumeSource"));
        assert!(package.custom_json.contains("B") && package.named.contains("Policy"));
    }
}
