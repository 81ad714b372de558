//! The windows as bytes: what the host keeps with the checkpoint.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::{Open, Windows};
use crate::Error;

/// The first byte. Another layout gets another number.
const LAYOUT: u8 = 1;

/// Integers take a byte for each 7 bits, so starts are counted from the first one.
#[derive(Serialize, Deserialize)]
struct Saved<K, V> {
    clock: Clock,
    first_ms: u64,
    keys: Vec<(K, Vec<SavedWindow<V>>)>,
}

#[derive(Serialize, Deserialize)]
struct SavedWindow<V> {
    /// After the first start.
    start_ms: u64,
    size_ms: u64,
    value: V,
}

impl<V: Clone + Default + Serialize + DeserializeOwned> Windows<V> {
    /// All open windows, compactly: for [`Stateful::save`](crate::Stateful::save).
    ///
    /// # Errors
    ///
    /// A value cannot be serialized.
    pub fn save(&self) -> Result<Vec<u8>, Error> {
        let starts = self.open.values().flatten().map(|window| window.start_ms);
        let first_ms = starts.min().unwrap_or_default();
        let saved = Saved {
            clock: self.clock,
            first_ms,
            keys: self
                .open
                .iter()
                .map(|(key, windows)| {
                    let windows = windows.iter().map(|window| SavedWindow {
                        start_ms: window.start_ms - first_ms,
                        size_ms: window.end_ms - window.start_ms,
                        value: &window.value,
                    });
                    (key.as_str(), windows.collect())
                })
                .collect(),
        };
        let to = vec![LAYOUT];
        postcard::to_extend(&saved, to)
            .map_err(|error| format!("the windows cannot be saved: {error}").into())
    }

    /// Takes up what another instance saved, with the same `V`: for
    /// [`Stateful::load`](crate::Stateful::load). Its windows keep their ends, also if this
    /// version has windows of another size.
    ///
    /// # Errors
    ///
    /// It is not of windows, or of windows with another `V`, as far as that can be seen.
    pub fn load(&mut self, state: &[u8]) -> Result<(), Error> {
        let refused =
            |why: String| Error::Other(format!("this state is not of these windows: {why}"));
        let Some((&LAYOUT, bytes)) = state.split_first() else {
            return Err(refused("it begins with another layout".to_owned()));
        };
        let (saved, rest): (Saved<String, V>, &[u8]) =
            postcard::take_from_bytes(bytes).map_err(|error| refused(error.to_string()))?;
        if !rest.is_empty() {
            return Err(refused(format!("it has {} bytes too many", rest.len())));
        }
        let first_ms = saved.first_ms;
        let keys = saved.keys.into_iter().map(|(key, windows)| {
            let windows = windows.into_iter().map(|window| window.opened(first_ms));
            (key, windows.collect())
        });
        self.open = keys.collect();
        self.clock = saved.clock;
        Ok(())
    }
}

impl<V> SavedWindow<V> {
    fn opened(self, first_ms: u64) -> Open<V> {
        let start_ms = first_ms.saturating_add(self.start_ms);
        Open {
            start_ms,
            end_ms: start_ms.saturating_add(self.size_ms),
            value: self.value,
        }
    }
}
