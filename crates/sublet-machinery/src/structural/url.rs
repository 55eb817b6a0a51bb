//! URLs as Go's `net/url` reads them where it expects an absolute one.

/// The parts of a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    pub scheme: String,
    /// With the port.
    pub host: String,
    /// As written where that was well-formed, otherwise escaped.
    pub escaped_path: String,
    pub query: String,
}

/// `url.ParseRequestURI`: an absolute URL or an absolute path, without a fragment. The error is Go's.
pub fn parse_request_uri(text: &str) -> Result<Url, String> {
    parse(text).map_err(|why| format!("parse {text:?}: {why}"))
}

fn parse(text: &str) -> Result<Url, String> {
    if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() {
        return Err("empty url".into());
    }
    if text == "*" {
        return Ok(Url { escaped_path: "*".into(), ..Url::default() });
    }
    let (scheme, rest) = scheme(text)?;
    let scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let query = query.to_string();
    if !rest.starts_with('/') {
        // What has a scheme but no path is opaque.
        return if scheme.is_empty() { Err("invalid URI for request".into()) } else { Ok(Url { scheme, query, ..Url::default() }) };
    }
    let authority = rest.strip_prefix("//").filter(|_| !scheme.is_empty());
    let (host, path) = match authority {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (host_of(authority)?, path)
        }
        None => (String::new(), rest),
    };
    Ok(Url { scheme, host, escaped_path: escaped_path(path)?, query })
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".into()),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn host_of(authority: &str) -> Result<String, String> {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let port = if host.starts_with('[') {
        let end = host.rfind(']').ok_or("missing ']' in host")?;
        &host[end + 1..]
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    if !is_port {
        return Err(format!("invalid port {port:?} after host"));
    }
    let may_be_in_host = |b: u8| b.is_ascii_alphanumeric() || !b.is_ascii() || b"!$&'()*+,;=:[]<>\"-_.~".contains(&b);
    if let Some(b) = host.bytes().find(|b| *b != b'%' && !may_be_in_host(*b)) {
        return Err(format!("invalid character {:?} in host name", char::from(b).to_string()));
    }
    // Only what is not ASCII may be escaped, and the percent sign of a zone.
    let bytes = unescape(host, |escaped, code| code >= 0x80 || escaped == "%25")?;
    if let Some(user) = user {
        let may_be_in_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(may_be_in_user) {
            return Err("net/url: invalid userinfo".into());
        }
        unescape(user, |_, _| true)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn unescape(text: &str, allowed: impl Fn(&str, u8) -> bool) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(b) = bytes.get(at) {
        if *b != b'%' {
            out.push(*b);
            at += 1;
            continue;
        }
        let escaped = text.get(at..at + 3);
        let code = escaped.filter(|e| e[1..].bytes().all(|b| b.is_ascii_hexdigit())).and_then(|e| u8::from_str_radix(&e[1..], 16).ok());
        match (escaped, code) {
            (Some(escaped), Some(code)) if allowed(escaped, code) => out.push(code),
            _ => {
                let end = text.len().min(at + 3);
                let shown = String::from_utf8_lossy(&bytes[at..end]);
                return Err(format!("invalid URL escape {shown:?}"));
            }
        }
        at += 3;
    }
    Ok(out)
}

fn escaped_path(path: &str) -> Result<String, String> {
    let bytes = unescape(path, |_, _| true)?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&b);
    if path.bytes().all(|b| is_plain(b) || b"!'()*[]%".contains(&b)) {
        return Ok(path.into());
    }
    let escape = |b: u8| if is_plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    Ok(bytes.into_iter().map(escape).collect())
}

#[cfg(test)]
mod tests {
    use super::{Url, parse_request_uri};

    #[test]
    fn urls_have_parts() {
        let parsed = parse_request_uri("HTTPS://u:p@example.com:80/a b/%2F?x=1&y").unwrap();
        let expected =
            Url { scheme: "https".into(), host: "example.com:80".into(), escaped_path: "/a%20b//".into(), query: "x=1&y".into() };
        assert_eq!(parsed, expected);
        assert_eq!(parse_request_uri("http://[::1]:80/a%2Fb").unwrap().escaped_path, "/a%2Fb");
        assert_eq!(parse_request_uri("/a#b").unwrap().escaped_path, "/a%23b");
        assert_eq!(parse_request_uri("//a/b").unwrap().host, "");
        assert_eq!(parse_request_uri("mailto:a@b").unwrap().scheme, "mailto");
        assert_eq!(parse_request_uri("http://%C3%A4/").unwrap().host, "ä");
    }

    #[test]
    fn what_is_wrong_is_said_as_go_says_it() {
        for (text, why) in [
            ("", "empty url"),
            ("a", "invalid URI for request"),
            ("1http://x", "invalid URI for request"),
            (":", "missing protocol scheme"),
            ("http://a b", r#"invalid character " " in host name"#),
            ("http://a:b", r#"invalid port ":b" after host"#),
            ("http://[::1", "missing ']' in host"),
            ("http://%zz", r#"invalid URL escape "%zz""#),
            ("http://%41", r#"invalid URL escape "%41""#),
            ("/%z", r#"invalid URL escape "%z""#),
            ("/%ä", "invalid URL escape \"%ä\""),
            ("http://a/\n", "net/url: invalid control character in URL"),
            ("http://u u@a", "net/url: invalid userinfo"),
        ] {
            let shown = format!("parse {text:?}: {why}");
            assert_eq!(parse_request_uri(text), Err(shown), "{text}");
        }
    }
}
