//! Which commands the console offers, and which right each needs. Everything else about them is
//! taken from the command line.

use shardmill_config::ConsoleRight::{self, Admin, Operate, View, ViewData};

/// A command that the console offers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    /// Its name, and that of a command below it, if there is one.
    pub(super) path: &'static [&'static str],
    /// Without any of the arguments below.
    pub(super) right: ConsoleRight,
    /// Arguments with which a command that only shows becomes one that changes something.
    pub(super) changing: &'static [(&'static str, ConsoleRight)],
    /// Arguments, or values of them, that need more than the command.
    pub(super) raised: &'static [Raised],
    /// Arguments that make no sense here: those of a terminal, and those without end.
    pub(super) left_out: &'static [&'static str],
    /// Arguments that name an application here, and on the command line also a file.
    pub(super) applications: &'static [&'static str],
    /// Whether it runs in a child process: it takes memory and time that the host has not
    /// counted.
    pub(super) in_child: bool,
}

/// An argument that needs more than its command does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raised {
    pub(super) argument: &'static str,
    /// Only with this value, if one is named.
    pub(super) value: Option<&'static str>,
    pub(super) right: ConsoleRight,
}

impl Offer {
    const fn new(path: &'static [&'static str], right: ConsoleRight) -> Self {
        Self {
            path,
            right,
            changing: &[],
            raised: &[],
            left_out: &[],
            applications: &[],
            in_child: false,
        }
    }

    const fn raised(self, raised: &'static [Raised]) -> Self {
        Self { raised, ..self }
    }

    const fn in_child(self) -> Self {
        Self {
            in_child: true,
            ..self
        }
    }

    const fn naming_application(self, applications: &'static [&'static str]) -> Self {
        Self {
            applications,
            ..self
        }
    }

    const fn without(self, left_out: &'static [&'static str]) -> Self {
        Self { left_out, ..self }
    }

    const fn changing(self, changing: &'static [(&'static str, ConsoleRight)]) -> Self {
        Self { changing, ..self }
    }
}

/// Everything that is offered.
pub(super) const OFFERS: [Offer; 20] = [
    Offer::new(&["status"], View).without(&["check"]),
    Offer::new(&["leases"], View).without(&["watch", "wide"]),
    Offer::new(&["explain"], View),
    Offer::new(&["plan"], View),
    Offer::new(&["doctor"], View),
    Offer::new(&["plugins"], View).changing(&[
        ("release", Operate),
        ("pin", Operate),
        ("rollback", Operate),
        ("unpin", Operate),
    ]),
    Offer::new(&["history"], View).changing(&[("expire", Admin)]),
    // To delete one, it asks for no JSON.
    Offer::new(&["consumers"], View).without(&["delete", "force"]),
    Offer::new(&["pause"], Operate),
    Offer::new(&["resume"], Operate),
    // Nobody gives a state back that was dropped, or a record that was stored nowhere.
    Offer::new(&["seek"], Operate).raised(&[Raised {
        argument: "state",
        value: Some("drop"),
        right: Admin,
    }]),
    Offer::new(&["skip"], Operate).raised(&[Raised {
        argument: "discard",
        value: None,
        right: Admin,
    }]),
    Offer::new(&["drain"], Operate),
    Offer::new(&["release"], Operate),
    Offer::new(&["reload"], Operate),
    Offer::new(&["shadow"], View).changing(&[
        ("promote", Operate),
        ("drop", Operate),
        ("apply", Operate),
    ]),
    Offer::new(&["reset"], Admin),
    Offer::new(&["delete"], Admin),
    Offer::new(&["state", "reset"], Admin),
    // With `--grants` it sends requests, with the plugin's secrets; with `--fuel` it runs for as
    // long as somebody likes.
    Offer::new(&["debug"], ViewData)
        .without(&["grants", "fuel"])
        .in_child()
        .naming_application(&["what"]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Commands that the console does not offer, each with why.
    const NOT_OFFERED: [(&str, &str); 21] = [
        ("run", "it is the host itself"),
        ("dev", "it is the host itself"),
        ("top", "the page of the fleet shows the same, live"),
        ("new", "for an author's own files"),
        ("test", "for an author's own files"),
        ("bench", "for an author's own files"),
        ("check", "for an author's own files"),
        ("push", "takes a file"),
        ("deploy", "takes a file, and runs for as long as a rollout"),
        ("put", "takes a file"),
        ("load", "runs for as long as a test, and costs money"),
        ("capture", "reads the stream, which hosts need the reads of"),
        ("replay", "takes files: dead letters, or a component"),
        (
            "backup",
            "writes a file, which has what plugins keep of records",
        ),
        ("restore", "takes a file, and needs that no host is alive"),
        ("import", "runs beside another library's fleet, for hours"),
        ("export", "runs beside another library's fleet"),
        ("iam", "prints a file for another program"),
        ("cost", "arithmetic on figures that no host knows"),
        ("completions", "for a shell"),
        ("man", "for a shell"),
    ];

    #[test]
    fn every_command_is_offered_or_it_is_said_why_not() {
        let offered = OFFERS.iter().map(|offer| offer.path[0]);
        let not = NOT_OFFERED.iter().map(|(name, _)| *name);
        let decided: BTreeSet<&str> = offered.chain(not).chain(["version"]).collect();
        let cli = crate::cli::command();
        let shown = cli
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        for command in shown {
            let name = command.get_name();
            assert!(decided.contains(name), "{name}: offered in the console?");
        }
    }

    #[test]
    fn every_argument_that_is_named_here_exists() {
        for offer in OFFERS {
            let command = crate::console::definition::command_at(offer.path).unwrap();
            let changing = offer.changing.iter().map(|(name, _)| *name);
            let raised = offer.raised.iter().map(|raised| raised.argument);
            let named = offer.left_out.iter().copied().chain(changing).chain(raised);
            for name in named {
                let mut arguments = command.get_arguments();
                let found = arguments.any(|argument| argument.get_long() == Some(name));
                assert!(found, "{:?} has no --{name}", offer.path);
            }
        }
    }
}
