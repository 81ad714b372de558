use shardmill_core::artifact::NotAPlugin;

/// What the bytes of a plugin are called in errors.
pub(crate) const COMPONENT: &str = "the component";

/// Why something was not pulled or pushed. Names no user, no password, and nothing of an address
/// that follows a question mark.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// Nothing would be encrypted on the way.
    #[error(
        "{host} would be reached without encryption: use https, or list {host} under pull.insecure"
    )]
    Insecure {
        /// The host, with its port.
        host: String,
    },
    /// Somebody elsewhere sends us to this machine.
    #[error(
        "{host} is on this machine, where {from} sends nobody: list {host} under pull.insecure if \
            it may"
    )]
    Inward {
        /// The host, with its port.
        host: String,
        /// Who sends us there.
        from: String,
    },
    /// No answer came, or not all of it.
    #[error("{host} does not answer: {why}")]
    Unreachable {
        /// The host, with its port.
        host: String,
        /// What failed.
        why: String,
    },
    /// The host does not let us.
    #[error(
        "{host} does not give access to {what} ({why}): set [pull.registries.{host:?}], or log in \
            with docker"
    )]
    Denied {
        /// The host, with its port.
        host: String,
        /// What was asked for.
        what: String,
        /// What the host says about it.
        why: String,
    },
    /// It is not there.
    #[error("there is no {what}{}", said(.why))]
    NotThere {
        /// What was asked for.
        what: String,
        /// What the host says about it.
        why: String,
    },
    /// Another answer than the one that was hoped for.
    #[error("{host} answers {status} to {what}{}", said(.why))]
    Answer {
        /// The host, with its port.
        host: String,
        /// What was asked for.
        what: String,
        /// The status of the answer.
        status: u16,
        /// What the host says about it.
        why: String,
    },
    /// There are more bytes than may be.
    #[error("{what} has more than the {limit} bytes allowed{}", mend(.what))]
    TooBig {
        /// What was fetched.
        what: String,
        /// How many bytes it may have.
        limit: u64,
    },
    /// The bytes are not those that were asked for.
    #[error("{what} is not what was asked for: its digest is {found}, and should be {expected}")]
    Digest {
        /// What was fetched.
        what: String,
        /// The digest that it should have.
        expected: String,
        /// The digest that it has.
        found: String,
    },
    /// An answer that makes no sense.
    #[error("{what} cannot be read: {why}")]
    Malformed {
        /// What was fetched.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The artifact is not one of a plugin.
    #[error(transparent)]
    NotAPlugin(#[from] NotAPlugin),
    /// A user or a password cannot be read from where it is kept.
    #[error("the login for {host} cannot be used: {why}")]
    Login {
        /// The host that it is for.
        host: String,
        /// What is wrong.
        why: String,
    },
    /// The bytes cannot be stored here.
    #[error("cannot store what was fetched: {0}")]
    Store(#[from] std::io::Error),
    /// Something that cannot be done with such a reference.
    #[error("{0}")]
    Unfit(String),
}

fn said(why: &str) -> String {
    if why.is_empty() {
        String::new()
    } else {
        format!(": {why}")
    }
}

fn mend(what: &str) -> &'static str {
    if what == COMPONENT {
        "; make it smaller, or raise host.plugin-bytes-max"
    } else {
        ""
    }
}
