use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use wasmtime::component::Component;

use super::*;
use crate::Metering;
use crate::engine::{new_compiler, new_engine};

const FUNCTIONS: usize = 40;

/// A component with functions that each return another number; one of them is `seventh`.
fn component(seed: usize, seventh: usize) -> Vec<u8> {
    let mut module = String::new();
    for place in 0..FUNCTIONS {
        let number = if place == 7 {
            seventh
        } else {
            place + 1_000 * seed
        };
        write!(
            module,
            "(func (export \"f{place}\") (param i32) (result i32)
               (i32.add (local.get 0) (i32.const {number})))"
        )
        .unwrap();
    }
    let text = format!(
        "(component (core module $m {module}) (core instance $i (instantiate $m))
           (func (export \"run\") (param \"x\" s32) (result s32) (canon lift (core func $i \"f7\"))))"
    );
    wat::parse_str(text).unwrap()
}

/// What one compilation did.
struct Done {
    hits: usize,
    misses: usize,
    code: Vec<u8>,
}

impl Done {
    /// Whether at most an eighth was compiled. It is not nothing: some of the compiler's keys depend
    /// on what it compiled just before.
    fn is_mostly_kept(&self) -> bool {
        self.misses * 8 <= self.hits + self.misses
    }

    fn is_all_new(&self) -> bool {
        self.misses >= FUNCTIONS
    }
}

impl std::fmt::Debug for Done {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} found, {} compiled", self.hits, self.misses)
    }
}

fn compiled(store: FunctionStore, bytes: &[u8]) -> Done {
    let store = Arc::new(store);
    let engine = new_compiler(None, store.clone()).unwrap();
    store.serve(&engine);
    let component = Component::new(&engine, bytes).unwrap();
    let asked = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let done = Done {
        hits: asked(&store.hits),
        misses: asked(&store.misses),
        code: component.serialize().unwrap(),
    };
    store.save().unwrap();
    done
}

fn store_in(cache: &Path) -> FunctionStore {
    FunctionStore::bounded(&folder(cache), BOUNDS)
}

fn folder(cache: &Path) -> PathBuf {
    cache.join("functions")
}

fn compiled_in(cache: &Path, bytes: &[u8]) -> Done {
    compiled(store_in(cache), bytes)
}

fn compiled_without(bytes: &[u8]) -> Vec<u8> {
    let engine = new_engine(None, Metering::Deadline).unwrap();
    let component = Component::new(&engine, bytes).unwrap();
    component.serialize().unwrap()
}

fn packs(cache: &Path) -> Vec<KeptPack> {
    let folders = folders_in(&folder(cache));
    folders.iter().flat_map(|folder| packs_in(folder)).collect()
}

/// Makes all packs older, since file systems count time in steps.
fn age(cache: &Path) {
    for pack in packs(cache) {
        let file = std::fs::File::open(pack.path).unwrap();
        let before = pack.used_at - Duration::from_secs(1);
        file.set_modified(before).unwrap();
    }
}

#[test]
fn of_a_changed_component_nearly_nothing_is_compiled_but_what_changed() {
    let cache = tempfile::tempdir().unwrap();
    let first = compiled_in(cache.path(), &component(1, 5));
    assert!(first.is_all_new(), "{first:?}");
    let changed = compiled_in(cache.path(), &component(1, 6));
    assert!(
        changed.misses > 0 && changed.is_mostly_kept(),
        "{changed:?}"
    );
    let other = compiled_in(cache.path(), &component(2, 5));
    assert!(other.misses >= FUNCTIONS - 1, "{other:?}");
    let back = compiled_in(cache.path(), &component(1, 5));
    assert!(back.is_mostly_kept(), "{back:?}");
}

#[test]
fn code_of_kept_functions_is_to_the_byte_the_code_that_is_compiled_without_them() {
    let cache = tempfile::tempdir().unwrap();
    for (seed, seventh) in [(1, 5), (1, 6), (2, 5), (1, 5)] {
        let bytes = component(seed, seventh);
        let code = compiled_in(cache.path(), &bytes).code;
        assert!(code == compiled_without(&bytes), "{seed} {seventh}");
    }
}

#[test]
fn a_pack_that_is_torn_or_damaged_anywhere_is_never_run() {
    let cache = tempfile::tempdir().unwrap();
    let bytes = component(1, 5);
    let first = compiled_in(cache.path(), &bytes);
    let pack = packs(cache.path()).remove(0).path;
    let whole = std::fs::read(&pack).unwrap();
    let cut = [0, 1, 20, 44, 45, 2_000, whole.len() / 2, whole.len() - 1];
    let torn = cut.map(|at| whole[..at].to_vec());
    let flipped = (0..whole.len()).step_by(whole.len() / 61).map(|at| {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        damaged
    });
    let zeroed = std::iter::once(vec![0; whole.len()]);
    for (which, damaged) in torn.into_iter().chain(flipped).chain(zeroed).enumerate() {
        for kept in packs(cache.path()) {
            std::fs::remove_file(kept.path).unwrap();
        }
        std::fs::write(&pack, damaged).unwrap();
        let done = compiled_in(cache.path(), &bytes);
        assert!(done.code == first.code, "{which}");
        let again = compiled_in(cache.path(), &bytes);
        assert!(again.is_mostly_kept(), "{which} is in the way: {again:?}");
    }
}

