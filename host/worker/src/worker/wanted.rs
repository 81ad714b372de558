//! How many hosts are wanted: the leader decides with each look at the fleet, and says so in its
//! record, which it writes anyway. All hosts show what the record says.

use std::sync::Arc;

use shardmill_core::plan::ObservedLease;
use shardmill_core::scaling::{
    Assessment, Damper, Figure, FleetLoad, ScalingPolicy, Shards, assess,
};
use tokio::time::Instant;

use super::Worker;
use super::look::Lookout;
use super::run::Run;
use crate::load::Scaling;
use crate::metrics;
use crate::status::HostsWantedStatus;
use crate::timer::timer_now;

/// What this host knows of the hosts wanted.
pub(super) struct HostsWanted {
    run: Arc<Run>,
    /// The shards as of the last listing of leases; `None` before the first.
    shards: Option<Shards>,
    /// While this host leads.
    office: Option<AsLeader>,
    /// The version of the leader's record that was seen last, and when that was first seen.
    seen: Option<(u64, Instant)>,
}

/// What a leader remembers.
struct AsLeader {
    damper: Damper,
    /// `None` until something is known, if no leader before it published a figure.
    figure: Option<Figure>,
    notes: Vec<String>,
}

impl HostsWanted {
    pub(super) fn new(run: Arc<Run>) -> Self {
        let wanted = Self {
            run,
            shards: None,
            office: None,
            seen: None,
        };
        let is_scaled = wanted.scaling().is_some();
        let status = &wanted.run.status;
        status.update(|status| status.is_scaled = is_scaled);
        wanted
    }

    /// How the application is scaled, if it is.
    fn scaling(&self) -> Option<&Scaling> {
        let scaling = self.run.ports.scaling.as_ref();
        scaling.filter(|scaling| !scaling.is_standalone)
    }

    /// The leases were listed.
    pub(super) fn listed(&mut self, leases: &[ObservedLease], lookout: &Lookout) {
        if self.scaling().is_some() {
            self.shards = Some(Shards::of(&lookout.view(leases, &[], None)));
        }
    }

    fn show_decided(&self, figure: &Figure, before: Option<&Figure>) {
        let is_new = before.is_none_or(|before| before.wanted != figure.wanted);
        if is_new {
            tracing::info!(hosts = figure.wanted, why = figure.why, "hosts wanted");
        }
        self.run.gauge(metrics::HOSTS_WANTED, figure.wanted as f64);
    }

    /// Decides, as the leader; `published` is what the record says.
    fn decide(&mut self, lookout: &Lookout, published: Option<&Figure>) {
        let (Some(scaling), Some(shards)) = (self.scaling(), &self.shards) else {
            return;
        };
        let (policy, now) = (scaling.policy, self.run.now());
        let assessed = self.assess(lookout, shards, &policy);
        let (mut damper, before) = match self.office.take() {
            Some(AsLeader { damper, figure, .. }) => (damper, figure),
            None => (Damper::new(now), published.cloned()),
        };
        let figure = damper.next(&policy, &assessed, before.as_ref(), now);
        if let Some(figure) = &figure {
            self.show_decided(figure, before.as_ref());
        }
        self.office = Some(AsLeader {
            damper,
            figure,
            notes: warnings(&assessed),
        });
    }

    fn assess(&self, lookout: &Lookout, shards: &Shards, policy: &ScalingPolicy) -> Assessment {
        let workers = lookout.workers();
        let rows = lookout.fleet().workers.iter();
        let max_leases = self.run.options.leases.max_leases;
        assess(policy, &FleetLoad::of(shards, &workers, rows, max_leases))
    }

    /// What this host writes as the leader: before it has decided, what the record says.
    pub(super) fn to_publish(&self, published: Option<&Figure>) -> Option<Figure> {
        self.scaling()?;
        match &self.office {
            Some(office) => office.figure.clone(),
            None => published.cloned(),
        }
    }

    /// Another host leads, or none that this host knows of.
    pub(super) fn step_down(&mut self) {
        if self.office.take().is_some() {
            self.run.gauge(metrics::HOSTS_WANTED, metrics::ENDED);
        }
    }

    /// Shows what the leader's record says, in its `version`; on the leader, what it will say.
    fn show(&mut self, version: u64, published: Option<&Figure>) {
        let at = match self.seen {
            Some((seen, at)) if seen == version => at,
            _ => timer_now(),
        };
        self.seen = Some((version, at));
        let (figure, notes) = match &self.office {
            Some(office) => (office.figure.as_ref(), office.notes.clone()),
            None => (published, Vec::new()),
        };
        let shown = figure.map(|figure| HostsWantedStatus {
            wanted: figure.wanted,
            undamped: figure.undamped,
            shards: figure.shards,
            why: figure.why.clone(),
            notes,
            leads: self.office.is_some(),
            at,
            figure: figure.clone(),
        });
        self.run.status.update(|status| status.hosts_wanted = shown);
    }
}

fn warnings(assessed: &Assessment) -> Vec<String> {
    let reasons = assessed.reasons.iter();
    let warnings = reasons.filter(|reason| reason.is_warning());
    warnings.map(ToString::to_string).collect()
}

impl Worker {
    /// Decides how many hosts are wanted, if this host leads.
    pub(super) fn want_hosts(&mut self) {
        if self.office.is_mine() {
            let published = self.office.service();
            let published = published.and_then(|service| service.hosts_wanted.as_ref());
            self.wanted.decide(&self.lookout, published);
        }
    }

    /// Shows how many hosts are wanted. To be called whenever the leader's record was read or
    /// written.
    pub(super) fn show_hosts_wanted(&mut self) {
        let version = self.office.version();
        let published = self.office.service();
        let published = published.and_then(|service| service.hosts_wanted.as_ref());
        self.wanted.show(version, published);
    }
}
