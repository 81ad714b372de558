//! The names of an application's tables: the lease table, which has the application's own name, and
//! two beside it.

/// Behind an application's name: the table in which its hosts meet.
const COORDINATOR: &str = "-coordinator";
/// Behind an application's name: the table of what its plugin saves.
const STATE: &str = "-state";

/// A name whose lease table would be a table of another application.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it ends in {ending:?}, like a table of the application {owner:?}; choose another ending")]
pub struct TakenName {
    ending: &'static str,
    owner: String,
}

/// Between an application and one of its standalone hosts. No application's name contains it, and a
/// worker's id may.
const OF_HOST: char = '@';
/// Between an application and one of its streams, whose leases are all in one table, as the KCL
/// keeps them in multi-stream mode. No application's name contains it.
const OF_STREAM: char = ':';

/// Which rows of an application's tables are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// All of them.
    Whole,
    /// Those of one standalone host, by its id: `APPLICATION@HOST`.
    Host(&'a str),
    /// Those of one stream, by `STREAM` or `ACCOUNT.STREAM`: `APPLICATION:STREAM`.
    Stream(&'a str),
}

/// What a standalone host has in the tables of `application`, as hosts and commands name it:
/// `APPLICATION@HOST`. It is an application of its own, in rows of its own.
pub fn of_standalone_host(application: &str, host: &str) -> String {
    format!("{application}{OF_HOST}{host}")
}

/// What an application has in a table that holds the leases of all its streams, as hosts and
/// commands name it: `APPLICATION:STREAM`.
pub fn of_stream(application: &str, stream: &str) -> String {
    format!("{application}{OF_STREAM}{stream}")
}

/// The application whose tables are used, and which of their rows are meant.
pub fn split_part(application: &str) -> (&str, Part<'_>) {
    let Some(at) = application.find([OF_HOST, OF_STREAM]) else {
        return (application, Part::Whole);
    };
    // Both signs are one byte long.
    let (base, part) = (&application[..at], &application[at + 1..]);
    if application[at..].starts_with(OF_HOST) {
        (base, Part::Host(part))
    } else {
        (base, Part::Stream(part))
    }
}

/// Whether all characters may be in the name of a table: letters of ASCII, digits, `_`, `.` and `-`
/// (DynamoDB's naming rules).
pub fn is_of_table_name(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// The table of the application's leases.
pub fn lease_table(application: &str) -> &str {
    split_part(application).0
}

/// The table in which the hosts of an application meet.
pub fn coordinator_table(application: &str) -> String {
    format!("{}{COORDINATOR}", lease_table(application))
}

/// The table of what the application's plugin saves.
pub fn state_table(application: &str) -> String {
    format!("{}{STATE}", lease_table(application))
}

/// Every table that the application has, or may have.
pub fn tables_of(application: &str) -> [String; 3] {
    [
        lease_table(application).to_owned(),
        coordinator_table(application),
        state_table(application),
    ]
}

/// Refuses what may be a table of another application, whether there is one or not: it may come
/// later, or run elsewhere.
///
/// # Errors
/// The name ends as such a table's does.
pub fn check_ending(application: &str) -> Result<(), TakenName> {
    for ending in [COORDINATOR, STATE] {
        if let Some(owner) = lease_table(application).strip_suffix(ending) {
            return Err(TakenName {
                ending,
                owner: owner.to_owned(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_standalone_hosts_of_an_application_have_its_tables() {
        let own = of_standalone_host("totals", "pod-1@zone-a");
        assert_eq!(split_part(&own), ("totals", Part::Host("pod-1@zone-a")));
        let odd = of_standalone_host("totals", "10.0.0.1:80");
        assert_eq!(split_part(&odd), ("totals", Part::Host("10.0.0.1:80")));
        let stream = of_stream("totals", "123456789012.orders");
        let part = Part::Stream("123456789012.orders");
        assert_eq!(split_part(&stream), ("totals", part));
        assert_eq!(split_part("totals.orders"), ("totals.orders", Part::Whole));
        assert_eq!(tables_of(&own), tables_of("totals"));
        assert!(check_ending("totals-state@pod-1").is_err());
        assert_eq!(check_ending("totals@my-state"), Ok(()), "a host's name");
    }

    #[test]
    fn no_two_applications_of_allowed_names_have_a_table_in_common() {
        let allowed = [
            "totals",
            "state",
            "totals-states",
            "totals.state",
            "coordinator-1",
        ];
        for name in allowed {
            assert_eq!(check_ending(name), Ok(()));
            for table in &tables_of(name)[1..] {
                let refused = check_ending(table).unwrap_err().to_string();
                assert!(
                    refused.contains(&format!("a table of the application {name:?}")),
                    "{refused}"
                );
            }
        }
    }
}
