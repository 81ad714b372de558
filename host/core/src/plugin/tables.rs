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

/// The table in which the hosts of an application meet.
pub fn coordinator_table(application: &str) -> String {
    format!("{application}{COORDINATOR}")
}

/// The table of what the application's plugin saves.
pub fn state_table(application: &str) -> String {
    format!("{application}{STATE}")
}

/// Every table that the application has, or may have.
pub fn tables_of(application: &str) -> [String; 3] {
    [
        application.to_owned(),
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
        if let Some(owner) = application.strip_suffix(ending) {
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
