use std::alloc::{Layout, handle_alloc_error};
use std::process::Command;

use wasmparser::{BinaryReader, Parser};
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Engine, Instance, Module, Store, StoreLimits, StoreLimitsBuilder};
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi::p2::bindings::random::random::Host as _;

use super::*;
use crate::EMPTY_COMPONENT;
use crate::engine::{Metering, new_engine};

fn engine() -> Engine {
    new_engine(None, Metering::Deadline).unwrap()
}

fn store<T: 'static>(engine: &Engine, data: T) -> Store<T> {
    let mut store = Store::new(engine, data);
    store.set_epoch_deadline(1_000_000);
    store
}

/// The error of instantiating a core module, with all of its causes.
fn instantiated(limits: StoreLimits, text: &str) -> wasmtime::Error {
    let engine = engine();
    let module = Module::new(&engine, wat::parse_str(text).unwrap()).unwrap();
    let mut store = store(&engine, limits);
    store.limiter(|limits| limits);
    Instance::new(&mut store, &module, &[]).err().unwrap()
}

/// The error of the function `run` of a component that may import `take`.
fn run(text: &str, prepare: impl FnOnce(&mut Store<()>)) -> String {
    let engine = engine();
    let component = Component::new(&engine, wat::parse_str(text).unwrap()).unwrap();
    let mut linker = Linker::new(&engine);
    linker
        .root()
        .func_wrap("take", |_, (_text,): (String,)| Ok(()))
        .unwrap();
    let mut store = store(&engine, ());
    let instance = linker.instantiate(&mut store, &component).unwrap();
    let run = instance
        .get_typed_func::<(), ()>(&mut store, "run")
        .unwrap();
    prepare(&mut store);
    format!("{:#}", run.call(&mut store, ()).unwrap_err())
}

#[test]
fn wasmtime_says_which_number_of_things_was_too_high() {
    let none = StoreLimitsBuilder::new;
    for (limits, module, limit) in [
        (
            none().instances(0).build(),
            "(module)",
            Limit::CoreInstances,
        ),
        (
            none().memories(0).build(),
            "(module (memory 1))",
            Limit::Memories,
        ),
        (
            none().tables(0).build(),
            "(module (table 1 funcref))",
            Limit::Tables,
        ),
    ] {
        let error = format!("{:#}", instantiated(limits, module));
        assert_eq!(limit_exceeded(&error), Some(limit), "{error}");
    }
}

#[test]
fn wasmtime_says_that_there_are_too_many_handles() {
    let mut table = ResourceTable::new();
    table.set_max_capacity(0);
    let full = table.push(()).unwrap_err().to_string();
    assert_eq!(limit_exceeded(&full), Some(Limit::Handles), "{full}");

    let makes_a_handle = r#"(component
        (type $thing (resource (rep i32)))
        (core func $new (canon resource.new $thing))
        (core module $code
            (import "" "new" (func $new (param i32) (result i32)))
            (func (export "run") (drop (call $new (i32.const 1)))))
        (core instance $code (instantiate $code
            (with "" (instance (export "new" (func $new))))))
        (func (export "run") (canon lift (core func $code "run"))))"#;
    let denied = run(makes_a_handle, |store| store.set_max_component_handles(0));
    assert_eq!(limit_exceeded(&denied), Some(Limit::Handles), "{denied}");
}

#[test]
fn wasmtime_says_that_too_much_is_passed_to_the_host() {
    let passes_a_kilobyte = r#"(component
        (import "take" (func $take (param "text" string)))
        (core module $memory (memory (export "memory") 1))
        (core instance $memory (instantiate $memory))
        (core func $take (canon lower (func $take) (memory (core memory $memory "memory"))))
        (core module $code
            (import "" "take" (func $take (param i32 i32)))
            (func (export "run") (call $take (i32.const 0) (i32.const 1000))))
        (core instance $code (instantiate $code
            (with "" (instance (export "take" (func $take))))))
        (func (export "run") (canon lift (core func $code "run"))))"#;
    let denied = run(passes_a_kilobyte, |store| store.set_hostcall_fuel(10));
    let limit = limit_exceeded(&denied);
    assert_eq!(limit, Some(Limit::HostcallBytes), "{denied}");
}

#[test]
fn wasi_says_that_too_many_random_bytes_are_asked_for() {
    let mut wasi = WasiCtx::builder().max_random_size(65_536).build();
    let denied = wasi.random().get_random_bytes(65_537).unwrap_err();
    let denied = format!("{denied:#}");
    assert_eq!(
        limit_exceeded(&denied),
        Some(Limit::RandomBytes),
        "{denied}"
    );
}

#[test]
fn wasmtime_lists_frames_in_a_cause_that_begins_so() {
    let error = instantiated(
        StoreLimits::default(),
        "(module (func unreachable) (start 0))",
    );
    let lists = error
        .chain()
        .filter(|cause| is_list_of_frames(&cause.to_string()));
    assert_eq!(lists.count(), 1, "{error:?}");
}

#[test]
fn the_parser_says_that_bytes_are_missing_and_not_of_a_string_that_is_too_long() {
    let beginning = &EMPTY_COMPONENT[..EMPTY_COMPONENT.len() - 1];
    let cut_off = Parser::new(0)
        .parse_all(beginning)
        .find_map(Result::err)
        .unwrap()
        .to_string();
    assert!(ends_early(&cut_off), "{cut_off}");

    let mut four_gigabytes = BinaryReader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f], 0);
    let too_long = four_gigabytes.read_string().unwrap_err().to_string();
    assert!(
        too_long.contains("out of bounds") && !ends_early(&too_long),
        "{too_long}"
    );

    let mut four_gigabytes = BinaryReader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f], 0);
    let too_many = four_gigabytes
        .read_size(10, "list")
        .unwrap_err()
        .to_string();
    assert!(
        too_many.contains("out of bounds") && !ends_early(&too_many),
        "{too_many}"
    );
}

#[test]
fn the_compiler_says_what_it_objects_to() {
    for (text, expected) in [
        (
            "(component (core func (canon task.return)))",
            Objection::Async,
        ),
        (
            "(component (core module (memory i64 1)))",
            Objection::SwitchedOff,
        ),
        (
            "(component (core module (func (result i32))))",
            Objection::Invalid,
        ),
    ] {
        let error = Component::new(&engine(), wat::parse_str(text).unwrap())
            .err()
            .unwrap();
        let error = format!("{error:#}");
        assert_eq!(objection(&error), expected, "{text}: {error}");
    }
    assert_eq!(objection("Implementation limit exceeded"), Objection::Other);
}

#[test]
fn rust_and_the_system_say_that_there_is_no_memory() {
    const ASKED: &str = "SHARDMILL_TEST_FAIL_TO_ALLOCATE";
    if std::env::var_os(ASKED).is_some() {
        handle_alloc_error(Layout::new::<[u8; 64]>());
    }
    let name = "engine::wording::tests::rust_and_the_system_say_that_there_is_no_memory";
    let failed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", name])
        .env(ASKED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(lacks_memory(&said), "{said}");
    let system = std::io::Error::from_raw_os_error(rustix::io::Errno::NOMEM.raw_os_error());
    assert!(lacks_memory(&system.to_string()), "{system}");
}
