//! What a registry asks for before it answers: the header `www-authenticate` (RFC 9110, 11.6.1, and
//! the token authentication of the distribution specification).

/// What to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// The user and the password themselves.
    Basic,
    /// A token, which another address gives for them.
    Bearer {
        /// That address.
        realm: String,
        /// For whom the token is, if that must be said.
        service: Option<String>,
    },
}

impl Challenge {
    /// The first challenge of a header that we can meet; `None` if there is none.
    pub(crate) fn parse(header: &str) -> Option<Self> {
        let lower = header.to_ascii_lowercase();
        if let Some(at) = scheme_at(&lower, "bearer") {
            let parameters = parameters(&header[at..]);
            let value = |name: &str| {
                let mut named = parameters.iter();
                let found = named.find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.clone())
            };
            return Some(Self::Bearer {
                realm: value("realm")?,
                service: value("service"),
            });
        }
        scheme_at(&lower, "basic").map(|_| Self::Basic)
    }
}

/// Where the parameters of a scheme begin.
fn scheme_at(header: &str, scheme: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = header[from..].find(scheme) {
        let (start, end) = (from + found, from + found + scheme.len());
        let starts = header[..start].trim_end();
        let is_first = starts.is_empty() || starts.ends_with(',');
        let is_whole = header[end..].is_empty() || header[end..].starts_with(' ');
        if is_first && is_whole && !ends_in_quotes(&header[..start]) {
            return Some(end);
        }
        from = end;
    }
    None
}

/// Whether a quoted value has begun in it and not ended.
fn ends_in_quotes(text: &str) -> bool {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for sign in text.chars() {
        match sign {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
    }
    is_quoted
}

/// `name="value"` and `name=value`, up to what is neither.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let Some((name, after)) = rest.split_once('=') else {
            return found;
        };
        // The scheme of another challenge stands before its first parameter.
        if name.contains(' ') {
            return found;
        }
        let (value, behind) = value_of(after);
        found.push((name.to_owned(), value));
        rest = behind;
    }
}

/// A value, and what is behind it.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, sign) in quoted.char_indices() {
        match sign {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return (value, &quoted[at + 1..]),
            _ => {
                is_escaped = false;
                value.push(sign);
            }
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> Challenge {
        Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
        }
    }

    #[test]
    fn a_token_is_preferred_to_the_password_and_what_is_unknown_is_passed_over() {
        for (header, expected) in [
            (
                "Bearer realm=\"https://a.example/token\",service=\"r.example\",scope=\"x:y:pull\"",
                Some(bearer("https://a.example/token", Some("r.example"))),
            ),
            (
                "bearer service=r.example, realm=\"https://a.example/\\\"t\\\"\"",
                Some(bearer("https://a.example/\"t\"", Some("r.example"))),
            ),
            (
                "Basic realm=\"a, Bearer b\", Bearer realm=\"https://a.example/token\"",
                Some(bearer("https://a.example/token", None)),
            ),
            ("Basic realm=\"registry\"", Some(Challenge::Basic)),
            ("Basic", Some(Challenge::Basic)),
            ("Negotiate", None),
            ("Bearer scope=\"x\"", None),
            ("Bearer realm=\"unended", Some(bearer("unended", None))),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(header), expected, "{header}");
        }
    }
}
