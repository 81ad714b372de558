//! Which stream the checkpoints belong to, and where the application began on it.

use std::sync::Arc;

use shardmill_core::fleet::{
    ApplicationStart, FleetRows, StreamIdentity, StreamRow, StreamVerdict,
};
use shardmill_core::ports::{Raced, ReadError, StoreError};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::StreamName;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

use super::error::{PassError, StartError, WorkerError};
use super::rows::refuse_multi_stream;
use super::run::Run;

/// Which stream has the name now; `None` if there is none.
pub(super) type IdentityAnswer = Result<Option<StreamIdentity>, ReadError>;

/// The stream and the beginning, as the coordinator table has them. They are placeholders before
/// [`Origin::agree`], and until then nothing is done with leases.
pub(super) struct Origin {
    run: Arc<Run>,
    identity: StreamIdentity,
    start: ApplicationStart,
    /// When this run first looked at tables without a start, by the stream's clock: later tries use
    /// that moment.
    first_look_ms: Option<u64>,
    /// Notified by readers when the stream may be another one.
    doubts: Arc<Notify>,
    questions: JoinSet<IdentityAnswer>,
}

impl Origin {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            identity: StreamIdentity { created_at_ms: 0 },
            start: ApplicationStart {
                position: run.options.initial_position,
                looked_at_ms: 0,
                found_leases: true,
            },
            first_look_ms: None,
            doubts: Arc::new(Notify::new()),
            questions: JoinSet::new(),
            run,
        }
    }

    pub(super) fn identity(&self) -> StreamIdentity {
        self.identity
    }

    pub(super) fn start(&self) -> ApplicationStart {
        self.start
    }

    /// To be notified when the stream may be another one.
    pub(super) fn doubts(&self) -> Arc<Notify> {
        Arc::clone(&self.doubts)
    }

    /// Asks Kinesis which stream this is.
    pub(super) async fn identify(&mut self) -> Result<(), PassError> {
        let identity = self.run.ports.reader.identity().await?;
        let no_stream = || PassError::NoStream(self.run.options.stream.clone());
        self.identity = identity.ok_or_else(no_stream)?;
        Ok(())
    }

    /// Compares the stream with the one that the checkpoints belong to, and takes up where the
    /// application began. Writes down what no host has written.
    pub(super) async fn agree(&mut self, fleet: &FleetRows) -> Result<(), StartError> {
        let options = &self.run.options;
        let row = fleet.stream.as_ref();
        if !SeededBug::IgnoresStreamIdentity.is_on() {
            refuse_other_stream(&options.application, row, &options.stream, self.identity)
                .map_err(StartError::Never)?;
        }
        self.agree_on_start(fleet.start).await?;
        if row.is_none() {
            self.write_stream().await?;
        }
        Ok(())
    }

    async fn write_stream(&self) -> Result<(), StartError> {
        let ports = &self.run.ports;
        let has_leases = !ports.store.list().await?.leases.is_empty();
        let row = StreamRow::first(self.run.options.stream.clone(), self.identity, has_leases);
        wrote_first(ports.coordinator.write_stream(None, &row).await?)
    }

    async fn agree_on_start(
        &mut self,
        written: Option<ApplicationStart>,
    ) -> Result<(), StartError> {
        let start = match written {
            Some(start) => {
                if start != self.start {
                    self.warn_if_configured_otherwise(&start);
                }
                start
            }
            None => self.write_start().await?,
        };
        self.start = start;
        self.run
            .status
            .update(|status| status.starts_at = Some(start.to_string()));
        Ok(())
    }

    fn warn_if_configured_otherwise(&self, start: &ApplicationStart) {
        let configured = self.run.options.initial_position;
        if let Some(kept) = start.kept_instead_of(configured) {
            tracing::warn!(
                application = self.run.options.application,
                %configured,
                %kept,
                code = "start-position-differs",
                "initial-position differs from where the application started, which stays in \
                    force; to start elsewhere, name another application"
            );
        }
    }

    /// Writes where the application begins, before any lease is made or taken.
    async fn write_start(&mut self) -> Result<ApplicationStart, StartError> {
        // In this order: what is put after the leases were looked at arrives after the moment that
        // is kept.
        let looked_at_ms = self.first_look().await?;
        let listing = self.run.ports.store.list_consistently().await?;
        refuse_multi_stream(&listing)?;
        let start = ApplicationStart {
            position: self.run.options.initial_position,
            looked_at_ms,
            found_leases: !listing.leases.is_empty(),
        };
        wrote_first(self.run.ports.coordinator.write_start(&start).await?)?;
        tracing::info!(
            application = self.run.options.application,
            %start,
            "the application starts"
        );
        Ok(start)
    }

    /// The time of this run's first look, whatever has to be tried again after it.
    async fn first_look(&mut self) -> Result<u64, PassError> {
        if let Some(first_look_ms) = self.first_look_ms {
            return Ok(first_look_ms);
        }
        let stream_ms = self.run.ports.reader.now_ms().await?;
        if stream_ms.is_none() {
            tracing::warn!(
                code = "no-date",
                "kinesis' replies have no date: the application starts by this host's clock, some \
                    seconds early"
            );
        }
        let moment = ApplicationStart::moment(stream_ms, self.run.ports.clock.wall_ms());
        self.first_look_ms = Some(moment);
        Ok(moment)
    }

    /// Whether Kinesis was asked which stream this is, and has not answered.
    pub(super) fn is_asking(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Asks Kinesis which stream this is, since a reader doubts it. The call is a task: one that
    /// hangs must not keep this host from leases, claims, or the end.
    pub(super) fn ask(&mut self) {
        let reader = Arc::clone(&self.run.ports.reader);
        let question = async move { reader.identity().await };
        self.questions.spawn(self.run.guard(question));
    }

    /// The next answer to [`Origin::ask`]; `None` if nothing was asked. Cancel-safe.
    pub(super) async fn next_answer(&mut self) -> Option<Result<IdentityAnswer, JoinError>> {
        self.questions.join_next().await
    }

    /// Fails if the stream is another one now: then everything is given up.
    pub(super) fn check(&self, identity: StreamIdentity) -> Result<(), WorkerError> {
        if identity == self.identity || SeededBug::IgnoresStreamIdentity.is_on() {
            Ok(())
        } else {
            Err(self.recreated())
        }
    }

    fn recreated(&self) -> WorkerError {
        WorkerError::StreamRecreated {
            application: self.run.options.application.clone(),
            stream: self.run.options.stream.clone(),
        }
    }
}

