//! A lease table of ten provisioned read units, as the KCL made them for years, with rows so large
//! that a scan costs more than half a second brings: whoever joins must leave the other enough to
//! live on, also while shards split and merge.

use harness::process::Host;
use harness::provisioned::{Provisioned, ReadCost, ReadUnits};
use tokio::time::Instant;

use crate::scene::{Owners, Scene, count, owns_all};
use crate::toolchain::{APPLICATION, Kcl, stop};

const SHARDS: u32 = 4;
const READ_UNITS_A_SECOND: f64 = 10.0;
/// With four rows an eventually consistent scan costs some 5 units, as one of 70 ordinary rows
/// does.
const ROW_PADDING: usize = 10 << 10;
/// Scans of the KCL while both run: it makes one each six seconds, and its leader another now and
/// then.
const SCANS_TOGETHER: u64 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_joins_a_kcl_leaves_it_its_provisioned_reads_while_shards_split_and_merge() {
    let Some(kcl) = Kcl::build("2.7.2") else {
        return;
    };
    let mut table = Table::new(kcl).await;
    let kcl = table.start_kcl();
    table.scene.until_handled_by("kcl-1", 300).await;
    table.pad_rows().await;
    let ours = table.start_ours();
    table.live_together().await;
    // It may hang on the leases of finished shards, which is its own affair.
    let _is_clean = stop(kcl).await;
    table
        .scene
        .until_owned("we own all", |owners| owns_all(owners, "ours-1"))
        .await;
    table.end(ours).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kcl_that_joins_us_gets_its_provisioned_reads_while_shards_split_and_merge() {
    let Some(kcl) = Kcl::build("2.7.2") else {
        return;
    };
    let mut table = Table::new(kcl).await;
    let ours = table.start_ours();
    table.scene.until_handled_by("ours-1", 300).await;
    table.pad_rows().await;
    let kcl = table.start_kcl();
    table.live_together().await;
    assert!(ours.terminate().await.success());
    table
        .scene
        .until_owned("the KCL owns all", |owners| owns_all(owners, "kcl-1"))
        .await;
    table.end(kcl).await;
}

/// The lease table, with a way to it for each side that counts what it costs.
struct Table {
    scene: Scene,
    theirs: Provisioned,
    ours: Provisioned,
}

impl Table {
    async fn new(kcl: Kcl) -> Self {
        let mut scene = Scene::new(kcl, SHARDS).await;
        scene.feed.put(1_000).await;
        let dynamodb = scene.setting.stack().dynamodb_endpoint().to_owned();
        let units = ReadUnits::new(APPLICATION, READ_UNITS_A_SECOND);
        let theirs = Provisioned::before(&dynamodb, units.clone()).await;
        let ours = Provisioned::before(&dynamodb, units).await;
        Self {
            scene,
            theirs,
            ours,
        }
    }

    fn start_kcl(&mut self) -> Host {
        let settings = [
            format!("dynamodb={}", self.theirs.endpoint),
            "checkpoint-batches=3".to_owned(),
        ];
        self.scene.kcl_with("kcl-1", &settings)
    }

    fn start_ours(&mut self) -> Host {
        self.scene.ours_behind("ours-1", &self.ours.endpoint)
    }

    async fn pad_rows(&self) {
        self.scene
            .write_on_every_row(&"x".repeat(ROW_PADDING))
            .await;
    }

    /// Both get their share, two shards merge and one splits, and the KCL goes on reading its
    /// table.
    async fn live_together(&mut self) {
        let both = |owners: &Owners| count(owners, "kcl-1") == 2 && count(owners, "ours-1") == 2;
        let owners = self.scene.until_owned("both own half", both).await;
        let (theirs, ours, since) = (self.theirs.cost(), self.ours.cost(), Instant::now());
        self.scene.merge_and_split(&owners).await;
        self.pad_rows().await;
        let scans = self.theirs.cost().scans + SCANS_TOGETHER;
        let their_front = &self.theirs;
        self.scene
            .while_putting_until("the KCL looks on", || their_front.cost().scans >= scans)
            .await;
        let seconds = since.elapsed().as_secs_f64();
        let (theirs, ours) = (
            self.theirs.cost().since(&theirs),
            self.ours.cost().since(&ours),
        );
        print(&theirs, &ours, seconds);
        assert_eq!(
            self.theirs.cost().refused,
            0,
            "the KCL is refused no read, from the first on"
        );
        let ours_a_second = ours.units / seconds;
        assert!(
            ours_a_second < READ_UNITS_A_SECOND / 3.0,
            "we use {ours_a_second:.1} of {READ_UNITS_A_SECOND} units"
        );
    }

    /// `last` has all leases.
    async fn end(mut self, last: Host) {
        self.scene.feed.put(200).await;
        self.scene.until_all_handled().await;
        last.kill();
        self.scene.setting.stop().await;
    }
}

fn print(theirs: &ReadCost, ours: &ReadCost, seconds: f64) {
    let line = |who: &str, cost: &ReadCost| {
        let ReadCost {
            units,
            refused,
            scans,
        } = cost;
        format!(
            "{who} {:.1} read units a second, {scans} scans, {refused} refused",
            units / seconds
        )
    };
    crate::figures(&format!(
        "provisioned reads, {seconds:.0} s: {}; {}",
        line("KCL", theirs),
        line("we", ours)
    ));
}
