//! Makes plugins that call every function that the host links, WASI's among them, with arguments at
//! their ends or without end. Nothing here names one: they are read from the WIT files that the
//! linker is made of.
//!
//! `linked extremes|without-end WIT-OF-WASI OUR-WIT` writes each to standard output, after its
//! length.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::path::Path;

use anyhow::{Context, bail};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, FlatTypes, WasmSignature, WasmType};
use wit_parser::{
    Function, Handle, InterfaceId, Resolve, Type, TypeDefKind, TypeId, WorldId, WorldItem,
};

/// The worlds whose imports the host links.
const WORLDS: [&str; 3] = [
    "wasi:cli/imports",
    "wasi:http/imports",
    "shardmill:processor/plugin",
];
const PROCESSOR: &str = "shardmill:processor/processor@0.1.0";
/// Where the host puts what does not fit into a result; zeros until then.
const ANSWER: u32 = 2_048;
/// How many functions deep a handle may need others to be made.
const DEPTH_MAX: u32 = 3;
/// The most values that a parameter comes to.
const FLAT_MAX: usize = 16;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [how, of_wasi, of_ours] = &args[..] else {
        bail!("how, the WIT of WASI, and ours")
    };
    let linked = Linked::read(of_wasi.as_ref(), of_ours.as_ref())?;
    for name in linked.functions.keys() {
        if how == "extremes" {
            for number in ENDS {
                write(&linked.plugin_calling(name, number, Often::Once)?)?;
            }
        } else {
            write(&linked.plugin_calling(name, LITTLE, Often::WithoutEnd)?)?;
        }
    }
    Ok(())
}

fn write(plugin: &[u8]) -> anyhow::Result<()> {
    let length = u32::try_from(plugin.len())?;
    stdout().write_all(&length.to_le_bytes())?;
    Ok(stdout().write_all(plugin)?)
}

/// What is put for each number of a call: a handle, an address, a length, a time.
#[derive(Clone, Copy)]
struct Number {
    short: &'static str,
    long: &'static str,
    float: &'static str,
}

/// In the memory, and the second case of a variant.
const LITTLE: Number = Number {
    short: "1",
    long: "1",
    float: "1",
};
const ENDS: [Number; 4] = [
    Number {
        short: "0",
        long: "0",
        float: "-0",
    },
    Number {
        short: "-1",
        long: "-1",
        float: "nan",
    },
    Number {
        short: "0x7fffffff",
        long: "0x7fffffffffffffff",
        float: "inf",
    },
    // As an address and a length it is in the memory.
    Number {
        short: "0x40000",
        long: "0x8000000000000000",
        float: "-0x1.fffffep127",
    },
];

impl Number {
    fn of(self, kind: WasmType) -> String {
        let kind = core(kind);
        let value = match kind {
            "i32" => self.short,
            "i64" => self.long,
            _ => self.float,
        };
        format!("({kind}.const {value})")
    }
}