/// Fails if the application's checkpoints are another stream's: then no host serves it. `row` is
/// what the first host recorded, `identity` what Kinesis reports now for the stream `ours`.
pub fn refuse_other_stream(
    application: &str,
    row: Option<&StreamRow>,
    ours: &StreamName,
    identity: StreamIdentity,
) -> Result<(), WorkerError> {
    let application = application.to_owned();
    match (StreamRow::judge(row, ours, identity), row) {
        (StreamVerdict::OtherName, Some(row)) => Err(WorkerError::OtherStream {
            application,
            ours: ours.clone(),
            theirs: row.name.clone(),
        }),
        (StreamVerdict::Recreated, _) => Err(WorkerError::StreamRecreated {
            application,
            stream: ours.clone(),
        }),
        (StreamVerdict::Same | StreamVerdict::Unknown | StreamVerdict::OtherName, _) => Ok(()),
    }
}

/// Of a row that is written once: if another host was faster, or an earlier try of this one, its
/// row is to be looked at.
fn wrote_first(raced: Raced) -> Result<(), StartError> {
    match raced {
        Raced::Applied => Ok(()),
        Raced::Lost => Err(StartError::NotYet(PassError::Store(StoreError::Unknown {
            message: "another host is starting at the same time".to_owned(),
        }))),
    }
}
