//! The commands that the console offers, as the command line defines them: the one definition of
//! forms, of the API and of its description.

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Command};
use serde::Serialize;
use shardmill_config::ConsoleRight;

use super::offers::{OFFERS, Offer, Raised};

/// Arguments that the host sets itself: how to reach tables and streams, how to print, who asks.
const SET_HERE: [&str; 10] = [
    "config",
    "region",
    "endpoint",
    "kinesis-endpoint",
    "dynamodb-endpoint",
    "local",
    "json",
    "by",
    "log-format",
    "help",
];
/// With it a command changes something, and needs a reason.
const APPLY: &str = "apply";

/// All commands that are offered.
#[derive(Debug, Clone)]
pub(super) struct Definitions(Vec<Definition>);

/// A command.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Definition {
    /// As it is typed, such as `state reset`.
    pub(super) name: String,
    /// What it does, in a line.
    pub(super) about: String,
    /// What else there is to know.
    more: Option<String>,
    /// What it needs, at least.
    pub(super) right: ConsoleRight,
    /// Whether it may change something.
    changes: bool,
    pub(super) arguments: Vec<Argument>,
    /// Those that the host sets and this command has.
    #[serde(skip)]
    pub(super) set_here: Vec<String>,
    /// Arguments with which it changes something.
    #[serde(skip)]
    changing: Vec<String>,
    /// What needs more than the command.
    #[serde(skip)]
    raised: &'static [Raised],
    /// Arguments that name an application, and never a file.
    #[serde(skip)]
    applications: &'static [&'static str],
    /// Whether it runs in a child process.
    #[serde(skip)]
    pub(super) in_child: bool,
}

/// An argument of a command.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Argument {
    /// Of the option, without its dashes, or of the positional argument.
    pub(super) name: String,
    pub(super) is_positional: bool,
    pub(super) kind: Kind,
    value_name: Option<String>,
    pub(super) help: String,
    pub(super) default: Option<String>,
    pub(super) choices: Vec<String>,
    pub(super) is_required: bool,
    pub(super) repeats: bool,
    /// What the command needs with this argument.
    pub(super) right: ConsoleRight,
}

/// What an argument takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// It is given or not.
    Flag,
    /// One of some words.
    Choice,
    /// Any text; the command checks it.
    Text,
}

impl Definitions {
    pub(super) fn all() -> Self {
        let offers = OFFERS.iter();
        Self(offers.filter_map(Definition::of).collect())
    }

    pub(super) fn named(&self, name: &str) -> Option<&Definition> {
        self.0.iter().find(|definition| definition.name == name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Definition> {
        self.0.iter()
    }
}

impl Definition {
    fn of(offer: &Offer) -> Option<Self> {
        let command = command_at(offer.path)?;
        let arguments = offer.arguments_of(&command);
        let names = arguments.iter().map(|argument| &argument.name);
        let changing = names.filter(|name| offer.changes_with(name));
        let changing: Vec<String> = changing.cloned().collect();
        Some(Self {
            name: offer.path.join(" "),
            about: text(command.get_about()),
            more: command.get_long_about().map(ToString::to_string),
            right: offer.right,
            changes: !changing.is_empty(),
            changing,
            raised: offer.raised,
            applications: offer.applications,
            in_child: offer.in_child,
            set_here: set_here(&command),
            arguments,
        })
    }

    /// Whether the command changes something if it is given this argument.
    pub(super) fn changes_with(&self, argument: &str) -> bool {
        self.changing.iter().any(|name| name == argument)
    }

    /// The right that this value of the argument needs, if it needs more than the argument.
    pub(super) fn right_of_value(&self, argument: &str, value: &str) -> Option<ConsoleRight> {
        let mut raised = self.raised.iter();
        let raised = raised.find(|raised| {
            raised.argument == argument && raised.value.is_some_and(|with| with == value.trim())
        });
        raised.map(|raised| raised.right)
    }

    /// Whether this argument names an application here, and a file elsewhere.
    pub(super) fn takes_application(&self, argument: &str) -> bool {
        self.applications.contains(&argument)
    }

    pub(super) fn argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.name == name)
    }
}

impl Offer {
    /// Files of the host are nobody's business here: no argument names one.
    fn includes(&self, argument: &Arg) -> bool {
        let name = name_of(argument);
        let is_path = argument.get_value_parser().type_id() == ValueParser::path_buf().type_id();
        !is_path
            && !argument.is_hide_set()
            && !SET_HERE.contains(&name.as_str())
            && !self.left_out.contains(&name.as_str())
    }

