//! What operators want of all hosts, and of the shards that this one holds: where it is read, and
//! what the worker does about it. A shard's part is its pipeline's.

use std::sync::Arc;

use shardmill_core::control::{Deed, DeployAsked, ReloadAsked, ShadowAsked};
use shardmill_core::lease::Lease;
use shardmill_core::plan::Plan;
use shardmill_core::seeded_bug::SeededBug;

use super::rows::read_rows;
use super::{PassError, Worker};
use crate::host_bell::Wish;

impl Worker {
    /// Tells the pipelines what the small rows say, and begins or ends to drain this host. To be
    /// called whenever these rows were read, before anything is taken.
    pub(super) fn follow_control(&mut self) {
        let control = &self.lookout.fleet().control;
        if !self.holdings.see_control(control) {
            return;
        }
        let (reload, shadow) = (control.reload.clone(), control.shadow.clone());
        let (deploy, version) = (control.deploy.clone(), control.version);
        let asked = control.drains.get(self.run.me()).map(ToString::to_string);
        self.reload_if_asked(reload);
        self.end_shadow_if_asked(shadow);
        self.deploy_if_asked(deploy, version);
        self.drain_while_asked(asked);
    }

    /// `asked`: who wants this host drained, if anybody does.
    fn drain_while_asked(&mut self, asked: Option<String>) {
        let is_drained = asked.is_some();
        if is_drained == self.is_drained {
            return;
        }
        self.is_drained = is_drained;
        self.run
            .status
            .update(|status| status.drained.clone_from(&asked));
        self.reports.set_draining(is_drained);
        if let Some(asked) = asked {
            tracing::info!(
                worker = %self.run.me(),
                asked,
                "draining this host: handing over all leases"
            );
            if !SeededBug::DrainKeepsLeases.is_on() {
                self.holdings.drain();
            }
        } else {
            tracing::info!(worker = %self.run.me(), "this host takes leases again");
            self.lookout.next().look_at_once();
        }
    }

    /// Has the process read its configuration again, once for each time that somebody asks.
    fn reload_if_asked(&self, wanted: Option<ReloadAsked>) {
        let Some(wanted) = wanted.filter(|wanted| wanted.is_for(self.run.me())) else {
            return;
        };
        let (chronicle, why) = (Arc::clone(&self.run.chronicle), wanted.asked.why.clone());
        let application = &self.run.options.application;
        let bell = &self.run.ports.bell;
        bell.ring_once(application, Wish::Reload, wanted.asked, move |outcome| {
            let deeds = [Deed::Reloaded, Deed::NotReloaded];
            chronicle.heeded(deeds, outcome, &why);
        });
    }

    /// Has the process promote or drop what runs in the plugin's shadow, once for each time that
    /// somebody asks, if it is that version or was the last one: another host may have done it,
    /// which has the same folder.
    fn end_shadow_if_asked(&self, wanted: Option<ShadowAsked>) {
        let Some(wanted) = wanted else { return };
        let had_it = self.run.ports.rollout.shadow().has_had(&wanted.digest);
        let (chronicle, why) = (Arc::clone(&self.run.chronicle), wanted.asked.why.clone());
        let application = &self.run.options.application;
        let wish = Wish::EndShadow {
            application: application.clone(),
            digest: wanted.digest,
            verb: wanted.verb,
        };
        let bell = &self.run.ports.bell;
        if !had_it {
            return bell.pass_over(application, &wish, wanted.asked);
        }
        bell.ring_once(application, wish, wanted.asked, move |outcome| {
            let deeds = [Deed::EndedShadow, Deed::KeptShadow];
            chronicle.heeded(deeds, outcome, &why);
        });
    }

    /// Has the process pull a version at once, once for each time that somebody deploys one. It
    /// also reads the wish itself, with each pull: this only saves it the wait.
    fn deploy_if_asked(&self, wanted: Option<DeployAsked>, control: u64) {
        let Some(deploy) = wanted else { return };
        let (chronicle, why) = (Arc::clone(&self.run.chronicle), deploy.asked.why.clone());
        let (application, asked) = (&self.run.options.application, deploy.asked.clone());
        let wish = Wish::Deploy {
            application: application.clone(),
            deploy: Box::new(deploy),
            control,
        };
        let bell = &self.run.ports.bell;
        bell.ring_once(application, wish, asked, move |outcome| {
            let deeds = [Deed::Deployed, Deed::NotDeployed];
            chronicle.heeded(deeds, outcome, &why);
        });
    }

    /// A command changed what operators want: reads the rows of all leases that this host holds.
    pub(super) async fn read_directives(&mut self) -> Result<(), PassError> {
        let rows = read_rows(&self.run, self.holdings.keys()).await?;
        let rows: Vec<Lease> = rows.into_iter().filter_map(|read| read.row).collect();
        self.holdings.see_directives(&rows);
        Ok(())
    }

    /// A host that is drained takes nothing and asks for nothing.
    pub(super) fn without_drained_takes(&self, mut plan: Plan) -> Plan {
        if self.is_drained && !SeededBug::DrainedTakes.is_on() {
            plan.withhold_for_drain(self.run.me());
        }
        plan
    }
}
