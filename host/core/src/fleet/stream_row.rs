use crate::stream::StreamName;

/// What distinguishes a stream from another one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamIdentity {
    /// When it was created, in milliseconds since the Unix epoch, as Kinesis reports.
    pub created_at_ms: u64,
}

/// Which stream an application's checkpoints belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRow {
    /// The stream's name, without region and account.
    pub name: StreamName,
    /// What distinguishes it from a stream that had the same name before.
    pub identity: StreamIdentity,
    /// Whether the first sync is done: from then on, a shard without a lease that has parents
    /// starts at its oldest record, whatever is configured.
    pub is_bootstrapped: bool,
}

/// What the row means for a host that reads `name`, created at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamVerdict {
    /// The checkpoints belong to this stream.
    Same,
    /// No host has recorded the stream yet: do so.
    Unknown,
    /// The application reads a stream of another name.
    OtherName,
    /// The stream was deleted and created again: its checkpoints mean nothing on the new one.
    Recreated,
}

impl StreamRow {
    /// What the first host records. Rows without a coordinator table are another program's, or from
    /// before this version: those did their own first sync.
    pub fn first(name: StreamName, identity: StreamIdentity, has_leases: bool) -> Self {
        Self {
            name,
            identity,
            is_bootstrapped: has_leases,
        }
    }

    /// Compares the recorded stream with what Kinesis reports now.
    pub fn judge(row: Option<&Self>, name: &StreamName, identity: StreamIdentity) -> StreamVerdict {
        match row {
            None => StreamVerdict::Unknown,
            Some(row) if row.name != *name => StreamVerdict::OtherName,
            // Kinesis gives the time in whole seconds in some replies: a difference below one
            // second does not count.
            Some(row) if row.identity.created_at_ms.abs_diff(identity.created_at_ms) >= 1_000 => {
                StreamVerdict::Recreated
            }
            Some(_) => StreamVerdict::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_the_same_name_created_later_is_another_stream() {
        let name = StreamName::new("orders").unwrap();
        let at = |created_at_ms| StreamIdentity { created_at_ms };
        let row = StreamRow {
            name: name.clone(),
            identity: at(5_000),
            is_bootstrapped: true,
        };
        assert_eq!(
            StreamRow::judge(None, &name, at(5_000)),
            StreamVerdict::Unknown
        );
        assert_eq!(
            StreamRow::judge(Some(&row), &name, at(5_400)),
            StreamVerdict::Same
        );
        assert_eq!(
            StreamRow::judge(Some(&row), &name, at(6_000)),
            StreamVerdict::Recreated
        );
        let other = StreamName::new("payments").unwrap();
        assert_eq!(
            StreamRow::judge(Some(&row), &other, at(5_000)),
            StreamVerdict::OtherName
        );
    }
}
