//! What is left for one host, in a partition of its own: the leader's errands, a list of maps, and
//! the number of the last command's nudge.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::fleet::{Errand, Incarnation, Mail, Mailbox, OwnerSeen, Task, Why};
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::stream::LeaseKey;

use super::attributes::{Item, number, text};
use super::row::{ID, INCARNATION, key, string, unsigned};

/// Before a worker's id, as the partition key of its mail: a partition for each, so that none is
/// hot.
const MAIL_PREFIX: &str = "mail#";
const ERRANDS_ID: &str = "errands";
const NUDGE_ID: &str = "nudge";

const NUMBER: &str = "number";
const ERRANDS: &str = "errands";
const LEASE: &str = "lease";
const TASK: &str = "task";
const TAKE: &str = "take";
const CLAIM: &str = "claim";
const EXPECT: &str = "expect";
const COUNTER: &str = "counter";
/// The owner of the lease.
const FROM: &str = "from";
/// Its run and its beat.
const RUN: &str = "run";
const BEAT: &str = "beat";
/// The worker that asks for the lease, or asked in vain.
const BY: &str = "by";
const SHARE: &str = "share";
const LEAD: &str = "lead";

/// The partition of what is left for a worker.
pub(super) fn partition_of(worker: &WorkerId) -> String {
    format!("{MAIL_PREFIX}{worker}")
}

pub(super) fn key_of(worker: &WorkerId) -> Item {
    key(&partition_of(worker), ERRANDS_ID)
}

/// The row that tells a worker that what operators want has changed.
pub(super) fn encode_nudge(worker: &WorkerId, nudge: u64) -> Item {
    let mut item = key(&partition_of(worker), NUDGE_ID);
    item.insert(NUMBER.to_owned(), number(nudge));
    item
}

pub(super) fn nudge_key(worker: &WorkerId) -> Item {
    key(&partition_of(worker), NUDGE_ID)
}

/// What a worker finds. What cannot be read, a newer leader's for instance, counts as nothing.
pub(super) fn collect(items: &[Item]) -> Mailbox {
    let of = |id: &str| {
        let mut items = items.iter();
        items.find(move |item| string(item, ID) == Ok(id))
    };
    Mailbox {
        mail: of(ERRANDS_ID).and_then(|item| decode(item).ok()),
        nudge: of(NUDGE_ID).and_then(|item| unsigned(item, NUMBER).ok()),
    }
}

pub(super) fn encode(worker: &WorkerId, mail: &Mail) -> Item {
    let mut item = key_of(worker);
    item.extend([
        (INCARNATION.to_owned(), text(mail.to.as_str())),
        (NUMBER.to_owned(), number(mail.number)),
        (
            ERRANDS.to_owned(),
            AttributeValue::L(mail.errands.iter().map(encode_errand).collect()),
        ),
    ]);
    item
}

fn encode_errand(errand: &Errand) -> AttributeValue {
    let mut item = match &errand.task {
        Task::Take {
            counter,
            owner,
            why,
        } => encode_take(*counter, owner.as_ref(), why),
        Task::Claim {
            from,
            replaces,
            lead,
        } => encode_claim(from, replaces.as_ref(), *lead),
        Task::Expect { by } => Item::from([
            (TASK.to_owned(), text(EXPECT)),
            (BY.to_owned(), text(by.as_str())),
        ]),
    };
    item.insert(LEASE.to_owned(), text(errand.key.as_str()));
    AttributeValue::M(item)
}

fn encode_take(counter: LeaseCounter, owner: Option<&OwnerSeen>, why: &Why) -> Item {
    let mut item = Item::from([
        (TASK.to_owned(), text(TAKE)),
        (COUNTER.to_owned(), number(counter.0)),
    ]);
    if let Some(owner) = owner {
        item.insert(FROM.to_owned(), text(owner.id.as_str()));
        if let Some((run, beat)) = &owner.beat {
            item.insert(RUN.to_owned(), text(run.as_str()));
            item.insert(BEAT.to_owned(), number(*beat));
        }
    }
    match why {
        Why::BelowShare { fair_share } => {
            item.insert(SHARE.to_owned(), number(*fair_share as u64));
        }
        Why::Uneven { lead } => {
            item.insert(LEAD.to_owned(), number(*lead));
        }
        Why::Overdue => {}
    }
    item
}

