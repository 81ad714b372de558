//! `wasi:config/store`: the plugin's own values, and its secrets under `secret.NAME`. Written here
//! and not taken from a crate, because a secret must be returned when it is asked for by name, and
//! must not appear in a list of all values.

use shardmill_core::plugin::{DESTINATIONS_KEY, SECRET_PREFIX};

use crate::bindings::wasi::config::store::{Error, Host};
use crate::instance::state::InstanceState;

impl Host for InstanceState {
    fn get(&mut self, key: String) -> Result<Option<String>, Error> {
        if let Some(name) = key.strip_prefix(SECRET_PREFIX) {
            return Ok(self.secrets.get(name).map(str::to_owned));
        }
        if key == DESTINATIONS_KEY {
            return Ok(Some(self.identity.destinations.join(",")));
        }
        let value = self.identity.config.iter().find(|(name, _)| *name == key);
        Ok(value.map(|(_, value)| value.clone()))
    }

    fn get_all(&mut self) -> Result<Vec<(String, String)>, Error> {
        Ok(self.identity.config.clone())
    }
}
