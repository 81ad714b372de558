//! The live tail: what goes through a plugin on this host, as server-sent events.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use shardmill_config::ConsoleRight;
use shardmill_core::ports::Clock;
use shardmill_core::stream::ShardId;
use shardmill_serve::{BootClock, Peer};
use shardmill_worker::{Sample, SampleKind, Wanted, Watch};

use super::api::{Api, Refusal};
use super::mask::{self, MASKED};

/// How often it is said how much was dropped, if something was.
const DROPPED_EVERY: Duration = Duration::from_secs(1);
/// Events to one watcher in a second: more than a person can read.
const EVENTS_PER_SECOND: u32 = 200;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TailQuery {
    application: String,
    shard: Option<String>,
    key: Option<String>,
    contains: Option<String>,
    /// Names of kinds, with commas between them.
    what: Option<String>,
}

/// An event.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum TailEvent {
    Shown(Box<Shown>),
    Dropped(Dropped),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Shown {
    what: &'static str,
    at_ms: u64,
    shard: String,
    sequence: Option<String>,
    key: String,
    destination: Option<String>,
    text: String,
    bytes: usize,
    /// Whether there is more than is shown.
    is_cut: bool,
}

/// So many were not shown since the last one: too many came, or a call had more than are looked at.
#[derive(Debug, Serialize)]
struct Dropped {
    what: &'static str,
    count: u64,
}

/// Somebody who watches.
struct Tail {
    watch: Watch,
    masked: Vec<Vec<String>>,
    /// Looked for in what is shown, if something is masked: else one could ask what is not.
    contains: Option<String>,
    second: tokio::time::Interval,
    /// Events of this second.
    count: u32,
    /// Not shown since that was said last.
    dropped: u64,
}

pub(super) async fn tail(
    State(api): State<Arc<Api>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    query: Result<Query<TailQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    api.visitor(&headers, peer)?.must(ConsoleRight::ViewData)?;
    let Query(query) = query?;
    let mut wanted = wanted(query).map_err(|problem| Refusal(StatusCode::BAD_REQUEST, problem))?;
    let contains = if api.masked.is_empty() {
        None
    } else {
        wanted.contains.take()
    };
    let watch = api
        .tap
        .watch(wanted)
        .map_err(|error| Refusal(StatusCode::TOO_MANY_REQUESTS, error.to_string()))?;
    let tail = Tail {
        watch,
        masked: api.masked.clone(),
        contains,
        second: tokio::time::interval(DROPPED_EVERY),
        count: 0,
        dropped: 0,
    };
    Ok(Sse::new(events(tail))
        .keep_alive(KeepAlive::default())
        .into_response())
}

fn wanted(query: TailQuery) -> Result<Wanted, String> {
    let shard = query.shard.as_deref().filter(|shard| !shard.is_empty());
    let shard = shard.map(ShardId::new).transpose();
    Ok(Wanted {
        kinds: kinds(query.what.as_deref())?,
        application: query.application,
        shard: shard.map_err(|error| error.to_string())?,
        key: query.key.filter(|key| !key.is_empty()),
        contains: query.contains.filter(|text| !text.is_empty()),
    })
}

/// The kinds that are named; all, if none is.
fn kinds(what: Option<&str>) -> Result<BTreeSet<SampleKind>, String> {
    let mut kinds = BTreeSet::new();
    for name in what.unwrap_or_default().split(',') {
        if name.is_empty() {
            continue;
        }
        let mut all = SampleKind::ALL.into_iter();
        let Some(kind) = all.find(|kind| kind.plural() == name) else {
            let all = SampleKind::ALL.map(SampleKind::plural).join(", ");
            return Err(format!("what: {name:?} is none of {all}"));
        };
        kinds.insert(kind);
    }
    if kinds.is_empty() {
        kinds = SampleKind::ALL.into();
    }
    Ok(kinds)
}

fn events(tail: Tail) -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::unfold(tail, |mut tail| async move {
        let event = tail.next().await?;
        let event = Event::default().json_data(event).unwrap_or_default();
        Some((Ok(event), tail))
    })
}

impl Tail {
    async fn next(&mut self) -> Option<TailEvent> {
        loop {
            tokio::select! {
                _ = self.second.tick() => {
                    self.count = 0;
                    let count = self.watch.take_dropped() + std::mem::take(&mut self.dropped);
                    if count > 0 {
                        let what = "dropped";
                        return Some(TailEvent::Dropped(Dropped { what, count }));
                    }
                }
                sample = self.watch.next() => {
                    if let Some(shown) = self.shown(sample?) {
                        return Some(TailEvent::Shown(Box::new(shown)));
                    }
                }
            }
        }
    }

