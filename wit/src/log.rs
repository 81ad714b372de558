//! Log lines, which the host writes with the plugin's name and the shard. `println!` works too, as
//! level info.

#[cfg(target_arch = "wasm32")]
use crate::bindings::wasi::logging::logging::{Level, log};

macro_rules! level {
    ($(#[$doc:meta])* $name:ident, $level:ident) => {
        $(#[$doc])*
        pub fn $name(message: impl AsRef<str>) {
            #[cfg(target_arch = "wasm32")]
            log(Level::$level, "", message.as_ref());
            #[cfg(not(target_arch = "wasm32"))]
            let _ = message;
        }
    };
}

level!(
    /// For someone debugging the processor.
    debug,
    Debug
);
level!(
    /// For someone watching it.
    info,
    Info
);
level!(
    /// Something that may go wrong.
    warn,
    Warn
);
level!(
    /// Something that went wrong.
    error,
    Error
);
