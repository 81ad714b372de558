use std::time::Duration;

use self::model::{Draw, Model, Scaler};
use super::*;
use crate::fleet::WorkerRow;
use crate::lease::WorkerId;
use crate::plan::ObservedWorker;
use crate::stream::ShardId;
use crate::time::Moment;

mod damping;
mod measuring;
mod model;

/// Runs, each with other hosts, shards and waits. More with the variable `SHARDMILL_SEEDS`.
const RUNS: u64 = 100;

/// How often the figure turned from rising to falling or back.
fn turns(figures: &[usize]) -> usize {
    let moves: Vec<bool> = figures.windows(2).map(|pair| pair[1] > pair[0]).collect();
    moves.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

#[test]
fn a_load_that_is_five_times_as_high_and_back_is_followed_in_time_and_without_flapping() {
    let runs = std::env::var("SHARDMILL_SEEDS");
    let runs = runs.map_or(RUNS, |runs| runs.parse().unwrap());
    for seed in 0..runs {
        let draw = Draw::of(seed);
        let run = Model::new(&draw).run(Scaler::Figure);
        let ideal = Model::new(&draw)
            .run(Scaler::Knowing(run.most))
            .cleared_after;
        // Where the load never made a shard lag behind, a start is what a rise takes.
        let ideal = ideal.max(draw.start_seconds + draw.poll_seconds);
        let shown = format!("instead of {ideal} s: {run:?} of {draw:?}");
        assert!(run.cleared_after <= 2.0 * ideal, "{shown}");
        assert!(turns(&run.figures) <= 3, "{shown}");
        assert!(!run.is_behind_late, "{shown}");
        let differs = run.at_end.abs_diff(run.before);
        assert!(
            differs <= 1,
            "one host at most, at the edge of one: {shown}"
        );
    }
}