    /// `None` if it is not wanted, or if there were too many in this second.
    fn shown(&mut self, sample: Sample) -> Option<Shown> {
        if self.count >= EVENTS_PER_SECOND {
            self.dropped += 1;
            return None;
        }
        let text = self.text(&sample);
        let contains = self.contains.as_deref();
        if contains.is_some_and(|wanted| !text.contains(wanted)) {
            return None;
        }
        self.count += 1;
        Some(Shown {
            what: sample.kind.code(),
            at_ms: BootClock.wall_ms(),
            shard: sample.shard.to_string(),
            text,
            bytes: sample.bytes,
            is_cut: sample.is_cut(),
            sequence: sample.position.map(|position| position.to_string()),
            key: sample.key,
            destination: sample.destination,
        })
    }

    fn text(&self, sample: &Sample) -> String {
        let whole = || String::from_utf8_lossy(&sample.data).into_owned();
        let has_fields = sample.kind.is_data();
        if self.masked.is_empty() || !has_fields {
            return whole();
        }
        // The beginning of JSON cannot be read, so nothing can be found in it to be masked.
        if sample.is_cut() {
            return MASKED.to_owned();
        }
        mask::shown(&sample.data, &self.masked)
    }
}

#[cfg(test)]
mod tests {
    use shardmill_worker::Tap;

    use super::*;

    fn tail(masked: &[&str]) -> Tail {
        let wanted = Wanted {
            kinds: SampleKind::ALL.into(),
            application: "orders".to_owned(),
            shard: None,
            key: None,
            contains: None,
        };
        Tail {
            watch: Tap::default().watch(wanted).unwrap(),
            masked: masked
                .iter()
                .map(|field| vec![(*field).to_owned()])
                .collect(),
            contains: None,
            second: tokio::time::interval(DROPPED_EVERY),
            count: 0,
            dropped: 0,
        }
    }

    fn sample(kind: SampleKind, data: &str, bytes: usize) -> Sample {
        Sample {
            kind,
            shard: ShardId::new("shardId-0").unwrap(),
            position: None,
            destination: None,
            key: "k".to_owned(),
            data: data.as_bytes().to_vec(),
            bytes,
        }
    }

    #[tokio::test]
    async fn masked_fields_are_not_in_the_tail_not_even_in_the_beginning_of_long_data() {
        let mut tail = tail(&["card"]);
        let mut text =
            |kind, data: &str, bytes| tail.shown(sample(kind, data, bytes)).unwrap().text;
        let data = "{\"card\":4711,\"n\":1}";
        let masked = "{\"card\":\"(masked)\",\"n\":1}";
        assert_eq!(text(SampleKind::Record, data, data.len()), masked);
        assert_eq!(text(SampleKind::Record, "{\"card\":4711,", 9_000), MASKED);
        assert_eq!(text(SampleKind::Output, "plain", 5), "plain");
    }

    #[tokio::test]
    async fn nobody_can_ask_for_what_is_masked() {
        let mut tail = tail(&["card"]);
        tail.contains = Some("4711".to_owned());
        let mut shown = |data: &str| tail.shown(sample(SampleKind::Record, data, data.len()));
        assert!(shown("{\"card\":4711}").is_none());
        assert!(shown("{\"n\":4711}").is_some());
    }

    #[tokio::test]
    async fn events_come_at_a_rate_that_a_person_can_bear() {
        let mut tail = tail(&[]);
        for _ in 0..EVENTS_PER_SECOND {
            assert!(tail.shown(sample(SampleKind::Failure, "x", 1)).is_some());
        }
        assert!(tail.shown(sample(SampleKind::Failure, "x", 1)).is_none());
        assert_eq!((tail.dropped, tail.count), (1, EVENTS_PER_SECOND));
    }

    #[test]
    fn kinds_are_named_in_the_plural_and_all_are_shown_if_none_is() {
        assert_eq!(kinds(None).unwrap().len(), SampleKind::ALL.len());
        assert_eq!(kinds(Some("log,")).unwrap(), [SampleKind::Log].into());
        let told = kinds(Some("records,everything")).unwrap_err();
        assert!(
            told.contains("everything") && told.contains("outputs"),
            "{told}"
        );
    }
}