    /// As they are typed: what the command is about comes first.
    fn arguments_of(&self, command: &Command) -> Vec<Argument> {
        let included = command.get_arguments();
        let included = included.filter(|argument| self.includes(argument));
        let mut arguments: Vec<Argument> = included.map(|of| Argument::of(of, self)).collect();
        arguments.sort_by_key(|argument| !argument.is_positional);
        arguments
    }

    /// What the command needs with that argument, whatever its value is.
    fn right_with(&self, argument: &str) -> ConsoleRight {
        let mut changing = self.changing.iter();
        if let Some((_, right)) = changing.find(|(changing, _)| *changing == argument) {
            return *right;
        }
        let mut raised = self.raised.iter();
        let whole = raised.find(|raised| raised.argument == argument && raised.value.is_none());
        whole.map_or(self.right, |raised| raised.right)
    }

    fn changes_with(&self, argument: &str) -> bool {
        let mut changing = self.changing.iter();
        argument == APPLY || changing.any(|(name, _)| *name == argument)
    }
}

impl Argument {
    fn of(argument: &Arg, offer: &Offer) -> Self {
        let name = name_of(argument);
        let choices = argument.get_possible_values();
        let kind = match argument.get_action() {
            ArgAction::SetTrue | ArgAction::SetFalse => Kind::Flag,
            _ if choices.is_empty() => Kind::Text,
            _ => Kind::Choice,
        };
        let choices = match kind {
            Kind::Choice => choices.as_slice(),
            Kind::Flag | Kind::Text => &[],
        };
        let values = argument.get_value_names().and_then(|names| names.first());
        let default = match kind {
            Kind::Flag => None,
            Kind::Text | Kind::Choice => argument.get_default_values().first(),
        };
        Self {
            is_positional: argument.is_positional(),
            value_name: values.map(ToString::to_string),
            help: text(argument.get_help()),
            default: default.map(|value| value.to_string_lossy().into_owned()),
            choices: choices
                .iter()
                .map(|value| value.get_name().to_owned())
                .collect(),
            is_required: argument.is_required_set(),
            repeats: matches!(argument.get_action(), ArgAction::Append),
            right: offer.right_with(&name),
            kind,
            name,
        }
    }
}

/// The command of that path.
pub(super) fn command_at(path: &[&str]) -> Option<Command> {
    let mut command = crate::cli::command();
    // Completes what commands inherit.
    command.build();
    let mut found = &command;
    for name in path {
        found = found.find_subcommand(name)?;
    }
    Some(found.clone())
}

fn set_here(command: &Command) -> Vec<String> {
    let names = command.get_arguments().map(name_of);
    names
        .filter(|name| SET_HERE.contains(&name.as_str()))
        .collect()
}

fn name_of(argument: &Arg) -> String {
    let id = argument.get_id().as_str();
    argument.get_long().unwrap_or(id).to_owned()
}

fn text(styled: Option<&clap::builder::StyledStr>) -> String {
    styled.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offer_is_a_command_that_answers_in_json() {
        let definitions = Definitions::all();
        assert_eq!(definitions.iter().count(), OFFERS.len());
        for definition in definitions.iter() {
            let answers = definition.set_here.iter().any(|name| name == "json");
            assert!(answers, "{} has no --json", definition.name);
        }
    }

    #[test]
    fn no_argument_names_a_file_of_the_host_or_how_to_reach_aws() {
        for definition in Definitions::all().iter() {
            for hidden in SET_HERE.iter().copied().chain([
                "file", "out", "from", "save", "compare", "plugin", "progress", "prices",
            ]) {
                if definition.name == "seek" && hidden == "from" {
                    continue;
                }
                let found = definition.argument(hidden);
                assert!(found.is_none(), "{}: {hidden}", definition.name);
            }
        }
    }

    #[test]
    fn what_changes_something_says_so_and_needs_more_than_to_see() {
        let definitions = Definitions::all();
        let pause = definitions.named("pause").unwrap();
        assert!(pause.changes && pause.changes_with("apply"));
        assert!(pause.arguments[0].is_positional && pause.arguments[0].is_required);
        assert!(pause.argument("shards").unwrap().repeats);
        assert_eq!(
            pause.argument("wait").unwrap().default.as_deref(),
            Some("15s")
        );
        assert_eq!(pause.argument("apply").unwrap().kind, Kind::Flag);
        let status = definitions.named("status").unwrap();
        assert!(!status.changes);
        for definition in definitions.iter() {
            let arguments = definition.arguments.iter();
            for argument in arguments.filter(|of| definition.changes_with(&of.name)) {
                let is_more = matches!(argument.right, ConsoleRight::Operate | ConsoleRight::Admin);
                assert!(is_more, "{} --{}", definition.name, argument.name);
            }
        }
    }
}