fn encode_claim(from: &WorkerId, replaces: Option<&WorkerId>, lead: u64) -> Item {
    let mut item = Item::from([
        (TASK.to_owned(), text(CLAIM)),
        (FROM.to_owned(), text(from.as_str())),
        (LEAD.to_owned(), number(lead)),
    ]);
    if let Some(claimant) = replaces {
        item.insert(BY.to_owned(), text(claimant.as_str()));
    }
    item
}

/// Reads mail, or says what is wrong with it. Mail with an unreadable errand is unreadable as a
/// whole.
pub(super) fn decode(item: &Item) -> Result<Mail, String> {
    let errands = item
        .get(ERRANDS)
        .and_then(|value| value.as_l().ok())
        .ok_or("errands are missing")?;
    Ok(Mail {
        to: run(item, INCARNATION)?,
        number: unsigned(item, NUMBER)?,
        errands: errands
            .iter()
            .map(decode_errand)
            .collect::<Result<_, _>>()?,
    })
}

fn decode_errand(value: &AttributeValue) -> Result<Errand, String> {
    let item = value.as_m().map_err(|_| "an errand is not a map")?;
    let key = LeaseKey::new(string(item, LEASE)?).map_err(|error| error.to_string())?;
    let task = match string(item, TASK)? {
        TAKE => Task::Take {
            counter: LeaseCounter(unsigned(item, COUNTER)?),
            owner: owner(item)?,
            why: why(item)?,
        },
        CLAIM => Task::Claim {
            from: worker(item, FROM)?,
            replaces: claimant(item)?,
            lead: unsigned(item, LEAD)?,
        },
        EXPECT => Task::Expect {
            by: worker(item, BY)?,
        },
        other => return Err(format!("{other} is not an errand")),
    };
    Ok(Errand { key, task })
}

fn owner(item: &Item) -> Result<Option<OwnerSeen>, String> {
    if !item.contains_key(FROM) {
        return Ok(None);
    }
    let mut owner = OwnerSeen {
        id: worker(item, FROM)?,
        beat: None,
    };
    if item.contains_key(RUN) {
        owner.beat = Some((run(item, RUN)?, unsigned(item, BEAT)?));
    }
    Ok(Some(owner))
}

fn claimant(item: &Item) -> Result<Option<WorkerId>, String> {
    if item.contains_key(BY) {
        worker(item, BY).map(Some)
    } else {
        Ok(None)
    }
}

fn why(item: &Item) -> Result<Why, String> {
    if item.contains_key(SHARE) {
        let share = unsigned(item, SHARE)?;
        return Ok(Why::BelowShare {
            fair_share: usize::try_from(share).unwrap_or(usize::MAX),
        });
    }
    if item.contains_key(LEAD) {
        return Ok(Why::Uneven {
            lead: unsigned(item, LEAD)?,
        });
    }
    Ok(Why::Overdue)
}

fn worker(item: &Item, name: &str) -> Result<WorkerId, String> {
    WorkerId::new(string(item, name)?).ok_or_else(|| format!("{name} is empty"))
}

fn run(item: &Item, name: &str) -> Result<Incarnation, String> {
    Incarnation::new(string(item, name)?).ok_or_else(|| format!("{name} is empty"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_of_a_newer_leader_is_no_mail_and_not_half_of_one() {
        let worker = WorkerId::new("a").unwrap();
        let errand = Errand {
            key: LeaseKey::new("shardId-0").unwrap(),
            task: Task::Expect { by: worker.clone() },
        };
        let mail = Mail {
            to: Incarnation::new("run").unwrap(),
            number: 1,
            errands: vec![errand],
        };
        let mut item = encode(&worker, &mail);
        assert_eq!(decode(&item), Ok(mail));
        let later = Item::from([
            (LEASE.to_owned(), text("shardId-1")),
            (TASK.to_owned(), text("mend")),
        ]);
        let errands = vec![
            item[ERRANDS].as_l().unwrap()[0].clone(),
            AttributeValue::M(later),
        ];
        item.insert(ERRANDS.to_owned(), AttributeValue::L(errands));
        assert_eq!(decode(&item), Err("mend is not an errand".to_owned()));
    }
}
