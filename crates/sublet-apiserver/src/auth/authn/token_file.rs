//! Fixed tokens, as in `--token-auth-file`: `token,user,uid,"group1,group2"` on each line.

use super::{Authenticated, TokenAuthenticator};
use crate::admission::UserInfo;
use jiff::Timestamp;
use std::collections::HashMap;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line} of the token file needs a token, a user name and a user uid")]
pub struct TokenFileError {
    pub line: usize,
}

#[derive(Default)]
pub struct StaticTokens {
    users: HashMap<String, UserInfo>,
    audiences: Vec<String>,
}

impl StaticTokens {
    /// Tokens for the audiences by which the server is meant.
    pub fn new(audiences: Vec<String>) -> Self {
        Self { users: HashMap::new(), audiences }
    }

    /// Reads the text of a token file.
    pub fn parse(text: &str, audiences: Vec<String>) -> Result<Self, TokenFileError> {
        let mut tokens = Self::new(audiences);
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let columns = columns(line);
            let [token, name, uid, rest @ ..] = columns.as_slice() else { return Err(TokenFileError { line: index + 1 }) };
            if token.is_empty() {
                return Err(TokenFileError { line: index + 1 });
            }
            let groups = rest.first().map_or("", String::as_str).split(',').map(str::trim).filter(|g| !g.is_empty());
            let user = UserInfo { name: name.clone(), uid: uid.clone(), groups: groups.map(Into::into).collect(), ..UserInfo::default() };
            tokens.insert(token.clone(), user);
        }
        Ok(tokens)
    }

    pub fn insert(&mut self, token: String, user: UserInfo) {
        self.users.insert(token, user);
    }
}

impl TokenAuthenticator for StaticTokens {
    fn authenticate_token(&self, token: &str, audiences: &[String], _now: Timestamp) -> Result<Option<Authenticated>, String> {
        let met: Vec<String> = audiences.iter().filter(|a| self.audiences.contains(a)).cloned().collect();
        let user = self.users.get(token).filter(|_| !met.is_empty());
        Ok(user.map(|user| Authenticated { user: user.clone(), audiences: met, remark: None }))
    }
}

/// The columns of a line; quotes keep commas together.
fn columns(line: &str) -> Vec<String> {
    let mut columns = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(String::new()),
            other => columns.last_mut().expect("starts with one column").push(other),
        }
    }
    columns.iter().map(|column| column.trim().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_a_token_its_user_and_groups() {
        let tokens = StaticTokens::parse("# people\nt1,bob,7\nt2, eve ,8,\"a,b\"\n\n", Vec::new()).unwrap();
        assert_eq!(tokens.users["t1"], UserInfo { name: "bob".into(), uid: "7".into(), ..UserInfo::default() });
        assert_eq!((tokens.users["t2"].name.as_str(), tokens.users["t2"].groups.as_slice()), ("eve", &["a".into(), "b".into()][..]));
    }

    #[test]
    fn a_short_line_is_refused() {
        assert_eq!(StaticTokens::parse("t1,bob,7\nt2,bob\n", Vec::new()).err(), Some(TokenFileError { line: 2 }));
        assert_eq!(StaticTokens::parse(",bob,7\n", Vec::new()).err(), Some(TokenFileError { line: 1 }));
    }
}
