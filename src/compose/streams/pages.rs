//! Links of pages behind `proxy`: a program writes them from its own root, which is not the root that the reader's
//! browser has. Attributes are those of apimachinery's `util/proxy/transport.go`; other text stays as it is, byte by byte.

use http::Uri;

/// Attributes that hold a URL, of which elements.
const URLS: [(&str, &[&str]); 12] = [
    ("href", &["a", "area", "base", "link"]),
    ("src", &["audio", "embed", "frame", "iframe", "img", "input", "script", "source", "video"]),
    ("action", &["form"]),
    ("formaction", &["button", "input"]),
    ("cite", &["blockquote", "del", "ins", "q"]),
    ("background", &["body"]),
    ("data", &["object"]),
    ("poster", &["video"]),
    ("longdesc", &["frame", "iframe", "img"]),
    ("usemap", &["img", "input", "object"]),
    ("codebase", &["applet", "object"]),
    ("manifest", &["html"]),
];

/// Where the pages of one program are for its readers.
pub(super) struct Pages<'a> {
    /// The path before its root.
    pub(super) prefix: &'a str,
    /// `http://10.0.0.1:80`: what it takes for itself.
    pub(super) origin: &'a str,
}

impl Pages<'_> {
    /// A link as it must be for the reader; one that leads elsewhere, or from where the page is, stays.
    pub(super) fn moved(&self, link: &str) -> String {
        let path = match link.strip_prefix(self.origin) {
            Some("") => "/",
            Some(rest) => rest,
            None => link,
        };
        let leads_elsewhere = path.starts_with("//") || path.parse::<Uri>().is_ok_and(|uri| uri.authority().is_some());
        if !path.starts_with('/') || leads_elsewhere || path.starts_with(self.prefix) {
            return link.to_string();
        }
        format!("{}{path}", self.prefix)
    }

    pub(super) fn rewritten(&self, page: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(page.len());
        let mut rest = page;
        while let Some(at) = rest.iter().position(|b| *b == b'<') {
            out.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            let length = if rest.starts_with(b"<!--") { comment_length(rest) } else { tag_length(rest) };
            let (tag, after) = rest.split_at(length);
            self.tag(tag, &mut out);
            rest = after;
        }
        out.extend_from_slice(rest);
        out
    }

    fn tag(&self, tag: &[u8], out: &mut Vec<u8>) {
        let name_length = tag[1..].iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        let element = String::from_utf8_lossy(&tag[1..=name_length]).to_ascii_lowercase();
        let (mut at, mut copied) = (1 + name_length, 0);
        while let Some((attribute, value)) = next_attribute(tag, &mut at) {
            let holds_url = URLS.iter().any(|(name, elements)| attribute == *name && elements.contains(&element.as_str()));
            let Some(link) = std::str::from_utf8(&tag[value.clone()]).ok().filter(|_| holds_url) else { continue };
            out.extend_from_slice(&tag[copied..value.start]);
            out.extend_from_slice(self.moved(link).as_bytes());
            copied = value.end;
        }
        out.extend_from_slice(&tag[copied..]);
    }
}

fn comment_length(text: &[u8]) -> usize {
    text.windows(3).position(|w| w == b"-->").map_or(text.len(), |at| at + 3)
}

/// Up to the `>` that is in no quotes.
fn tag_length(text: &[u8]) -> usize {
    let mut quote = None;
    for (at, byte) in text.iter().enumerate() {
        match (quote, byte) {
            (None, b'>') => return at + 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    text.len()
}

/// The next attribute with a value: its name, and where the value is.
fn next_attribute(tag: &[u8], at: &mut usize) -> Option<(String, std::ops::Range<usize>)> {
    let skip = |at: &mut usize, wanted: fn(u8) -> bool| {
        while tag.get(*at).is_some_and(|b| wanted(*b)) {
            *at += 1
        }
    };
    loop {
        skip(at, |b| b.is_ascii_whitespace() || b == b'/');
        let start = *at;
        skip(at, |b| !b.is_ascii_whitespace() && !matches!(b, b'=' | b'>' | b'/'));
        if *at == start {
            return None;
        }
        let name = String::from_utf8_lossy(&tag[start..*at]).to_ascii_lowercase();
        skip(at, |b| b.is_ascii_whitespace());
        if tag.get(*at) != Some(&b'=') {
            continue;
        }
        *at += 1;
        skip(at, |b| b.is_ascii_whitespace());
        let value = match tag.get(*at)? {
            quote @ (b'"' | b'\'') => {
                let start = *at + 1;
                let length = tag[start..].iter().position(|b| b == quote)?;
                *at = start + length + 1;
                start..start + length
            }
            _ => {
                let start = *at;
                skip(at, |b| !b.is_ascii_whitespace() && b != b'>');
                start..*at
            }
        };
        return Some((name, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: Pages<'_> = Pages { prefix: "/api/v1/namespaces/ns/pods/p/proxy", origin: "http://10.0.0.1:80" };

    #[test]
    fn links_from_the_root_move_and_others_stay() {
        for (link, expected) in [
            ("/a?b=c", "/api/v1/namespaces/ns/pods/p/proxy/a?b=c"),
            ("/", "/api/v1/namespaces/ns/pods/p/proxy/"),
            ("http://10.0.0.1:80/a", "/api/v1/namespaces/ns/pods/p/proxy/a"),
            ("a/b", "a/b"),
            ("#here", "#here"),
            ("//elsewhere/a", "//elsewhere/a"),
            ("https://elsewhere/a", "https://elsewhere/a"),
            ("/api/v1/namespaces/ns/pods/p/proxy/a", "/api/v1/namespaces/ns/pods/p/proxy/a"),
        ] {
            assert_eq!(PAGES.moved(link), expected, "{link}");
        }
    }

    #[test]
    fn only_urls_in_tags_are_touched() {
        let p = PAGES.prefix;
        for (page, expected) in [
            ("<a href=\"/x\">/x</a>", format!("<a href=\"{p}/x\">/x</a>")),
            ("<A class=big HREF='/x' title=\"/y\"/>", format!("<A class=big HREF='{p}/x' title=\"/y\"/>")),
            ("<img alt src=/x.png><p href=\"/x\">", format!("<img alt src={p}/x.png><p href=\"/x\">")),
            ("<!-- <a href=\"/x\"> --><form action = \"/y\">", format!("<!-- <a href=\"/x\"> --><form action = \"{p}/y\">")),
            ("<a title=\"a > b\" href=\"/x\">", format!("<a title=\"a > b\" href=\"{p}/x\">")),
            ("a < b <", "a < b <".into()),
            ("<a href=\"/x", "<a href=\"/x".into()),
        ] {
            assert_eq!(String::from_utf8(PAGES.rewritten(page.as_bytes())).unwrap(), expected, "{page}");
        }
    }
}
