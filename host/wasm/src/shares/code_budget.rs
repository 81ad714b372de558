//! One budget of memory for the compiled code of all versions. Each plugin has a share of it.
//!
//! Nobody waits for code: who holds the rest may need it for ever.

use std::sync::Arc;

use metrics::Gauge;
use shardmill_core::shares::Membership;
use shardmill_core::shares::pool::{Member, Pool, Taken};

use crate::LoadError;
use crate::metrics as names;

/// The budget, in bytes.
pub(crate) struct CodeBudget {
    shared: Arc<Shared>,
}

/// One plugin's share of it.
pub(crate) struct CodeMember {
    shared: Arc<Shared>,
    member: Member,
}

/// The code of one version; given back when dropped.
pub(crate) struct HeldCode {
    shared: Arc<Shared>,
    taken: Taken,
}

struct Shared {
    pool: Pool,
    in_use: Gauge,
}

impl CodeBudget {
    /// Half of it is guaranteed in equal parts to the plugins that are there; the other half goes
    /// to whoever comes first.
    pub(crate) fn new(bytes: usize) -> Self {
        metrics::gauge!(names::CODE_LIMIT).set(bytes as f64);
        let shared = Shared {
            pool: Pool::new(bytes, 0),
            in_use: metrics::gauge!(names::CODE),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Adds a plugin.
    pub(crate) fn join(&self) -> CodeMember {
        CodeMember {
            shared: Arc::clone(&self.shared),
            member: self.shared.pool.join(Membership::Guaranteed),
        }
    }
}

impl CodeMember {
    /// Charges the plugin for the code of one more version.
    pub(crate) fn hold(&self, bytes: usize) -> Result<HeldCode, LoadError> {
        let Some(taken) = self.member.try_take(bytes) else {
            return Err(LoadError::CodeMemory {
                needed: bytes,
                free: self.member.free(),
            });
        };
        self.shared.show();
        Ok(HeldCode {
            shared: Arc::clone(&self.shared),
            taken,
        })
    }
}

impl Shared {
    fn show(&self) {
        self.in_use.set(self.pool.held() as f64);
    }
}

impl Drop for HeldCode {
    fn drop(&mut self) {
        self.taken.give_back(self.taken.units());
        self.shared.show();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_charged_to_its_plugin_until_its_version_goes() {
        let budget = CodeBudget::new(800);
        let (one, two) = (budget.join(), budget.join());
        let large = one.hold(600).unwrap();
        let refused = two.hold(201).err().unwrap();
        assert_eq!(
            refused,
            LoadError::CodeMemory {
                needed: 201,
                free: 200
            }
        );
        let small = two.hold(200).unwrap();
        assert!(one.hold(1).is_err(), "the rest is the other's");
        drop(large);
        assert!(two.hold(201).is_ok());
        drop(small);
        assert_eq!(budget.shared.pool.held(), 0);
    }
}
