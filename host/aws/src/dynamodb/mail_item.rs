//! What a leader leaves for one host, as an item in a partition of its own: a list of maps, one an
//! errand.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::fleet::{Errand, Incarnation, Mail, OwnerSeen, Task, Why};
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::stream::LeaseKey;

use super::lease_item::{Item, number, text};
use super::row::{INCARNATION, key, string, unsigned};

/// Before a worker's id, as the partition key of its mail: a partition for each, so that none is
/// hot.
const MAIL_PREFIX: &str = "mail#";
const ERRANDS_ID: &str = "errands";

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
/// Who asks for the lease, or asked in vain.
const BY: &str = "by";
const SHARE: &str = "share";
const LEAD: &str = "lead";

pub(super) fn key_of(worker: &WorkerId) -> Item {
    key(&format!("{MAIL_PREFIX}{worker}"), ERRANDS_ID)
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
    let mut item = Item::from([(LEASE.to_owned(), text(errand.key.as_str()))]);
    let mut put = |name: &str, value: AttributeValue| item.insert(name.to_owned(), value);
    match &errand.task {
        Task::Take {
            counter,
            owner,
            why,
        } => {
            put(TASK, text(TAKE));
            put(COUNTER, number(counter.0));
            if let Some(owner) = owner {
                put(FROM, text(owner.id.as_str()));
            }
            if let Some((run, beat)) = owner.as_ref().and_then(|owner| owner.beat.as_ref()) {
                put(RUN, text(run.as_str()));
                put(BEAT, number(*beat));
            }
            match why {
                Why::BelowShare { fair_share } => put(SHARE, number(*fair_share as u64)),
                Why::Uneven { lead } => put(LEAD, number(*lead)),
                Why::Overdue => None,
            };
        }
        Task::Claim {
            from,
            replaces,
            lead,
        } => {
            put(TASK, text(CLAIM));
            put(FROM, text(from.as_str()));
            put(LEAD, number(*lead));
            if let Some(by) = replaces {
                put(BY, text(by.as_str()));
            }
        }
        Task::Expect { by } => {
            put(TASK, text(EXPECT));
            put(BY, text(by.as_str()));
        }
    }
    AttributeValue::M(item)
}

/// Reads mail, or says what is wrong with it: half of it is as good as none.
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
            owner: item.contains_key(FROM).then(|| owner(item)).transpose()?,
            why: why(item)?,
        },
        CLAIM => Task::Claim {
            from: worker(item, FROM)?,
            replaces: item
                .contains_key(BY)
                .then(|| worker(item, BY))
                .transpose()?,
            lead: unsigned(item, LEAD)?,
        },
        EXPECT => Task::Expect {
            by: worker(item, BY)?,
        },
        other => return Err(format!("{other} is not an errand")),
    };
    Ok(Errand { key, task })
}

fn owner(item: &Item) -> Result<OwnerSeen, String> {
    let beat = item
        .contains_key(RUN)
        .then(|| Ok::<_, String>((run(item, RUN)?, unsigned(item, BEAT)?)))
        .transpose()?;
    Ok(OwnerSeen {
        id: worker(item, FROM)?,
        beat,
    })
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
