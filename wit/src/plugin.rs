//! The one macro: from a [`Processor`](crate::Processor) to the exports of a component.

/// Exports a type that implements [`Processor`](crate::Processor) as this component's record
/// processor.
///
/// `plugin!(Type, state)` also exports `save` and `load` of a [`Stateful`](crate::Stateful) one.
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
        $crate::plugin!(@component $processor, {});
    };
    ($processor:ty, state) => {
        const _: fn() = || {
            fn is_stateful<T: $crate::Stateful>() {}
            is_stateful::<$processor>();
        };
        $crate::plugin!(@component $processor, {
            impl $crate::bindings::state::exports::shardmill::processor::state::Guest for Component {
                fn save() -> ::core::result::Result<::std::vec::Vec<u8>, $crate::Error> {
                    with(|processor| $crate::Stateful::save(processor))
                }

                fn load(state: ::std::vec::Vec<u8>) -> ::core::result::Result<(), $crate::Error> {
                    with(|processor| $crate::Stateful::load(processor, state))
                }
            }

            $crate::bindings::state::export_state!(Component with_types_in $crate::bindings::state);
        });
    };
    (@component $processor:ty, { $($more:item)* }) => {
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

                fn process(batch: $crate::Batch) -> ::core::result::Result<$crate::Outcome, $crate::Error> {
                    with(|processor| $crate::Processor::process(processor, batch))
                }

                fn close(reason: $crate::CloseReason) -> ::core::result::Result<(), $crate::Error> {
                    with(|processor| $crate::Processor::close(processor, reason))
                }
            }

            $crate::bindings::export!(Component with_types_in $crate::bindings);

            $($more)*
        };
    };
}
