//! One entry of the conformance list: a row as a KCL wrote it, what happens to it, and how it must
//! look afterwards.

use aws_sdk_dynamodb::types::AttributeValue;
use harness::embedded::Embedded;
use harness::kcl_peer::{Item, KclPeer, item, number};
use shardmill_aws::LeaseTable;
use shardmill_core::lease::{
    Checkpoint, ConflictVerdict, Lease, LeaseToken, LossReason, WorkerId, judge_conflict,
};
use shardmill_core::ports::{
    CheckpointWrite, LeaseStore, Progress, ShardEndWrite, Took, WriteResult, Written,
};
use shardmill_core::stream::{Position, SequenceNumber, ShardId};
use shardmill_local::LocalOptions;

/// The worker on our side.
pub(super) const ME: &str = "me";
/// The worker on the KCL's side.
pub(super) const KCL: &str = "kcl";

/// When our takes happen, for people.
pub(super) const WALL_MS: u64 = 1_700_000_000_000;

/// How an attribute must differ from the first row; `None` if it must be gone.
pub(super) type Change = (&'static str, Option<AttributeValue>);

/// An entry.
pub(super) struct Case {
    name: &'static str,
    row: Item,
    reads: fn(&Lease) -> bool,
    steps: Vec<Step>,
    changes: Vec<Change>,
}

/// What happens to the row, in order.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Our adapter writes, and it is applied.
    Ours(Write),
    /// Our adapter writes, it is not applied, and the row says why.
    Refused(Write, ConflictVerdict),
    /// Our adapter writes, it is applied, and the answer gets lost.
    AnswerLost(Write),
    KclRenews,
    KclTakes,
    /// With the counter of the first row, which must fail.
    KclTakesTooLate,
    KclStartsHandOff,
    KclDeletes,
}

/// A write through our adapter.
#[derive(Debug, Clone, Copy)]
pub(super) enum Write {
    Take,
    Renew,
    /// A checkpoint at 42/5.
    Save,
    /// The end, with children c1 and c2.
    End,
    Release,
}

pub(super) fn case(name: &'static str, row: Item) -> Case {
    Case {
        name,
        row,
        reads: |_| true,
        steps: Vec::new(),
        changes: Vec::new(),
    }
}

pub(super) fn lost_to_kcl() -> ConflictVerdict {
    ConflictVerdict::Lost(LossReason::TakenBy(WorkerId::new(KCL).unwrap()))
}

impl Case {
    /// What must be true of the lease as we read it.
    pub(super) fn reads(self, reads: fn(&Lease) -> bool) -> Self {
        Self { reads, ..self }
    }

    pub(super) fn steps<const N: usize>(self, steps: [Step; N]) -> Self {
        Self {
            steps: Vec::from(steps),
            ..self
        }
    }

    /// These writes of ours, all applied.
    pub(super) fn writes<const N: usize>(self, writes: [Write; N]) -> Self {
        Self {
            steps: Vec::from(writes.map(Step::Ours)),
            ..self
        }
    }

    /// How the row differs in the end. All else must be as it was, but for the counter, which is
    /// checked by itself.
    pub(super) fn leaves<const N: usize>(self, changes: [Change; N]) -> Self {
        Self {
            changes: Vec::from(changes),
            ..self
        }
    }

    /// Runs it in its own table.
    pub(super) async fn check(self, embedded: &Embedded, table_name: &str) {
        let name = self.name;
        let kcl = KclPeer::new(embedded.clients.dynamodb.clone(), table_name);
        let table = embedded.lease_table(table_name);
        kcl.create_table("leaseKey").await;
        table.ensure_table().await.unwrap();
        kcl.put(&self.row).await;
        let key = self.row["leaseKey"].as_s().unwrap().clone();

        let listing = table.list().await.unwrap();
        let [seen] = &listing.leases[..] else {
            panic!("{name}: {listing:?}")
        };
        assert!((self.reads)(seen), "{name}: {seen:?}");
        assert_eq!(
            table.get(&seen.key).await.unwrap().as_ref(),
            Some(seen),
            "{name}"
        );

        let mut run = Run {
            name,
            kcl: &kcl,
            table: &table,
            seen: seen.clone(),
            token: None,
        };
        for step in &self.steps {
            run.step(step).await;
        }
        let row = kcl.row(&key).await.map(without_ours);
        assert_eq!(row, self.expected(seen.counter.0), "{name}");
    }