#[test]
fn what_another_user_could_have_written_is_not_used() {
    let cache = tempfile::tempdir().unwrap();
    let bytes = component(1, 5);
    compiled_in(cache.path(), &bytes);
    let open_to_all = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    let pack = || packs(cache.path()).remove(0).path;

    open_to_all(&pack());
    let done = compiled_in(cache.path(), &bytes);
    assert!(done.is_all_new(), "{done:?}");

    let elsewhere = cache.path().join("elsewhere");
    let link = pack();
    std::fs::rename(&link, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    let done = compiled_in(cache.path(), &bytes);
    assert!(done.is_all_new(), "{done:?}");
    assert!(elsewhere.exists(), "only the link is removed");

    let folder = pack().parent().unwrap().to_owned();
    open_to_all(&folder);
    let store = store_in(cache.path());
    let engine = new_engine(None, Metering::Deadline).unwrap();
    store.serve(&engine);
    assert!(store.packs().is_empty());
    assert!(store.insert(&[1; 32], vec![1]));
    assert!(store.save().is_err(), "it is not written to either");
}

#[test]
fn what_a_compiler_with_other_settings_keeps_is_not_even_opened() {
    let cache = tempfile::tempdir().unwrap();
    compiled_in(cache.path(), &component(1, 5));
    let own = packs(cache.path()).remove(0).path;
    let folder = own.parent().unwrap();
    std::fs::rename(folder, folder.with_file_name("other")).unwrap();
    let done = compiled_in(cache.path(), &component(1, 5));
    assert!(done.is_all_new(), "{done:?}");
    assert_eq!(packs(cache.path()).len(), 2);
}

#[test]
fn many_small_changes_become_few_packs_and_nothing_of_them_is_lost() {
    let cache = tempfile::tempdir().unwrap();
    for seventh in 0..40 {
        compiled_in(cache.path(), &component(1, seventh));
    }
    let kept = packs(cache.path()).len();
    assert!(kept <= 8, "{kept} packs");
    for seventh in 0..40 {
        let done = compiled_in(cache.path(), &component(1, seventh));
        assert!(done.is_mostly_kept(), "{seventh}: {done:?}");
    }
}

#[test]
fn the_disk_holds_no_more_than_its_bound_and_what_was_used_last_stays() {
    let cache = tempfile::tempdir().unwrap();
    compiled_in(cache.path(), &component(1, 5));
    let one = packs(cache.path()).remove(0).bytes;
    let bounds = Bounds {
        bytes: one * 7 / 2,
        // Nothing is put together.
        added: usize::try_from(one).unwrap(),
        ..BOUNDS
    };
    for seed in 2..9 {
        // The first one is in use all the time.
        for (place, seed) in [1, seed].into_iter().enumerate() {
            let store = FunctionStore::bounded(&folder(cache.path()), bounds);
            let done = compiled(store, &component(seed, 5));
            assert!(place > 0 || done.is_mostly_kept(), "{seed}: {done:?}");
            age(cache.path());
        }
        let kept = packs(cache.path());
        let bytes: u64 = kept.iter().map(|pack| pack.bytes).sum();
        assert!(bytes <= bounds.bytes, "{bytes} bytes in {}", kept.len());
    }
    assert!(packs(cache.path()).len() >= 3);
    let bounds = Bounds { packs: 2, ..bounds };
    let store = FunctionStore::bounded(&folder(cache.path()), bounds);
    compiled(store, &component(10, 5));
    assert_eq!(packs(cache.path()).len(), 2, "each is an open file");
}

#[test]
fn one_compilation_adds_no_more_than_its_share() {
    let cache = tempfile::tempdir().unwrap();
    let bounds = Bounds {
        added: 2_000,
        ..BOUNDS
    };
    let bytes = component(1, 5);
    let done = compiled(
        FunctionStore::bounded(&folder(cache.path()), bounds),
        &bytes,
    );
    assert!(done.code == compiled_without(&bytes));
    let again = compiled(
        FunctionStore::bounded(&folder(cache.path()), bounds),
        &bytes,
    );
    assert!(again.hits > 0 && again.misses > 0, "{again:?}");
}

#[test]
fn what_a_killed_compiler_left_goes_and_what_another_one_writes_stays() {
    let cache = tempfile::tempdir().unwrap();
    compiled_in(cache.path(), &component(1, 5));
    let pack = packs(cache.path()).remove(0).path;
    let (left, written) = (pack.with_file_name("a.part"), pack.with_file_name("b.part"));
    let file = std::fs::File::create(&left).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    std::fs::write(&written, "x").unwrap();
    compiled_in(cache.path(), &component(1, 6));
    assert!(!left.exists() && written.exists());
}

#[test]
fn a_cache_that_cannot_be_written_to_costs_time_and_nothing_else() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(FunctionStore::beside(&file.path().join("cache")).is_err());
    let store = Arc::new(store_in(file.path()));
    let engine = new_compiler(None, store.clone()).unwrap();
    store.serve(&engine);
    let bytes = component(1, 5);
    let component = Component::new(&engine, &bytes).unwrap();
    assert!(component.serialize().unwrap() == compiled_without(&bytes));
    assert!(store.save().is_err());
}
