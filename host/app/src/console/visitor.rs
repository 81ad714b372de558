//! Who sends a request, and what they may do.

use std::collections::BTreeSet;
use std::net::IpAddr;

use axum::http::{HeaderMap, header};
use shardmill_config::{ConsoleRight, ForwardedUsers};
use shardmill_core::control::is_name_of_person;
use shardmill_serve::Token;

/// Who is let in.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    /// Each with whose it is and what they may do.
    pub(super) tokens: Vec<Known>,
    pub(super) proxy: Option<ForwardedUsers>,
    /// What those may do who do not say who they are.
    pub(super) anonymous: BTreeSet<ConsoleRight>,
}

/// Somebody who shows a token.
#[derive(Debug, Clone)]
pub(super) struct Known {
    token: Token,
    visitor: Visitor,
}

/// Somebody who may do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Visitor {
    /// `None` if they did not say.
    pub(super) name: Option<String>,
    may: BTreeSet<ConsoleRight>,
}

/// The request is of nobody who is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unknown;

impl Gate {
    pub(super) fn add(&mut self, token: Token, name: Option<&str>, may: &BTreeSet<ConsoleRight>) {
        let visitor = Visitor {
            name: name.map(str::to_owned),
            may: may.clone(),
        };
        self.tokens.push(Known { token, visitor });
    }

    /// Who sends these headers from that address. A token that is shown must be right, even where
    /// nobody needs one.
    pub(super) fn visitor(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Visitor, Unknown> {
        let visitor = if headers.contains_key(header::AUTHORIZATION) {
            let mut known = self.tokens.iter();
            let known = known.find(|known| known.token.is_shown_in(headers));
            known.ok_or(Unknown)?.visitor.clone()
        } else if let Some(visitor) = self.forwarded(headers, peer)? {
            visitor
        } else {
            Visitor {
                name: None,
                may: self.anonymous.clone(),
            }
        };
        if visitor.may.is_empty() {
            return Err(Unknown);
        }
        Ok(visitor)
    }

    /// `None` if the request does not come through the proxy. One that does and names nobody, or
    /// two, is of nobody.
    fn forwarded(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Option<Visitor>, Unknown> {
        let Some(proxy) = &self.proxy else {
            return Ok(None);
        };
        let peer = peer.to_canonical();
        if !proxy.addresses.iter().any(|from| from.contains(&peer)) {
            return Ok(None);
        }
        let mut names = headers.get_all(&proxy.header).iter();
        let (Some(name), None) = (names.next(), names.next()) else {
            return Err(Unknown);
        };
        let name = name.to_str().map_err(|_| Unknown)?;
        // It goes into the history, as a name on the command line does.
        if !is_name_of_person(name) {
            return Err(Unknown);
        }
        Ok(Some(Visitor {
            name: Some(name.to_owned()),
            may: proxy.users.get(name).unwrap_or(&proxy.anybody).clone(),
        }))
    }
}

impl Visitor {
    pub(super) fn may(&self, needed: ConsoleRight) -> bool {
        self.may.iter().any(|right| right.includes(needed))
    }

    /// Everything that they may do.
    pub(super) fn rights(&self) -> Vec<ConsoleRight> {
        let all = ConsoleRight::ALL.into_iter();
        all.filter(|right| self.may(*right)).collect()
    }
}

/// The right's name in messages and in the API.
pub(super) fn code(right: ConsoleRight) -> &'static str {
    match right {
        ConsoleRight::View => "view",
        ConsoleRight::ViewData => "view-data",
        ConsoleRight::Operate => "operate",
        ConsoleRight::Admin => "admin",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shardmill_core::plugin::SecretSource;

    use super::*;

    const HERE: &str = "127.0.0.1";
    const ELSEWHERE: &str = "10.0.0.1";

    fn token(text: &str) -> Token {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, text).unwrap();
        Token::read(&SecretSource::File(path)).unwrap()
    }

    fn gate() -> Gate {
        let mut gate = Gate {
            tokens: Vec::new(),
            proxy: Some(ForwardedUsers {
                header: "x-user".to_owned(),
                addresses: vec!["127.0.0.1/32".parse().unwrap()],
                users: BTreeMap::from([("bob".to_owned(), [ConsoleRight::Operate].into())]),
                anybody: [ConsoleRight::View].into(),
            }),
            anonymous: BTreeSet::new(),
        };
        let may = [ConsoleRight::ViewData].into();
        gate.add(token("0123456789abcdef"), Some("alice"), &may);
        gate
    }

    fn visitor(gate: &Gate, pairs: &[(&'static str, &str)], from: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        let visitor = gate.visitor(&headers, from.parse().unwrap()).ok()?;
        let rights: Vec<&str> = visitor.rights().into_iter().map(code).collect();
        Some(format!(
            "{}: {}",
            visitor.name.unwrap_or_default(),
            rights.join(" ")
        ))
    }

    #[test]
    fn only_who_is_trusted_names_people_and_only_one_at_a_time() {
        let gate = gate();
        let named = |pairs: &[(&'static str, &str)], from| visitor(&gate, pairs, from);
        let bob = ("x-user", "bob");
        assert_eq!(named(&[bob], HERE).unwrap(), "bob: view operate");
        assert_eq!(named(&[("x-user", "eve")], HERE).unwrap(), "eve: view");
        assert_eq!(
            named(&[bob], "::ffff:127.0.0.1").unwrap(),
            "bob: view operate"
        );
        assert_eq!(named(&[bob], ELSEWHERE), None, "anybody could say so");
        assert_eq!(named(&[bob, ("x-user", "eve")], HERE), None);
        assert_eq!(named(&[("x-user", "")], HERE), None);
        assert_eq!(named(&[], HERE), None, "the proxy knows nobody");
    }

    #[test]
    fn a_token_counts_from_everywhere_and_a_wrong_one_is_never_ignored() {
        let mut gate = gate();
        let right = ("authorization", "Bearer 0123456789abcdef");
        let alice = Some("alice: view view-data".to_owned());
        assert_eq!(visitor(&gate, &[right], ELSEWHERE), alice);
        assert_eq!(visitor(&gate, &[right, ("x-user", "bob")], HERE), alice);
        gate.anonymous = [ConsoleRight::View].into();
        let wrong = ("authorization", "Bearer 0123456789abcdeX");
        assert_eq!(visitor(&gate, &[wrong], ELSEWHERE), None);
        assert_eq!(visitor(&gate, &[], ELSEWHERE).unwrap(), ": view");
    }

    #[test]
    fn rights_include_what_is_less_and_data_belong_to_none_of_the_others() {
        let allowed = |right: ConsoleRight| {
            let may = [right].into();
            let visitor = Visitor { name: None, may };
            let rights: Vec<&str> = visitor.rights().into_iter().map(code).collect();
            rights.join(" ")
        };
        assert_eq!(allowed(ConsoleRight::View), "view");
        assert_eq!(allowed(ConsoleRight::ViewData), "view view-data");
        assert_eq!(allowed(ConsoleRight::Operate), "view operate");
        assert_eq!(allowed(ConsoleRight::Admin), "view operate admin");
    }
}
