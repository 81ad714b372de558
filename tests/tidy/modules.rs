//! Modules of a package use each other one way. A module is a file; `docs/architecture.md` has the
//! rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::source::{Source, Use, parse};

/// A path within a package, without `crate`: a module, or an item in one.
type Name = Vec<String>;

/// The modules of one package, and which uses which.
pub(super) struct Modules {
    sources: BTreeMap<Name, Source>,
    /// What each module calls by a name of its own, from another module.
    imported: BTreeMap<Name, BTreeMap<String, Name>>,
}

/// How often a name may be passed on by a re-export before it counts as lost.
const REEXPORTS_MAX: usize = 10;

impl Modules {
    /// Reads the files below a package's `src`.
    pub(super) fn read(folder: &Path) -> Self {
        let mut texts = Vec::new();
        visit(folder, &mut Vec::new(), &mut texts);
        Self::of(texts)
    }

    /// `texts` by module; the root has no name.
    fn of(texts: Vec<(Name, String)>) -> Self {
        let mut sources: BTreeMap<Name, Source> = texts
            .into_iter()
            .map(|(name, text)| (name, parse(&text)))
            .collect();
        for test in tests_of(&sources) {
            sources.retain(|name, _| !name.starts_with(&test));
        }
        let mut modules = Self {
            sources,
            imported: BTreeMap::new(),
        };
        // A name may be made of another one: `use self::plan; use plan::Step;`.
        for _ in 0..2 {
            let imported =
                |(name, source): (&Name, &Source)| (name.clone(), modules.imports_of(name, source));
            modules.imported = modules.sources.iter().map(imported).collect();
        }
        modules
    }

    /// Each circle of modules, as `one -> another (what of it) -> one`.
    pub(super) fn cycles(&self) -> Vec<String> {
        let arrows: BTreeMap<&Name, BTreeMap<Name, String>> = self
            .sources
            .iter()
            .map(|(name, source)| (name, self.used_by(name, source)))
            .collect();
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for start in self.sources.keys() {
            if seen.contains(start) {
                continue;
            }
            let Some(cycle) = shortest_cycle(start, &arrows) else {
                continue;
            };
            seen.extend(cycle.iter().cloned());
            let steps = cycle.iter().zip(cycle.iter().skip(1).chain([start]));
            let steps = steps.map(|(from, to)| {
                format!("{} uses {} of {}", shown(from), arrows[from][to], shown(to))
            });
            cycles.push(steps.collect::<Vec<_>>().join(", "));
        }
        cycles
    }

    /// The modules that this one uses, each with a name that it uses of it.
    fn used_by(&self, module: &Name, source: &Source) -> BTreeMap<Name, String> {
        let imports = source
            .uses
            .iter()
            .filter(|one| !one.is_public)
            .map(|one| &one.path);
        let mut used = BTreeMap::new();
        for path in imports.chain(&source.paths) {
            let Some(whole) = self.absolute(module, path) else {
                continue;
            };
            let Some(target) = self.home_of(&whole) else {
                continue;
            };
            if target == *module || self.is_part_of(module, source, &target) {
                continue;
            }
            used.insert(target, whole.last().cloned().unwrap_or_default());
        }
        used
    }

    /// Whether the module lies below `above` and holds a part of what a type there can do.
    fn is_part_of(&self, module: &Name, source: &Source, above: &Name) -> bool {
        module.starts_with(above)
            && source
                .implements
                .iter()
                .any(|own| self.sources[above].types.contains(own))
    }

    fn imports_of(&self, module: &Name, source: &Source) -> BTreeMap<String, Name> {
        let known = |one: &Use| Some((one.called.clone(), self.absolute(module, &one.path)?));
        source.uses.iter().filter_map(known).collect()
    }

    /// A path as the module writes it, from the root on; `None` if it leads to another package.
    fn absolute(&self, module: &Name, path: &Name) -> Option<Name> {
        let (first, rest) = path.split_first()?;
        let from = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => {
                let above = path.iter().take_while(|part| *part == "super").count();
                let parent = module[..module.len().checked_sub(above)?].to_vec();
                return Some([parent, path[above..].to_vec()].concat());
            }
            _ => {
                let child = [module.clone(), vec![first.clone()]].concat();
                let is_child = self.sources.contains_key(&child);
                if is_child {
                    child
                } else {
                    self.imported.get(module)?.get(first)?.clone()
                }
            }
        };
        Some([from, rest.to_vec()].concat())
    }

    /// The module that defines what `path` names, wherever re-exports lead.
    fn home_of(&self, path: &Name) -> Option<Name> {
        let mut path = path.clone();
        for _ in 0..REEXPORTS_MAX {
            let length = (0..=path.len())
                .rev()
                .find(|length| self.sources.contains_key(&path[..*length]))?;
            let (module, rest) = path.split_at(length);
            let passed_on = rest
                .first()
                .and_then(|item| self.imported.get(module)?.get(item));
            match passed_on {
                Some(target) => path = [target.clone(), rest[1..].to_vec()].concat(),
                None => return Some(module.to_vec()),
            }
        }
        None
    }
}

