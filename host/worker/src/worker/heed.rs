//! How a host that heeds learns what to do: from the board and its mail, often, and by a look of
//! its own, seldom.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::fleet::{Errand, Mail, Mailbox, Role, pace};
use shardmill_core::time::Moment;
use tokio_util::sync::CancellationToken;

use super::errands::Errands;
use super::office::Office;
use super::rows::read_rows;
use super::run::Run;
use super::{PassError, Worker};

/// While a lease is on its way to or from another host, its row is read this often, so that its
/// shard rests only for a moment.
const ROW_LOOK: Duration = Duration::from_millis(200);

/// What a host was asked to do, and when it last read what.
pub(super) struct Heeding {
    run: Arc<Run>,
    errands: Errands,
    /// The number of the last mail that was heeded.
    heard: Option<u64>,
    /// The number of the last nudge.
    nudged: Option<u64>,
    mail_at: Option<Moment>,
    board_at: Option<Moment>,
    /// When the rows of all workers are to be read, while a version waits for this host's turn.
    fleet_look_at: Option<Moment>,
    /// When a host that heeds looks for itself again.
    own_look_at: Option<Moment>,
    /// Whether this host is to look at all rows for leases of an earlier run.
    is_heir: bool,
}

impl Heeding {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            errands: Errands::new(Arc::clone(&run)),
            run,
            heard: None,
            nudged: None,
            mail_at: None,
            board_at: None,
            fleet_look_at: None,
            own_look_at: None,
            is_heir: false,
        }
    }

    pub(super) fn errands(&self) -> &Errands {
        &self.errands
    }

    pub(super) fn errands_mut(&mut self) -> &mut Errands {
        &mut self.errands
    }

    /// Whether this host was ever left anything.
    pub(super) fn has_mail(&self) -> bool {
        self.heard.is_some() || self.nudged.is_some()
    }

    /// Whether an earlier run of this worker, which did not sign off, may have left leases that no
    /// look has shown yet.
    pub(super) fn set_heir(&mut self, is_heir: bool) {
        self.is_heir = is_heir;
    }

    /// Whether a host that heeds need not look for itself yet. From the first question on, its own
    /// look comes after a wait.
    fn may_only_heed(&mut self, office: &Office) -> bool {
        let now = self.run.now();
        let own_look_at = match self.own_look_at {
            Some(at) => at,
            None => now + self.own_look_wait(office),
        };
        self.own_look_at = Some(own_look_at);
        now < own_look_at
    }

    /// Begins its own look, if this host heeds. Returns whether it does.
    fn begin_own_look(&mut self, office: &Office) -> bool {
        let heeds = self.own_look_at.is_some();
        if heeds {
            self.own_look_at = Some(self.run.now() + self.own_look_wait(office));
        }
        heeds
    }

    /// Makes the next pass of a host that heeds one that looks for itself.
    pub(super) fn look_for_itself(&mut self) {
        self.own_look_at = Some(self.run.now());
    }

    fn own_look_wait(&self, office: &Office) -> Duration {
        let service = office.service();
        let (hosts, leases) = service.map_or((1, 1), |service| (service.hosts, service.leases));
        // Hosts that started together must not look together.
        pace::own_look_every(hosts, leases, self.run.lease_duration())
            .mul_f64(0.75 + fastrand::f64() / 2.0)
    }

    /// How long until something is to be read.
    pub(super) fn next_pass(&self) -> Duration {
        let scan_every = self.run.options.leases.scan_every;
        if !self.errands.is_empty() {
            return ROW_LOOK.min(scan_every);
        }
        // Otherwise hosts that started together would look together for ever.
        scan_every.mul_f64(0.9 + fastrand::f64() * 0.2)
    }

    /// Whether it is time to read the board, which is read three times a lease duration.
    fn is_board_due(&self) -> bool {
        let jittered = 0.3 + fastrand::f64() / 30.0;
        let every = self.run.lease_duration().mul_f64(jittered);
        let now = self.run.now();
        self.board_at.is_none_or(|at| now.since(at) >= every)
    }

    fn board_read(&mut self, asked_at: Moment) {
        self.board_at = Some(asked_at);
    }

    /// Whether it is time to read the rows of all workers, which say when this host's turn for a
    /// version comes.
    fn is_fleet_look_due(&mut self, office: &Office) -> bool {
        let now = self.run.now();
        let every = self.fleet_look_every(office);
        // All hosts are given a version at the same time.
        let look_at = self
            .fleet_look_at
            .get_or_insert_with(|| now + every.mul_f64(fastrand::f64()));
        now >= *look_at
    }

    fn fleet_look_every(&self, office: &Office) -> Duration {
        let hosts = office.service().map_or(1, |service| service.hosts);
        pace::fleet_look_every(hosts, self.run.options.leases.scan_every)
    }

    fn fleet_read(&mut self, asked_at: Moment, office: &Office) {
        self.fleet_look_at = Some(asked_at + self.fleet_look_every(office));
    }

    /// No version waits for this host's turn. Returns whether one did before.
    fn stop_fleet_looks(&mut self) -> bool {
        self.fleet_look_at.take().is_some()
    }

    /// Reads what was left for this host, as often as a watching host looks at the fleet. Returns
    /// the nudge of a command that has changed what operators want, until it is heeded.
    pub(super) async fn read_mail(&mut self) -> Result<Option<u64>, PassError> {
        let now = self.run.now();
        let every = self.run.options.leases.scan_every.mul_f64(0.85);
        if self.mail_at.is_some_and(|at| now.since(at) < every) {
            return Ok(None);
        }
        let Mailbox { mail, nudge } = self.run.ports.coordinator.mailbox(self.run.me()).await?;
        self.mail_at = Some(now);
        if let Some(mail) = mail {
            self.hear(mail, now);
        }
        Ok(nudge.filter(|nudge| self.nudged != Some(*nudge)))
    }

    /// What the nudge was about has been read.
    fn heeded_nudge(&mut self, nudge: u64) {
        self.nudged = Some(nudge);
    }

    /// Takes up the errands of a mail, if it is for this run and new.
    fn hear(&mut self, mail: Mail, now: Moment) {
        let Mail {
            to,
            number,
            errands,
        } = mail;
        if to == self.run.incarnation && self.heard != Some(number) {
            self.heard = Some(number);
            self.errands.admit(errands, now);
        }
    }

    /// Takes up errands that this host gives itself.
    pub(super) fn admit(&mut self, errands: Vec<Errand>) {
        self.errands.admit(errands, self.run.now());
    }
}