fn core(kind: WasmType) -> &'static str {
    match kind {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Often {
    Once,
    WithoutEnd,
}

/// An interface with its version, and a function in it.
type Name = (String, String);

/// All that the host links.
struct Linked {
    resolve: Resolve,
    /// Imports all of it, and is a plugin.
    world: WorldId,
    functions: BTreeMap<Name, Function>,
    /// What makes a handle of each kind, if anything does without a batch's luck.
    makers: BTreeMap<TypeId, Name>,
}

impl Linked {
    fn read(of_wasi: &Path, of_ours: &Path) -> anyhow::Result<Self> {
        let (mut resolve, mut ours) = (Resolve::default(), Resolve::default());
        resolve.push_dir(of_wasi)?;
        ours.push_dir(of_ours)?;
        resolve.merge(ours)?;
        let interfaces = imported(&resolve);
        let mut all = "package attack:linked;\nworld linked {\n".to_owned();
        for &interface in &interfaces {
            let name = resolve.id_of(interface).context("a name")?;
            writeln!(all, "import {name};")?;
        }
        writeln!(all, "export {PROCESSOR};\n}}")?;
        let package = resolve.push_str("linked.wit", &all)?;
        let world = resolve.select_world(&[package], None)?;
        let mut linked = Self {
            resolve,
            world,
            functions: BTreeMap::new(),
            makers: BTreeMap::new(),
        };
        for interface in interfaces {
            linked.add(interface)?;
        }
        Ok(linked)
    }

    fn add(&mut self, interface: InterfaceId) -> anyhow::Result<()> {
        let of = self.resolve.id_of(interface).context("a name")?;
        for (name, function) in &self.resolve.interfaces[interface].functions {
            let name = (of.clone(), name.clone());
            if let Some(made) = self.made_by(function) {
                let maker = self.makers.entry(made).or_insert_with(|| name.clone());
                let known = self.functions.get(maker).unwrap_or(function);
                // The one that needs the least.
                if function.params.len() < known.params.len() {
                    *maker = name.clone();
                }
            }
            self.functions.insert(name, function.clone());
        }
        Ok(())
    }

    /// The handle that a function gives, at once or unless it fails.
    fn made_by(&self, function: &Function) -> Option<TypeId> {
        let given = function.result?;
        self.owned(&given)
            .or_else(|| self.owned(&self.unless_failed(&given)?))
    }

    fn unless_failed(&self, given: &Type) -> Option<Type> {
        let Type::Id(id) = given else { return None };
        match &self.resolve.types[self.origin(*id)].kind {
            TypeDefKind::Result(result) => result.ok,
            _ => None,
        }
    }

    fn owned(&self, given: &Type) -> Option<TypeId> {
        match self.handle(given)? {
            Handle::Own(resource) => Some(self.origin(resource)),
            Handle::Borrow(_) => None,
        }
    }

    fn handle(&self, of: &Type) -> Option<Handle> {
        let Type::Id(id) = of else { return None };
        match self.resolve.types[self.origin(*id)].kind {
            TypeDefKind::Handle(handle) => Some(handle),
            _ => None,
        }
    }

    /// The type that this is another name of.
    fn origin(&self, mut id: TypeId) -> TypeId {
        while let TypeDefKind::Type(Type::Id(other)) = self.resolve.types[id].kind {
            id = other;
        }
        id
    }

    /// A plugin that calls it with each batch.
    fn plugin_calling(&self, name: &Name, number: Number, often: Often) -> anyhow::Result<Vec<u8>> {
        let mut module = Module {
            linked: self,
            number,
            imports: BTreeMap::new(),
        };
        let call = module.call(name, DEPTH_MAX);
        let results = &self.signature(name).results;
        let call = call + &" (drop)".repeat(results.len());
        let process = match often {
            Often::Once => call,
            Often::WithoutEnd => {
                format!("(loop $again (global.set $next (i32.const 4096)) {call} (br $again))")
            }
        };
        let mut module = wat::parse_str(module.text(&process)?)?;
        embed_component_metadata(&mut module, &self.resolve, self.world, StringEncoding::UTF8)?;
        let mut encoder = ComponentEncoder::default();
        encoder.module(&module)?.encode()
    }

    fn signature(&self, name: &Name) -> WasmSignature {
        let function = &self.functions[name];
        self.resolve
            .wasm_signature(AbiVariant::GuestImport, function)
    }
}

/// The module of a plugin, as it grows.
struct Module<'a> {
    linked: &'a Linked,
    number: Number,
    /// The functions that it calls, numbered.
    imports: BTreeMap<Name, usize>,
}

