//! Performs a plan. A write that loses its race is nothing: the next pass sees the rows as they
//! are.

use std::sync::Arc;

use shardmill_core::plan::{Plan, Step};
use shardmill_core::ports::{Progress, StoreError, Written};
use shardmill_core::stream::LeaseKey;
use tokio_util::sync::CancellationToken;

use super::rows::{Chosen, Waves, create_all, delete_all};
use super::run::Run;
use super::{PassError, Worker};

/// The steps of a plan, by kind.
#[derive(Default)]
struct PlannedSteps {
    creates: Vec<Chosen>,
    deletes: Vec<Chosen>,
    takes: Vec<Chosen>,
    claims: Vec<Chosen>,
    releases: Vec<Chosen>,
    hand_overs: Vec<Step>,
}

/// How a claim or a release went.
struct WriteAnswer {
    chosen: Chosen,
    written: Result<Written, StoreError>,
}

impl PlannedSteps {
    fn of(plan: Plan) -> Self {
        let mut planned = Self::default();
        for step in plan.steps {
            match step {
                Step::Create { lease: row, reason } => planned.creates.push(Chosen { row, reason }),
                Step::Delete { seen: row, reason } => planned.deletes.push(Chosen { row, reason }),
                Step::Take { seen: row, reason } => planned.takes.push(Chosen { row, reason }),
                Step::Claim { seen: row, reason } => planned.claims.push(Chosen { row, reason }),
                Step::Release { seen: row, reason } => {
                    planned.releases.push(Chosen { row, reason });
                }
                Step::HandOver { .. } => planned.hand_overs.push(step),
            }
        }
        planned
    }
}

impl Worker {
    /// Performs the steps; returns whether rows were created.
    ///
    /// Once this host is to stop, no wave of writes begins any more: each may take a table's whole
    /// deadline.
    pub(super) async fn act(
        &mut self,
        plan: Plan,
        stop: &CancellationToken,
    ) -> Result<bool, PassError> {
        let planned = PlannedSteps::of(plan);
        for step in &planned.hand_overs {
            self.holdings.hand_over(step.key(), step.reason());
        }
        if !planned.takes.is_empty() || !planned.claims.is_empty() {
            // There may be more to take or to claim: plans are cut into portions.
            self.lookout.next().look_soon();
        }
        // A right that is missing for one kind of write prevents none of the others.
        let deleted = delete_all(&self.run, planned.deletes, stop).await;
        let created = create_all(&self.run, &planned.creates, stop).await;
        self.release_all(planned.releases, stop).await;
        self.take_all(planned.takes, stop).await;
        self.claim_all(planned.claims, stop).await;
        let has_created = !planned.creates.is_empty();
        if has_created {
            self.reports.set_news(true);
        }
        deleted.and(created)?;
        Ok(has_created)
    }

    async fn claim_all(&mut self, claims: Vec<Chosen>, stop: &CancellationToken) {
        let run = Arc::clone(&self.run);
        let mut waves = Waves::new(claims, &run, stop);
        while let Some(answer) = waves.next(|chosen| claim(Arc::clone(&run), chosen)).await {
            let written = self.written(answer.ok(), "asked for the lease");
            if let Err(Failed { lease, error }) = written {
                tracing::debug!(%lease, %error, "claim failed");
            }
        }
    }

    /// Releases what is this worker's by name only. What cannot be released now is in the next plan
    /// again.
    async fn release_all(&mut self, releases: Vec<Chosen>, stop: &CancellationToken) {
        let run = Arc::clone(&self.run);
        let mut waves = Waves::new(releases, &run, stop);
        loop {
            let writes = &self.writes;
            let send = |chosen: Chosen| {
                let stuck = writes.stuck_of(&chosen.row);
                release(Arc::clone(&run), chosen, stuck)
            };
            let Some(answer) = waves.next(send).await else {
                return;
            };
            let done = "released a lease whose row named this worker";
            if let Err(Failed { lease, error }) = self.written(answer.ok(), done) {
                tracing::warn!(%lease, %error, code = "release-failed", "release failed");
            }
        }
    }

    /// Takes in how a claim or a release went; `None` if it panicked. A lost race is no news, and a
    /// failed write is in the next plan again.
    fn written(&mut self, answer: Option<WriteAnswer>, done: &'static str) -> Result<(), Failed> {
        self.lookout.next().look_soon();
        let Some(WriteAnswer { chosen, written }) = answer else {
            return Ok(());
        };
        let (lease, reason) = (chosen.row.key, chosen.reason);
        match written {
            Ok(Written::Applied(_)) => {
                tracing::info!(%lease, %reason, "{done}");
                self.reports.set_news(true);
                Ok(())
            }
            Ok(Written::Conflict(_)) => Ok(()),
            Err(error) => Err(Failed { lease, error }),
        }
    }
}

/// A write that failed.
struct Failed {
    lease: LeaseKey,
    error: StoreError,
}

async fn claim(run: Arc<Run>, chosen: Chosen) -> WriteAnswer {
    let written = run.ports.store.claim(&chosen.row, run.me()).await;
    WriteAnswer { chosen, written }
}

async fn release(run: Arc<Run>, chosen: Chosen, stuck: Option<String>) -> WriteAnswer {
    let token = chosen.row.token(run.me().clone());
    let progress = Progress {
        stuck,
        ..Progress::default()
    };
    let written = run.ports.store.release(&token, &progress).await;
    WriteAnswer { chosen, written }
}