fn visit(folder: &Path, above: &mut Name, texts: &mut Vec<(Name, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            above.push(stem);
            visit(&path, above, texts);
            above.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_root = above.is_empty() && (stem == "lib" || stem == "main");
            let own = if is_root { Vec::new() } else { vec![stem] };
            texts.push((
                [above.clone(), own].concat(),
                fs::read_to_string(&path).unwrap(),
            ));
        }
    }
}

/// Modules that are there for tests only.
fn tests_of(sources: &BTreeMap<Name, Source>) -> Vec<Name> {
    let below = |(name, source): (&Name, &Source)| {
        let tests = source
            .tests
            .iter()
            .map(|test| [name.clone(), vec![test.clone()]].concat());
        tests.collect::<Vec<_>>()
    };
    sources.iter().flat_map(below).collect()
}

/// The shortest way from `start` back to it.
fn shortest_cycle(
    start: &Name,
    arrows: &BTreeMap<&Name, BTreeMap<Name, String>>,
) -> Option<Vec<Name>> {
    let mut ways = vec![vec![start.clone()]];
    let mut reached = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in way
                .last()
                .and_then(|last| arrows.get(last))
                .into_iter()
                .flat_map(BTreeMap::keys)
            {
                if next == start {
                    return Some(way);
                }
                if reached.insert(next.clone()) {
                    longer.push([way.clone(), vec![next.clone()]].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

fn shown(module: &Name) -> String {
    if module.is_empty() {
        "the root".to_owned()
    } else {
        module.join("::")
    }
}

#[test]
fn modules_of_the_host_use_each_other_one_way() {
    let host = super::root().join("host");
    let mut found = Vec::new();
    let mut packages = 0;
    for package in fs::read_dir(host).unwrap() {
        let package = package.unwrap().path();
        let cycles = Modules::read(&package.join("src")).cycles();
        let name = package.file_name().unwrap().to_string_lossy().into_owned();
        found.extend(
            cycles
                .into_iter()
                .map(|cycle| format!("host/{name}: {cycle}")),
        );
        packages += 1;
    }
    assert!(packages >= super::MAY_USE.len());
    assert!(found.is_empty(), "{found:#?}");
}

/// A package of these files.
fn package(files: &[(&str, &str)]) -> Modules {
    let name = |path: &str| {
        path.split("::")
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    };
    Modules::of(
        files
            .iter()
            .map(|(path, text)| (name(path), (*text).to_owned()))
            .collect(),
    )
}

#[test]
fn a_circle_is_found_through_re_exports_and_bare_paths_and_named() {
    let through_a_re_export = package(&[
        ("", "pub mod plan; pub mod act; pub use plan::Step;"),
        ("plan", "use crate::act::run; pub struct Step;"),
        ("act", "use crate::Step; pub fn run() {}"),
    ]);
    assert_eq!(
        through_a_re_export.cycles(),
        ["act uses Step of plan, plan uses run of act"]
    );
    let child = ("plan::take", "use super::Step; pub fn take() {}");
    let through_a_child = package(&[
        ("", "mod plan;"),
        ("plan", "mod take; struct Step; fn f() { take::take() }"),
        child,
    ]);
    assert_eq!(
        through_a_child.cycles(),
        ["plan uses take of plan::take, plan::take uses Step of plan"]
    );
}

#[test]
fn declaring_re_exporting_tests_and_parts_of_a_type_make_no_circle() {
    let declares = ("plan", "mod take; pub use take::Take; pub struct Step;");
    let uses_its_parent = ("plan::take", "use super::Step; pub struct Take(Step);");
    assert!(
        package(&[("", "mod plan;"), declares, uses_its_parent])
            .cycles()
            .is_empty()
    );
    let calls_its_child = ("plan", "mod take; pub struct Step { own: take::Own }");
    let part = (
        "plan::take",
        "use super::Step; pub struct Own; impl Step { fn take(&self) {} }",
    );
    assert!(
        package(&[("", "mod plan;"), calls_its_child, part])
            .cycles()
            .is_empty()
    );
    let in_tests = (
        "plan",
        "mod take; fn f() { take::g() }\n#[cfg(test)]\nmod tests { use super::*; }",
    );
    let of_tests = (
        "plan::take",
        "fn g() {}\n#[cfg(test)]\nmod tests { use crate::plan::f; }",
    );
    assert!(
        package(&[("", "mod plan;"), in_tests, of_tests])
            .cycles()
            .is_empty()
    );
    let in_words = (
        "plan",
        "mod take; fn f() { take::g(\"crate::plan::f\") } // take::g",
    );
    let of_words = ("plan::take", "/// As [`crate::plan::f`].\nfn g() {}");
    assert!(
        package(&[("", "mod plan;"), in_words, of_words])
            .cycles()
            .is_empty()
    );
}
