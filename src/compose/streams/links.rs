//! Paths of the host's API in what a program behind `proxy` answers: the host writes them, and they lead nowhere in
//! the tenant. Redirects and the links of HTML pages carry them.

use bytes::{Bytes, BytesMut};
use flate2::write::GzDecoder;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Uri};
use std::io::Write as _;

/// The path of one proxied pod on the host, and in the tenant.
#[derive(Clone, Debug)]
pub struct Links {
    pub host: String,
    pub tenant: String,
}

impl Links {
    /// The same redirect in the tenant; `None` when it leads elsewhere.
    pub fn redirect(&self, location: &str) -> Option<String> {
        // The host's own address is no place for a tenant's client.
        let path = match location.parse::<Uri>() {
            Ok(uri) if uri.authority().is_some() => uri.path_and_query()?.to_string(),
            _ => location.to_string(),
        };
        let rest = path.strip_prefix(&self.host)?;
        matches!(rest.chars().next(), None | Some('/' | '?' | '#')).then(|| format!("{}{rest}", self.tenant))
    }

    /// Puts right the headers of an answer; whether its body needs it too, and how.
    pub fn of_headers(&self, headers: &mut HeaderMap) -> Option<Rewrite> {
        if let Some(location) = headers.get(LOCATION) {
            let moved = location.to_str().ok().and_then(|l| self.redirect(l)).and_then(|l| HeaderValue::from_str(&l).ok());
            if let Some(moved) = moved {
                headers.insert(LOCATION, moved);
            }
            return None;
        }
        if !is_html(headers) {
            return None;
        }
        let gzip = match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None => None,
            Some(b"gzip") => Some(GzDecoder::new(Vec::new())),
            // The host did not read it either.
            Some(_) => return None,
        };
        headers.remove(CONTENT_ENCODING);
        headers.remove(CONTENT_LENGTH);
        Some(Rewrite { links: self.clone(), gzip, kept: BytesMut::new() })
    }
}

/// Whether the body is a page, in which links may stand.
pub(super) fn is_html(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    kind.split(';').next().map(str::trim) == Some("text/html")
}

/// Replaces the paths in a body as it comes.
pub struct Rewrite {
    links: Links,
    gzip: Option<GzDecoder<Vec<u8>>>,
    /// What may be the beginning of a path.
    kept: BytesMut,
}

impl Rewrite {
    pub fn push(&mut self, chunk: &[u8]) -> std::io::Result<Bytes> {
        match &mut self.gzip {
            None => self.kept.extend_from_slice(chunk),
            Some(gzip) => {
                gzip.write_all(chunk)?;
                self.kept.extend_from_slice(&std::mem::take(gzip.get_mut()));
            }
        }
        Ok(self.replace())
    }

    pub fn end(&mut self) -> std::io::Result<Bytes> {
        if let Some(gzip) = self.gzip.take() {
            self.kept.extend_from_slice(&gzip.finish()?);
        }
        let mut last = BytesMut::from(&self.replace()[..]);
        last.extend_from_slice(&self.kept.split());
        Ok(last.freeze())
    }

    /// Everything up to where a path could still begin.
    fn replace(&mut self) -> Bytes {
        let path = self.links.host.as_bytes();
        let mut out = BytesMut::with_capacity(self.kept.len());
        while let Some(at) = self.kept.windows(path.len()).position(|window| window == path) {
            out.extend_from_slice(&self.kept.split_to(at));
            let _ = self.kept.split_to(path.len());
            out.extend_from_slice(self.links.tenant.as_bytes());
        }
        let undecided = self.kept.len().min(path.len() - 1);
        out.extend_from_slice(&self.kept.split_to(self.kept.len() - undecided));
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn links() -> Links {
        Links {
            host: "/api/v1/namespaces/team-a/pods/http:web-prod-x1:8080/proxy".into(),
            tenant: "/api/v1/namespaces/prod/services/http:web:80/proxy".into(),
        }
    }

    #[test]
    fn redirects_stay_in_the_tenant() {
        let moved = |location: &str| links().redirect(location);
        let own = "/api/v1/namespaces/prod/services/http:web:80/proxy";
        let host = links().host;
        assert_eq!(moved(&format!("{host}/a?b=c")), Some(format!("{own}/a?b=c")));
        assert_eq!(moved(&format!("https://10.0.0.1:6443{host}/a")), Some(format!("{own}/a")));
        assert_eq!(moved("https://elsewhere.example/"), None);
        assert_eq!(moved(&format!("{host}x/a")), None);
    }

    #[test]
    fn links_of_pages_lead_back_wherever_the_chunks_end() {
        let page = format!("<a href=\"{0}/a\">a</a> and <a href=\"{0}/b\">b</a>, /api/v1/names", links().host);
        let expected = page.replace(&links().host, &links().tenant);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(page.as_bytes()).unwrap();
        for (bytes, encoding) in [(page.clone().into_bytes(), None), (encoder.finish().unwrap(), Some("gzip"))] {
            for size in [1, 7, 1000] {
                let mut headers = HeaderMap::new();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
                if let Some(encoding) = encoding {
                    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
                }
                let mut rewrite = links().of_headers(&mut headers).unwrap();
                let mut told: Vec<u8> = bytes.chunks(size).flat_map(|chunk| rewrite.push(chunk).unwrap()).collect();
                told.extend_from_slice(&rewrite.end().unwrap());
                assert_eq!(String::from_utf8(told).unwrap(), expected, "{size} {encoding:?}");
                assert!(!headers.contains_key(CONTENT_ENCODING));
            }
        }
    }

    #[test]
    fn other_bodies_are_left_alone() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        assert!(links().of_headers(&mut headers).is_none());
    }
}
