//! What an instance of a component makes the host hold beside its linear memories and tables, which
//! the limiter counts while they grow: the engine keeps each core instance's globals, imports,
//! references to functions and segments outside of both, and a component may instantiate a module,
//! or another component, many times.

use wasmparser::{
    BinaryReaderError, ComponentAlias, ComponentExternalKind, ComponentInstance,
    ComponentOuterAliasKind, ComponentTypeRef, Element, ElementItems, Instance, Payload,
};

/// Bytes of a core instance without anything in it.
const INSTANCE_BYTES: u64 = 1 << 10;
/// Bytes of an instance of a component without anything in it: its table of handles, its flags.
const COMPONENT_BYTES: u64 = 256;
/// Bytes of a function that crosses the border of a component.
const CANONICAL_BYTES: u64 = 256;
/// Bytes of a global: as many as the largest value has.
const GLOBAL_BYTES: u64 = 16;
/// Bytes of an import; a function's or a global's takes the most.
const IMPORT_BYTES: u64 = 32;
/// Bytes of a function that others may refer to.
const REFERENCE_BYTES: u64 = 32;
/// Bytes of an element of a segment that is kept until it is dropped.
const ELEMENT_BYTES: u64 = 16;
/// Bytes of a segment, table, memory or tag, without what is in it.
const PART_BYTES: u64 = 64;

/// Adds up while the parts of a file come by.
pub(crate) struct Footprint {
    /// What is being read, the innermost last.
    open: Vec<Scope>,
    /// Of all modules so far.
    heaviest: u64,
    passes_components: bool,
}

/// A definition that has begun and not ended.
enum Scope {
    Module(ModuleParts),
    Component(Definitions),
}

#[derive(Default)]
struct ModuleParts {
    bytes: u64,
    functions: u64,
    /// Places where a function can be referred to.
    references: u64,
}

/// A component's definitions, by their index.
#[derive(Default)]
struct Definitions {
    weight: Weight,
    modules: Vec<Module>,
    components: Vec<Option<Weight>>,
}

/// Bytes of an instance of a module, or `None` if the module comes from elsewhere: it is one of
/// those in the file.
type Module = Option<u64>;

/// What an instance of a component comes to.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    bytes: u64,
    /// Core instances of modules that come from elsewhere.
    of_any_module: u64,
}

impl Footprint {
    pub(crate) fn new() -> Self {
        let open = vec![Scope::Component(Definitions::new())];
        Self {
            open,
            heaviest: 0,
            passes_components: false,
        }
    }

    /// Whether a component instantiates one that it was given, and so does not show how many there
    /// will be.
    pub(crate) fn passes_components(&self) -> bool {
        self.passes_components
    }

    /// Bytes of one instance of the whole, so far.
    pub(crate) fn bytes(&self) -> u64 {
        match self.open.first() {
            Some(Scope::Component(root)) => root.weight.total(self.heaviest),
            _ => 0,
        }
    }

    /// The next part of the file.
    pub(crate) fn take(&mut self, part: &Payload<'_>) -> Result<(), BinaryReaderError> {
        match part {
            Payload::ModuleSection { .. } => self.open.push(Scope::Module(ModuleParts::default())),
            Payload::ComponentSection { .. } => {
                self.open.push(Scope::Component(Definitions::new()));
            }
            Payload::End(_) => self.close(),
            part => match self.open.last_mut() {
                Some(Scope::Module(module)) => module.take(part)?,
                Some(Scope::Component(_)) => self.take_of_component(part)?,
                None => {}
            },
        }
        Ok(())
    }

    /// The component that ends here becomes a definition of the one around it.
    fn close(&mut self) {
        // The root stays.
        if self.open.len() < 2 {
            return;
        }
        let ended = self.open.pop();
        let Some(Scope::Component(around)) = self.open.last_mut() else {
            return;
        };
        match ended {
            Some(Scope::Module(module)) => {
                let bytes = module.bytes();
                self.heaviest = self.heaviest.max(bytes);
                around.modules.push(Some(bytes));
            }
            Some(Scope::Component(component)) => around.components.push(Some(component.weight)),
            None => {}
        }
    }

    fn take_of_component(&mut self, part: &Payload<'_>) -> Result<(), BinaryReaderError> {
        match part {
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    self.alias(&alias?);
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section.clone() {
                    if let ComponentInstance::Instantiate {
                        component_index, ..
                    } = instance?
                    {
                        self.instantiate_component(component_index);
                    }
                }
            }
            part => {
                if let Some(Scope::Component(definitions)) = self.open.last_mut() {
                    definitions.take(part)?;
                }
            }
        }
        Ok(())
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) {
        match *alias {
            ComponentAlias::Outer {
                kind: ComponentOuterAliasKind::CoreModule,
                count,
                index,
            } => {
                let module = self.outer(count).and_then(|outer| outer.module(index));
                self.innermost(|definitions| definitions.modules.push(module));
            }
            ComponentAlias::Outer {
                kind: ComponentOuterAliasKind::Component,
                count,
                index,
            } => {
                let component = self.outer(count).and_then(|outer| outer.component(index));
                self.innermost(|definitions| definitions.components.push(component));
            }
            ComponentAlias::InstanceExport { kind, .. } => {
                self.innermost(|definitions| definitions.define_from_elsewhere(kind));
            }
            _ => {}
        }
    }

    /// The component that encloses so many others.
    fn outer(&self, count: u32) -> Option<&Definitions> {
        let place = self.open.len().checked_sub(count as usize + 1)?;
        match self.open.get(place)? {
            Scope::Component(definitions) => Some(definitions),
            Scope::Module(_) => None,
        }
    }

    fn innermost(&mut self, change: impl FnOnce(&mut Definitions)) {
        if let Some(Scope::Component(definitions)) = self.open.last_mut() {
            change(definitions);
        }
    }

    fn instantiate_component(&mut self, index: u32) {
        let Some(Scope::Component(definitions)) = self.open.last_mut() else {
            return;
        };
        match definitions.component(index) {
            Some(component) => definitions.weight.add(component),
            None => self.passes_components = true,
        }
    }
}