impl Worker {
    /// Whether this pass only reads what was left for this host: it heeds, and need not look for
    /// itself yet.
    pub(super) fn only_heeds(&mut self) -> bool {
        if self.office.role() == Role::Watch && !self.lookout.is_spare(&self.office) {
            self.heeding.own_look_at = None;
            return false;
        }
        if self.heeding.is_heir && !self.lookout.is_spare(&self.office) {
            self.lookout.next().look_at_once();
            return false;
        }
        self.heeding.may_only_heed(&self.office)
    }

    /// A host that heeds begins to look for itself: at everything, whatever it has heard.
    pub(super) fn begin_own_look(&mut self) {
        if self.heeding.begin_own_look(&self.office) {
            self.lookout.next().look_soon();
        }
    }

    /// A pass of a host that heeds. Returns how long to wait for the next one.
    pub(super) async fn heed(&mut self, stop: &CancellationToken) -> Result<Duration, PassError> {
        let Some(leads) = stop.run_until_cancelled(self.read_board_and_mail()).await else {
            return Ok(Duration::ZERO);
        };
        if leads? {
            // The next pass looks, as a leader must.
            return Ok(Duration::ZERO);
        }
        self.do_errands(stop).await?;
        self.run.status.update(|status| status.passes += 1);
        Ok(self.heeding.next_pass())
    }

    /// Returns whether this host leads from now on; then it reads no mail.
    async fn read_board_and_mail(&mut self) -> Result<bool, PassError> {
        let now = self.run.now();
        let is_board_due = self.heeding.is_board_due();
        if is_board_due {
            self.read_board(now).await?;
            if self.campaign().await? {
                return Ok(true);
            }
        }
        let knows_fleet = self.read_fleet_in_turn(now).await?;
        self.versions
            .share_while_heeding(&self.lookout, is_board_due, knows_fleet)
            .await;
        if let Some(nudge) = self.heeding.read_mail().await? {
            self.read_board(now).await?;
            self.read_directives().await?;
            self.heeding.heeded_nudge(nudge);
        }
        Ok(false)
    }

    async fn read_board(&mut self, now: Moment) -> Result<(), PassError> {
        let board = self.run.ports.coordinator.board().await?;
        self.heeding.board_read(now);
        self.office.observe(board.leader.as_ref());
        self.lookout.read_board(board);
        self.show_hosts_wanted();
        self.follow_control();
        let Some(service) = self.office.service() else {
            return Ok(());
        };
        self.lookout.kcl().follow_leader(service.is_beside_kcl);
        self.run.status.update(|status| {
            status.workers = service.hosts;
            status.lease_rows = service.leases;
        });
        Ok(())
    }

    /// While a version waits for this host's turn, the rows of all workers say when it comes.
    /// Returns whether they were read just now.
    async fn read_fleet_in_turn(&mut self, now: Moment) -> Result<bool, PassError> {
        if !self.versions.wait_for_turn() {
            if self.heeding.stop_fleet_looks() {
                // From now on this host does not learn what the others run.
                self.versions.forget_fleet();
            }
            return Ok(false);
        }
        if !self.heeding.is_fleet_look_due(&self.office) {
            return Ok(false);
        }
        let fleet = self.run.ports.coordinator.fleet().await?;
        self.heeding.fleet_read(now, &self.office);
        self.lookout.read_fleet(fleet);
        self.follow_control();
        Ok(true)
    }

    /// Reads the rows of all errands and strays, and does what is to be done now.
    pub(super) async fn do_errands(&mut self, stop: &CancellationToken) -> Result<(), PassError> {
        if self.heeding.errands.is_empty() {
            return Ok(());
        }
        let read = read_rows(&self.run, self.heeding.errands.keys());
        let Some(rows) = stop.run_until_cancelled(read).await else {
            return Ok(());
        };
        let plan = self.heeding.errands.decide(rows?, &self.holdings);
        let plan = self.without_drained_takes(plan);
        if plan.steps.is_empty() {
            return Ok(());
        }
        // Each host that has a part in an errand reads the row, so no other host need look.
        let had_news = self.reports.has_news();
        let acted = self.act(plan, stop).await;
        self.reports.set_news(had_news);
        self.heeding.errands.forget_owners();
        acted.map(drop)
    }
}
