//! The one macro: from a [`Processor`](crate::Processor) to the exports of a component.

/// Exports a type that implements [`Processor`](crate::Processor) as this component's record
/// processor.
///
/// `plugin!(Type, state)` also exports `save` and `load` of a [`Stateful`](crate::Stateful) one.
///
/// `plugin!(Type, ticks)` also exports the `tick` of a [`Ticking`](crate::Ticking) one, and
/// `plugin!(Type, state, ticks)` all three.
///
/// `plugin!(Type, lists)` leaves out the export `bulk`, by which a host delivers a batch in one
/// piece instead of as a list of records. It makes a smaller component that takes more time for
/// each record.
///
/// Outside WebAssembly it only checks the type: the exports' names are not symbols that native
/// linkers accept.
#[macro_export]
macro_rules! plugin {
    ($processor:ty) => {
        const _: fn() = || {
            fn is_processor<T: $crate::Processor>() {}
            is_processor::<$processor>();
        };
        $crate::plugin!(@component $processor, bulk);
    };
    ($processor:ty, lists) => {
        const _: fn() = || {
            fn is_processor<T: $crate::Processor>() {}
            is_processor::<$processor>();
        };
        $crate::plugin!(@component $processor,);
    };
    ($processor:ty, state) => {
        const _: fn() = || {
            fn is_stateful<T: $crate::Stateful>() {}
            is_stateful::<$processor>();
        };
        $crate::plugin!(@component $processor, bulk state);
    };
    ($processor:ty, ticks) => {
        const _: fn() = || {
            fn is_ticking<T: $crate::Ticking>() {}
            is_ticking::<$processor>();
        };
        $crate::plugin!(@component $processor, bulk ticks);
    };
    ($processor:ty, state, ticks) => {
        const _: fn() = || {
            fn is_both<T: $crate::Stateful + $crate::Ticking>() {}
            is_both::<$processor>();
        };
        $crate::plugin!(@component $processor, bulk state ticks);
    };
    (@component $processor:ty, $($more:ident)*) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Component;

            thread_local! {
                // The host's calls of an instance never overlap, so a cell is enough.
                static PROCESSOR: ::core::cell::RefCell<::core::option::Option<$processor>> =
                    const { ::core::cell::RefCell::new(::core::option::Option::None) };
            }

            fn with<T>(
                call: impl FnOnce(&mut $processor) -> ::core::result::Result<T, $crate::Error>,
            ) -> ::core::result::Result<T, $crate::Error> {
                PROCESSOR.with_borrow_mut(|processor| match processor {
                    ::core::option::Option::Some(processor) => call(processor),
                    ::core::option::Option::None => ::core::result::Result::Err("called before init".into()),
                })
            }

            impl $crate::bindings::exports::shardmill::processor::processor::Guest for Component {
                fn init(context: $crate::Context) -> ::core::result::Result<(), $crate::Error> {
                    let made = <$processor as $crate::Processor>::init(context)?;
                    PROCESSOR.set(::core::option::Option::Some(made));
                    ::core::result::Result::Ok(())
                }

                fn process(
                    batch: $crate::bindings::shardmill::processor::types::Batch,
                ) -> ::core::result::Result<$crate::Outcome, $crate::Error> {
                    let batch = $crate::delivery::of_lists(&batch);
                    with(|processor| $crate::Processor::process(processor, batch))
                }

                fn close(reason: $crate::CloseReason) -> ::core::result::Result<(), $crate::Error> {
                    with(|processor| $crate::Processor::close(processor, reason))
                }
            }

            $crate::bindings::export!(Component with_types_in $crate::bindings);

            $($crate::plugin!(@export $more);)*
        };
    };
    (@export bulk) => {
        impl $crate::bindings::bulk::exports::shardmill::processor::bulk::Guest for Component {
            fn process(
                frame: ::std::vec::Vec<u8>,
            ) -> ::core::result::Result<::std::vec::Vec<u8>, $crate::Error> {
                $crate::delivery::in_one_frame(&frame, |batch| {
                    with(|processor| $crate::Processor::process(processor, batch))
                })
            }
        }

        $crate::bindings::bulk::export_bulk!(Component with_types_in $crate::bindings::bulk);
    };
    (@export state) => {
        impl $crate::bindings::state::exports::shardmill::processor::state::Guest for Component {
            fn save() -> ::core::result::Result<::std::vec::Vec<u8>, $crate::Error> {
                with(|processor| $crate::Stateful::save(processor))
            }

            fn load(state: ::std::vec::Vec<u8>) -> ::core::result::Result<(), $crate::Error> {
                with(|processor| $crate::Stateful::load(processor, state))
            }
        }

        $crate::bindings::state::export_state!(Component with_types_in $crate::bindings::state);
    };
    (@export ticks) => {
        impl $crate::bindings::ticker::exports::shardmill::processor::ticker::Guest for Component {
            fn tick(
                now_ms: ::core::primitive::u64,
                delivered_until_ms: ::core::option::Option<::core::primitive::u64>,
            ) -> ::core::result::Result<$crate::HeldBack, $crate::Error> {
                let tick = $crate::Tick {
                    now_ms,
                    delivered_until_ms,
                };
                $crate::delivery::collected(|| {
                    with(|processor| $crate::Ticking::tick(processor, tick))
                })
            }
        }

        $crate::bindings::ticker::export_ticker!(Component with_types_in $crate::bindings::ticker);
    };
}
