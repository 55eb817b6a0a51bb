//! Reads the facts files: borrowed lines, no copies.

/// A published type.
#[derive(Debug)]
pub(crate) struct TypeFact<'a> {
    pub package: &'a str,
    pub name: &'a str,
    pub line: Line<'a>,
    pub fields: Vec<(&'a str, Line<'a>)>,
}

/// The type and attributes of a type or field.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Line<'a> {
    /// The text of the line after its name: equal text means equal meaning within one package.
    pub text: &'a str,
    /// `string`, `[]Container`, `string(A|B)`, ...
    pub shape: &'a str,
    pub required: bool,
    pub list_type: Option<&'a str>,
    /// Separated by commas.
    pub list_keys: Option<&'a str>,
    pub map_type: Option<&'a str>,
    pub patch_strategy: Option<&'a str>,
    pub merge_key: Option<&'a str>,
    /// JSON.
    pub default: Option<&'a str>,
    /// JSON.
    pub unions: Option<&'a str>,
    /// `group/version/kind`, separated by commas.
    pub kinds: Option<&'a str>,
}

/// What a shape says, one level at a time.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) enum Shape<'a> {
    List(&'a str),
    Map(&'a str),
    /// A word such as `string` or `int32`, and its enum values separated by `|`.
    Scalar(&'a str, Option<&'a str>),
    /// A type: package (none: the one it is named in) and name.
    Type(Option<&'a str>, &'a str),
}

pub(crate) fn types(text: &str) -> Vec<TypeFact<'_>> {
    let mut types: Vec<TypeFact<'_>> = Vec::new();
    let mut package = "";
    for line in text.lines() {
        if let Some(field) = line.strip_prefix(' ') {
            let (name, rest) = field.split_once(' ').unwrap_or((field, ""));
            if let Some(of) = types.last_mut() {
                of.fields.push((name, parse_line(rest)));
            }
        } else if let Some(rest) = line.strip_prefix("type ") {
            let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            types.push(TypeFact { package, name, line: parse_line(rest), fields: Vec::new() });
        } else if let Some(name) = line.strip_prefix("package ") {
            package = name;
        }
    }
    types
}

pub(crate) fn parse_line(text: &str) -> Line<'_> {
    // A default is JSON that may hold spaces, so it stands last.
    let (head, default) = match text.split_once(" default=") {
        Some((head, default)) => (head, Some(default)),
        None => (text, None),
    };
    let mut words = head.split(' ');
    let mut line = Line { text, shape: words.next().unwrap_or_default(), default, ..Line::default() };
    for word in words {
        match word.split_once('=') {
            Some(("list", value)) => match value.split_once(':') {
                Some((list_type, keys)) => (line.list_type, line.list_keys) = (Some(list_type), Some(keys)),
                None => line.list_type = Some(value),
            },
            Some(("map", value)) => line.map_type = Some(value),
            Some(("patch", value)) => line.patch_strategy = Some(value),
            Some(("key", value)) => line.merge_key = Some(value),
            Some(("unions", value)) => line.unions = Some(value),
            Some(("kinds", value)) => line.kinds = Some(value),
            _ => line.required |= word == "required",
        }
    }
    line
}

pub(crate) fn shape(text: &str) -> Shape<'_> {
    if let Some(of) = text.strip_prefix("[]") {
        return Shape::List(of);
    }
    if let Some(of) = text.strip_prefix("{}") {
        return Shape::Map(of);
    }
    if let Some((word, values)) = text.split_once('(') {
        return Shape::Scalar(word, values.strip_suffix(')'));
    }
    if SCALARS.contains(&text) {
        return Shape::Scalar(text, None);
    }
    match text.rsplit_once('.') {
        Some((package, name)) => Shape::Type(Some(package), name),
        None => Shape::Type(None, text),
    }
}

/// Enum values as they are: the file writes a middle dot for a space.
pub(crate) fn enum_values(values: &str) -> impl Iterator<Item = String> + '_ {
    values.split('|').map(|v| v.replace('\u{b7}', " "))
}

const SCALARS: &[&str] =
    &["string", "bytes", "date-time", "integer", "int32", "int64", "double", "boolean", "object", "any", "int-or-string", "quantity"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_give_their_attributes() {
        let line = parse_line(r#"[]ContainerPort list=map:containerPort,protocol patch=merge key=containerPort"#);
        assert_eq!((line.list_type, line.list_keys), (Some("map"), Some("containerPort,protocol")));
        assert_eq!((line.patch_strategy, line.merge_key), (Some("merge"), Some("containerPort")));
        assert_eq!(shape(line.shape), Shape::List("ContainerPort"));
        let line = parse_line(r#"string(SCTP|TCP|UDP) required default="T P""#);
        assert_eq!((line.default, line.required), (Some("\"T P\""), true));
        assert_eq!(shape(line.shape), Shape::Scalar("string", Some("SCTP|TCP|UDP")));
        assert_eq!(shape("io.k8s.api.core.v1.Pod"), Shape::Type(Some("io.k8s.api.core.v1"), "Pod"));
    }
}