impl Module<'_> {
    /// Leaves the results on the stack.
    fn call(&mut self, name: &Name, depth: u32) -> String {
        let linked = self.linked;
        let (function, signature) = (&linked.functions[name], linked.signature(name));
        let count = self.imports.len();
        let number = *self.imports.entry(name.clone()).or_insert(count);
        let mut arguments = String::new();
        if signature.indirect_params {
            arguments += &self.number.of(WasmType::Pointer);
        } else {
            for param in &function.params {
                arguments += &self.argument(&param.ty, depth);
            }
        }
        if signature.retptr {
            write!(arguments, "(i32.const {ANSWER})").unwrap();
        }
        format!("{arguments} (call $f{number})")
    }

    /// A handle that is one, if it can be made; else the number.
    fn argument(&mut self, of: &Type, depth: u32) -> String {
        let linked = self.linked;
        let Some(Handle::Own(resource) | Handle::Borrow(resource)) = linked.handle(of) else {
            return self.numbers(of);
        };
        match linked.makers.get(&linked.origin(resource)) {
            Some(maker) if depth > 0 => {
                // It is to do its work, so that the handle is one.
                let number = std::mem::replace(&mut self.number, ENDS[0]);
                let call = self.call(maker, depth - 1);
                self.number = number;
                if linked.signature(maker).retptr {
                    // Behind the byte that says whether it failed.
                    format!("{call} (i32.load (i32.const {}))", ANSWER + 4)
                } else {
                    call
                }
            }
            _ => self.number.of(WasmType::I32),
        }
    }

    fn numbers(&self, of: &Type) -> String {
        let mut storage = [WasmType::I32; FLAT_MAX];
        let mut flat = FlatTypes::new(&mut storage);
        self.linked.resolve.push_flat(of, &mut flat);
        let flat = flat.to_vec();
        flat.into_iter().map(|kind| self.number.of(kind)).collect()
    }

    fn text(&self, process: &str) -> anyhow::Result<String> {
        let mut text = "(module".to_owned();
        for (name, number) in &self.imports {
            let shape = shape(&self.linked.signature(name));
            let (interface, function) = name;
            writeln!(
                text,
                "(import {interface:?} {function:?} (func $f{number} {shape}))"
            )?;
        }
        text += MEMORY;
        for (name, body) in [("init", ""), ("process", process), ("close", "")] {
            let function = self.exported(name)?;
            let signature = self
                .linked
                .resolve
                .wasm_signature(AbiVariant::GuestExport, function);
            writeln!(
                text,
                "(func (export \"{PROCESSOR}#{name}\") {} {body} (i32.const 1024))",
                shape(&signature)
            )?;
        }
        Ok(text + ")")
    }

    fn exported(&self, name: &str) -> anyhow::Result<&Function> {
        let resolve = &self.linked.resolve;
        let mut exports = resolve.worlds[self.linked.world].exports.values();
        exports
            .find_map(|export| match export {
                WorldItem::Interface { id, .. } => resolve.interfaces[*id].functions.get(name),
                _ => None,
            })
            .context("an export of that name")
    }
}

/// A megabyte, given out from its beginning.
const MEMORY: &str = r#"
  (memory (export "memory") 16)
  (global $next (mut i32) (i32.const 4096))
  (func (export "cabi_realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $next) (i32.sub (local.get $align) (i32.const 1)))
      (i32.sub (i32.const 0) (local.get $align))))
    (global.set $next (i32.add (local.get $at) (local.get $size)))
    (loop $grow
      (if (i32.gt_u (global.get $next) (i32.mul (memory.size) (i32.const 65536))) (then
        (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
        (br $grow))))
    (local.get $at))
"#;

fn shape(signature: &WasmSignature) -> String {
    let mut shape = String::new();
    for (word, kinds) in [("param", &signature.params), ("result", &signature.results)] {
        for kind in kinds {
            write!(shape, "({word} {})", core(*kind)).unwrap();
        }
    }
    shape
}

/// What those worlds import, each once.
fn imported(resolve: &Resolve) -> Vec<InterfaceId> {
    let mut found = Vec::new();
    for (_, world) in &resolve.worlds {
        let name = resolve.id_of_name(world.package.unwrap(), &world.name);
        if !WORLDS.contains(&name.split('@').next().unwrap()) {
            continue;
        }
        for import in world.imports.values() {
            if let WorldItem::Interface { id, .. } = import
                && !found.contains(id)
            {
                found.push(*id);
            }
        }
    }
    found
}