    fn expected(&self, first_counter: u64) -> Option<Item> {
        if self
            .steps
            .iter()
            .any(|step| matches!(step, Step::KclDeletes))
        {
            return None;
        }
        let raises = |step: &&Step| match step {
            Step::Ours(_) | Step::AnswerLost(_) | Step::KclRenews | Step::KclTakes => true,
            Step::Refused(..)
            | Step::KclTakesTooLate
            | Step::KclStartsHandOff
            | Step::KclDeletes => false,
        };
        let mut row = self.row.clone();
        for (name, value) in &self.changes {
            match value {
                Some(value) => row.extend(item([(name, value.clone())])),
                None => assert!(
                    row.remove(*name).is_some(),
                    "{}: {name} was never there",
                    self.name
                ),
            }
        }
        let raised = self.steps.iter().filter(raises).count() as u64;
        row.extend(item([("leaseCounter", number(first_counter + raised))]));
        Some(row)
    }
}

/// The row as a KCL reads it: without the attributes that shardmill adds, which a KCL ignores and
/// keeps.
fn without_ours(mut row: Item) -> Item {
    const OURS: [&str; 7] = [
        "pluginDigest",
        "millisBehindLatest",
        "settledArrivalMillis",
        "claimedBy",
        "heldSinceMillis",
        "stuckBecause",
        "lastGivenUp",
    ];
    for name in OURS {
        row.remove(name);
    }
    row
}

/// A case under way.
struct Run<'a> {
    name: &'static str,
    kcl: &'a KclPeer,
    table: &'a LeaseTable,
    /// The row as both sides saw it at first.
    seen: Lease,
    /// What the holder on our side holds, once it took.
    token: Option<LeaseToken>,
}

impl Run<'_> {
    async fn step(&mut self, step: &Step) {
        let (name, key, first) = (self.name, self.seen.key.as_str(), self.seen.counter.0);
        // The KCL goes by the row as it is, unless it comes too late.
        let now = self
            .table
            .get(&self.seen.key)
            .await
            .unwrap()
            .unwrap_or_else(|| self.seen.clone());
        let owner = now.owner.as_ref().map(WorkerId::as_str);
        match step {
            Step::Ours(write) => {
                let Written::Applied(token) = self.send(*write).await.unwrap() else {
                    panic!("{name}: {step:?}")
                };
                self.token = Some(token);
            }
            Step::Refused(write, expected) => {
                let Written::Conflict(row) = self.send(*write).await.unwrap() else {
                    panic!("{name}: {step:?}")
                };
                let verdict = judge_conflict(&self.sent_with(), row.as_deref());
                assert_eq!(verdict, *expected, "{name}: {step:?}");
                if verdict == ConflictVerdict::AppliedEarlier {
                    self.token = Some(self.sent_with().advanced());
                }
            }
            Step::AnswerLost(write) => {
                assert!(
                    matches!(self.send(*write).await.unwrap(), Written::Applied(_)),
                    "{name}: {step:?}"
                );
            }
            Step::KclRenews => {
                assert!(self.kcl.renew(key, now.counter.0).await, "{name}: {step:?}");
            }
            Step::KclTakes => assert!(
                self.kcl.take(key, now.counter.0, owner, KCL).await,
                "{name}: {step:?}"
            ),
            Step::KclTakesTooLate => assert!(
                !self.kcl.take(key, first, owner, KCL).await,
                "{name}: {step:?}"
            ),
            Step::KclStartsHandOff => assert!(
                self.kcl.start_hand_off(key, ME, KCL).await,
                "{name}: {step:?}"
            ),
            Step::KclDeletes => self.kcl.delete(key).await,
        }
    }

    fn sent_with(&self) -> LeaseToken {
        self.token
            .clone()
            .unwrap_or_else(|| self.seen.token(WorkerId::new(ME).unwrap()))
    }

    async fn send(&self, write: Write) -> WriteResult {
        let (table, token, progress) = (self.table, self.sent_with(), Progress::default());
        match write {
            Write::Take => {
                let took = table.take(&self.seen, &token.owner, WALL_MS).await;
                took.map(Took::written)
            }
            Write::Renew => table.renew(&token, &progress).await,
            Write::Save => {
                let position = Position {
                    sequence: SequenceNumber::parse("42").unwrap(),
                    sub_sequence: 5,
                };
                table
                    .checkpoint(
                        &token,
                        &CheckpointWrite {
                            checkpoint: Checkpoint::At(position),
                            progress,
                            state: None,
                        },
                    )
                    .await
            }
            Write::End => {
                let children = ["c1", "c2"].map(|id| ShardId::new(id).unwrap()).to_vec();
                table
                    .end(
                        &token,
                        &ShardEndWrite {
                            children,
                            progress,
                            keeps_state: false,
                            seen_version: 0,
                        },
                    )
                    .await
            }
            Write::Release => table.release(&token, &progress).await,
        }
    }
}

/// Runs each case in its own table, all in one stack.
pub(super) async fn check_all(cases: Vec<Case>) {
    let embedded = Embedded::start(LocalOptions::in_memory()).await;
    for (index, case) in cases.into_iter().enumerate() {
        case.check(&embedded, &format!("app-{index}")).await;
    }
}