impl ModuleParts {
    fn take(&mut self, part: &Payload<'_>) -> Result<(), BinaryReaderError> {
        match part {
            Payload::ImportSection(section) => {
                self.functions += u64::from(section.count());
                self.add(section.count(), IMPORT_BYTES);
            }
            Payload::FunctionSection(section) => self.functions += u64::from(section.count()),
            Payload::ExportSection(section) => self.references += u64::from(section.count()),
            Payload::GlobalSection(section) => {
                self.references += u64::from(section.count());
                self.add(section.count(), GLOBAL_BYTES);
            }
            Payload::TableSection(section) => {
                self.references += u64::from(section.count());
                self.add(section.count(), PART_BYTES);
            }
            Payload::MemorySection(section) => self.add(section.count(), PART_BYTES),
            Payload::TagSection(section) => self.add(section.count(), PART_BYTES),
            Payload::DataSection(section) => self.add(section.count(), PART_BYTES),
            Payload::ElementSection(section) => {
                self.add(section.count(), PART_BYTES);
                for segment in section.clone() {
                    let elements = elements_of(&segment?);
                    self.references += u64::from(elements);
                    self.add(elements, ELEMENT_BYTES);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, count: u32, bytes_each: u64) {
        let bytes = u64::from(count).saturating_mul(bytes_each);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Of one instance.
    fn bytes(&self) -> u64 {
        let referred_to = self.functions.min(self.references);
        INSTANCE_BYTES
            .saturating_add(self.bytes)
            .saturating_add(referred_to.saturating_mul(REFERENCE_BYTES))
    }
}

fn elements_of(segment: &Element<'_>) -> u32 {
    match &segment.items {
        ElementItems::Functions(items) => items.count(),
        ElementItems::Expressions(_, items) => items.count(),
    }
}

impl Definitions {
    fn new() -> Self {
        let weight = Weight {
            bytes: COMPONENT_BYTES,
            of_any_module: 0,
        };
        Self {
            weight,
            ..Self::default()
        }
    }

    fn take(&mut self, part: &Payload<'_>) -> Result<(), BinaryReaderError> {
        match part {
            Payload::InstanceSection(section) => {
                for instance in section.clone() {
                    if let Instance::Instantiate { module_index, .. } = instance? {
                        self.instantiate_module(module_index);
                    }
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                let bytes = u64::from(section.count()).saturating_mul(CANONICAL_BYTES);
                self.weight.add(Weight {
                    bytes,
                    of_any_module: 0,
                });
            }
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    self.import(import?.ty);
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let export = export?;
                    self.export(export.kind, export.index);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn instantiate_module(&mut self, index: u32) {
        let weight = match self.module(index) {
            Some(bytes) => Weight {
                bytes,
                of_any_module: 0,
            },
            None => Weight {
                bytes: 0,
                of_any_module: 1,
            },
        };
        self.weight.add(weight);
    }

    fn import(&mut self, import: ComponentTypeRef) {
        match import {
            ComponentTypeRef::Module(_) => {
                self.define_from_elsewhere(ComponentExternalKind::Module);
            }
            ComponentTypeRef::Component(_) => {
                self.define_from_elsewhere(ComponentExternalKind::Component);
            }
            _ => {}
        }
    }

    /// What is given by others is not known here.
    fn define_from_elsewhere(&mut self, kind: ComponentExternalKind) {
        match kind {
            ComponentExternalKind::Module => self.modules.push(None),
            ComponentExternalKind::Component => self.components.push(None),
            _ => {}
        }
    }

    /// What is exported has one more index.
    fn export(&mut self, kind: ComponentExternalKind, index: u32) {
        match kind {
            ComponentExternalKind::Module => self.modules.push(self.module(index)),
            ComponentExternalKind::Component => self.components.push(self.component(index)),
            _ => {}
        }
    }

    fn module(&self, index: u32) -> Module {
        self.modules.get(index as usize).copied().flatten()
    }

    fn component(&self, index: u32) -> Option<Weight> {
        self.components.get(index as usize).copied().flatten()
    }
}

impl Weight {
    fn add(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.of_any_module = self.of_any_module.saturating_add(more.of_any_module);
    }

    fn total(self, heaviest_module: u64) -> u64 {
        self.bytes
            .saturating_add(self.of_any_module.saturating_mul(heaviest_module))
    }
}
