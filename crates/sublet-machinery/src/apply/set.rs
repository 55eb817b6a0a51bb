//! Sets of paths to fields, as a tree.

use super::path::PathElement;
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::fmt;

/// A set of paths. A path can be in the set, or lead to paths that are, or both.
///
/// Nodes are sorted by element; a node is a member or has children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(super) nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) element: PathElement,
    pub(super) member: bool,
    pub(super) children: FieldSet,
}

impl FieldSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of plain field paths, each written with dots: `spec.replicas`.
    pub fn of_fields(paths: &[&str]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let path: Vec<PathElement> = path.split('.').map(PathElement::field).collect();
            set.insert(&path);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.descend(first);
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    pub fn has(&self, path: &[PathElement]) -> bool {
        match path.split_first() {
            None => false,
            Some((only, [])) => self.get(only).is_some_and(|n| n.member),
            Some((first, rest)) => self.get(first).is_some_and(|n| n.children.has(rest)),
        }
    }

    pub(super) fn get(&self, element: &PathElement) -> Option<&Node> {
        self.position(element).ok().map(|at| &self.nodes[at])
    }

    /// Looks up a field without making an element of its name.
    pub(super) fn get_field(&self, name: &str) -> Option<&Node> {
        let order = |node: &Node| match &node.element {
            PathElement::Field(field) => (**field).cmp(name),
            _ => Ordering::Greater,
        };
        self.nodes.binary_search_by(order).ok().map(|at| &self.nodes[at])
    }

    fn position(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|n| n.element.cmp(element))
    }

    fn descend(&mut self, element: &PathElement) -> &mut Node {
        let at = self.position(element).unwrap_or_else(|at| {
            self.nodes.insert(at, Node { element: element.clone(), member: false, children: Self::new() });
            at
        });
        &mut self.nodes[at]
    }

    /// Adds a node at its place; one with neither membership nor children is left out.
    pub(super) fn push(&mut self, element: PathElement, member: bool, children: FieldSet) {
        if !member && children.is_empty() {
            return;
        }
        let node = Node { element, member, children };
        match self.nodes.last().map(|last| last.element.cmp(&node.element)) {
            None | Some(Ordering::Less) => self.nodes.push(node),
            _ => match self.position(&node.element) {
                Ok(at) => {
                    let old = &mut self.nodes[at];
                    old.member |= node.member;
                    old.children = std::mem::take(&mut old.children).union(node.children);
                }
                Err(at) => self.nodes.insert(at, node),
            },
        }
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        merge(self.nodes, other.nodes, |pair| match pair {
            (Some(a), Some(b)) => {
                nodes.push(Node { element: a.element, member: a.member || b.member, children: a.children.union(b.children) });
            }
            (Some(one), None) | (None, Some(one)) => nodes.push(one),
            (None, None) => {}
        });
        Self { nodes }
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::new();
        self.zip(other, |pair| {
            if let (Some(a), Some(b)) = pair {
                let children = a.children.intersection(&b.children);
                if (a.member && b.member) || !children.is_empty() {
                    out.nodes.push(Node { element: a.element.clone(), member: a.member && b.member, children });
                }
            }
        });
        out
    }

    /// What is in this set and not in the other. A path's own membership does not take away the paths below it.
    #[must_use]
    pub fn difference(self, other: &Self) -> Self {
        self.without(other, |node, other| {
            node.member &= !other.member;
            node.children = std::mem::take(&mut node.children).difference(&other.children);
        })
    }

    /// As [`Self::difference`], but a path in the other set takes away everything below it.
    #[must_use]
    pub fn recursive_difference(self, other: &Self) -> Self {
        self.without(other, |node, other| {
            if other.member {
                (node.member, node.children) = (false, Self::new());
            } else {
                node.children = std::mem::take(&mut node.children).recursive_difference(&other.children);
            }
        })
    }

    /// Changes the nodes that the other set has too, and drops those of which nothing is left.
    fn without(mut self, other: &Self, change: impl Fn(&mut Node, &Node)) -> Self {
        let mut others = other.nodes.iter().peekable();
        self.nodes.retain_mut(|node| {
            while others.next_if(|o| o.element < node.element).is_some() {}
            if let Some(other) = others.next_if(|o| o.element == node.element) {
                change(node, other);
            }
            node.member || !node.children.is_empty()
        });
        self
    }

    /// Whether some path is in both sets.
    pub fn intersects(&self, other: &Self) -> bool {
        let mut found = false;
        self.zip(other, |pair| {
            if let (Some(a), Some(b)) = pair {
                found = found || (a.member && b.member) || a.children.intersects(&b.children);
            }
        });
        found
    }

    /// Whether every path of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        let mut holds = true;
        self.zip(other, |pair| match pair {
            (Some(a), Some(b)) => holds = holds && (b.member || !a.member) && a.children.is_subset(&b.children),
            (Some(_), None) => holds = false,
            _ => {}
        });
        holds
    }

    /// Visits the nodes of both sets in order, those of equal elements together.
    fn zip<'a>(&'a self, other: &'a Self, mut visit: impl FnMut((Option<&'a Node>, Option<&'a Node>))) {
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.element.cmp(&b.element),
            };
            visit((left.next_if(|_| order.is_le()), right.next_if(|_| order.is_ge())));
        }
    }

    /// Visits every path: at each level first the members, then what lies below.
    pub fn each(&self, visit: &mut impl FnMut(&[&PathElement])) {
        let mut path = Vec::new();
        self.each_below(&mut path, visit);
    }

    fn each_below<'a>(&'a self, path: &mut Vec<&'a PathElement>, visit: &mut impl FnMut(&[&PathElement])) {
        for node in self.nodes.iter().filter(|n| n.member) {
            path.push(&node.element);
            visit(path);
            path.pop();
        }
        for node in &self.nodes {
            path.push(&node.element);
            node.children.each_below(path, visit);
            path.pop();
        }
    }

    /// Reads `fieldsV1`.
    pub fn from_json(fields: &Value) -> Result<Self, String> {
        match fields {
            Value::Null => Ok(Self::new()),
            Value::Object(map) => Ok(Self::read(map)?.0),
            other => Err(format!("expected an object, got {other}")),
        }
    }

    /// The set below a node, and whether the node itself is a member.
    fn read(map: &Map<String, Value>) -> Result<(Self, bool), String> {
        let mut set = Self { nodes: Vec::with_capacity(map.len()) };
        let mut member = false;
        for (key, value) in map {
            if key == "." {
                member = true;
                continue;
            }
            let Some(element) = PathElement::parse(key)? else { continue };
            let (children, is_member) = match value {
                Value::Object(map) => Self::read(map)?,
                Value::Null => (Self::new(), true),
                other => return Err(format!("expected an object, got {other}")),
            };
            set.push(element, is_member, children);
        }
        let member = member || set.is_empty();
        Ok((set, member))
    }

    /// The form of `fieldsV1`.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        for node in &self.nodes {
            let mut below = match node.children.to_json() {
                Value::Object(map) => map,
                _ => Map::new(),
            };
            if node.member && !node.children.is_empty() {
                below.insert(".".into(), Value::Object(Map::new()));
            }
            map.insert(node.element.encode(), Value::Object(below));
        }
        Value::Object(map)
    }
}

/// As [`FieldSet::zip`], by value.
fn merge(left: Vec<Node>, right: Vec<Node>, mut visit: impl FnMut((Option<Node>, Option<Node>))) {
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.element.cmp(&b.element),
        };
        visit((left.next_if(|_| order.is_le()), right.next_if(|_| order.is_ge())));
    }
}

/// One path a line.
impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        self.each(&mut |path| lines.push(path_text(path)));
        f.write_str(&lines.join("\n"))
    }
}

/// `.spec.containers[name="web"].image`
pub(super) fn path_text(path: &[&PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(fields: Value) -> FieldSet {
        FieldSet::from_json(&fields).unwrap()
    }

    #[test]
    fn fields_v1_reads_back() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {"f:replicas": {}, "f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}}}, "f:set": {"v:\"a\"": {}}}
        });
        assert_eq!(set(fields.clone()).to_json(), fields);
        assert_eq!(set(json!({"f:a": {"f:b": {}}, "z:new": {}})).to_json(), json!({"f:a": {"f:b": {}}}));
        assert!(FieldSet::from_json(&json!({"x": {}})).is_err());
    }

    #[test]
    fn a_member_and_what_lies_below_it_are_told_apart() {
        let parent = set(json!({"f:a": {}}));
        let child = set(json!({"f:a": {"f:b": {}}}));
        let both = parent.clone().union(child.clone());
        assert_eq!(both.to_json(), json!({"f:a": {".": {}, "f:b": {}}}));
        assert_eq!(both.clone().difference(&parent), child);
        assert_eq!(both.clone().difference(&child), parent);
        assert!(both.clone().recursive_difference(&parent).is_empty());
        assert!(parent.intersection(&child).is_empty() && !parent.intersects(&child));
        assert!(child.is_subset(&both) && !both.is_subset(&child));
        assert_eq!(both.to_string(), ".a\n.a.b");
    }
}
