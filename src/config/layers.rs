//! One layer on another: figment merges the values, and each value's origin is kept beside.
//!
//! defaults < files < `ONEGATE__SECTION__KEY` < flags. Deliberately checks nothing. Called by `load`.

use std::collections::HashMap;
use std::path::PathBuf;

use figment::value::{Dict, Map, Tag, Value as Merged};
use figment::{Figment, Metadata, Profile, Provider, providers::Serialized};

use super::check::{self, Shape};
use super::environment::Environment;
use super::fault::Place;
use super::references::Style;
use super::schema;
use super::tree::{Entry, Node, Pos, Value, toml};

/// The beginning of our variables.
pub(super) const VARIABLE: &str = "ONEGATE__";

/// A file, a variable or a flag.
pub(super) struct Layer {
    pub node: Node,
    /// Where its values are, but for the line.
    pub place: Place,
    /// Whose rules its references follow.
    pub style: Style,
    /// The folder that its relative paths start from.
    pub base: PathBuf,
    /// Whether it is the organisation's: it comes first, and what it says of policy can only be narrowed.
    pub organisation: bool,
}

impl Layer {
    /// The place of one of its nodes.
    pub(super) fn at(&self, at: Pos) -> Place {
        let known = self.place.file.is_some() && at.line > 0;
        Place { line: known.then_some(at.line), column: known.then_some(at.column), ..self.place.clone() }
    }
}

impl Provider for &Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.place.to_string())
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Profile::Default.collect(dict(self.node.entries())))
    }
}

fn dict(entries: &[Entry]) -> Dict {
    entries.iter().map(|entry| (entry.name.clone(), merged(&entry.node))).collect()
}

fn merged(node: &Node) -> Merged {
    match &node.value {
        Value::Text(text) => Merged::from(text.as_str()),
        Value::Integer(number) => Merged::from(*number),
        Value::Float(number) => Merged::from(*number),
        Value::Bool(truth) => Merged::from(*truth),
        Value::List(items) => Merged::from(items.iter().map(merged).collect::<Vec<_>>()),
        Value::Table(entries) => Merged::Dict(Tag::Default, dict(entries)),
        Value::Other(_) => Merged::from(""),
    }
}

/// Merges the layers, lowest first. They were checked, so only a slip of ours can fail here.
pub(super) fn merge(layers: &[Layer]) -> Result<schema::File, String> {
    let mut figment = Figment::from(Serialized::defaults(schema::File::default()));
    for layer in layers {
        figment = figment.merge(layer);
    }
    // Only the path: figment's own text quotes values (I-34).
    figment.extract().map_err(|error| error.path.join("."))
}

/// Lists that every layer adds to: nobody's rules take another's away.
const GATHERED: [&str; 2] = ["rule", "limit"];

/// Puts the rules and limits of lower layers before those of higher ones, so that all of them hold after the merge.
pub(super) fn gather(layers: &mut [Layer]) {
    for name in GATHERED {
        let mut before: Vec<Node> = Vec::new();
        for layer in layers.iter_mut() {
            let Value::Table(entries) = &mut layer.node.value else { continue };
            let policy = entries.iter_mut().find(|entry| entry.name == "policy");
            let Some(Value::Table(keys)) = policy.map(|entry| &mut entry.node.value) else { continue };
            let Some(list) = keys.iter_mut().find(|entry| entry.name == name) else { continue };
            if let Value::List(items) = &mut list.node.value {
                before.append(items);
                items.clone_from(&before);
            }
        }
    }
}

/// Who said what last, by path.
#[derive(Default)]
pub(super) struct Origins(HashMap<String, (usize, Pos)>);

impl Origins {
    pub(super) fn of(layers: &[Layer]) -> Self {
        let mut origins = Self::default();
        for (index, layer) in layers.iter().enumerate() {
            origins.table(index, layer.node.entries(), "");
        }
        origins
    }

    fn table(&mut self, layer: usize, entries: &[Entry], path: &str) {
        for entry in entries {
            let path = check::join(path, &entry.name);
            match &entry.node.value {
                Value::Table(members) => self.table(layer, members, &path),
                Value::List(items) => {
                    let gathered = GATHERED.iter().any(|name| path.strip_prefix("policy.") == Some(*name));
                    for (index, item) in items.iter().enumerate() {
                        let path = format!("{path}[{index}]");
                        if gathered && self.0.contains_key(&path) {
                            // A lower layer's own, repeated.
                            continue;
                        }
                        self.0.insert(path.clone(), (layer, item.at));
                        self.table(layer, item.entries(), &path);
                    }
                }
                Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::Other(_) => {}
            }
            // A table is where it was said first, a value where it was said last.
            let at = (layer, entry.at);
            if matches!(entry.node.value, Value::Table(_)) {
                self.0.entry(path).or_insert(at);
            } else {
                self.0.insert(path, at);
            }
        }
    }

    /// The layer that said `path` last, and where.
    pub(super) fn get<'l>(&self, path: &str, layers: &'l [Layer]) -> Option<(&'l Layer, Pos)> {
        let (layer, at) = self.0.get(path)?;
        Some((layers.get(*layer)?, *at))
    }

    /// Which layer said `path` last.
    pub(super) fn layer(&self, path: &str) -> Option<usize> {
        self.0.get(path).map(|(layer, _)| *layer)
    }

    /// The place of `path`, or of the nearest thing around it that somebody wrote.
    pub(super) fn place(&self, path: &str, layers: &[Layer]) -> Place {
        let mut path = path;
        loop {
            if let Some((layer, at)) = self.get(path, layers) {
                return layer.at(at);
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = path.get(..end).unwrap_or_default(),
                None => return Place::default(),
            }
        }
    }
}

/// The layers of `ONEGATE__SECTION__KEY`, each variable one.
pub(super) fn variables(environment: &Environment, cwd: &std::path::Path) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (name, value) in environment.iter() {
        let Some(path) = name.to_str().and_then(|name| name.strip_prefix(VARIABLE)) else {
            continue;
        };
        layers.push(Layer {
            node: place_at(path, &value.to_string_lossy()),
            place: Place { variable: Some(format!("{VARIABLE}{path}")), ..Place::default() },
            style: Style::Own,
            base: cwd.to_owned(),
            organisation: false,
        });
    }
    layers
}

/// The layer of one flag that stands for a key.
pub(super) fn flag(name: &str, path: &[&str], value: &str, cwd: &std::path::Path) -> Layer {
    let leaf = Node::new(Pos::default(), Value::Text(value.to_owned()));
    Layer {
        node: nest(path.iter().map(|name| (*name).to_owned()), leaf),
        place: Place { flag: Some(name.to_owned()), ..Place::default() },
        style: Style::Own,
        base: cwd.to_owned(),
        organisation: false,
    }
}

fn nest(path: impl DoubleEndedIterator<Item = String>, leaf: Node) -> Node {
    path.rev().fold(leaf, |node, name| {
        let entry = Entry { name, at: Pos::default(), node };
        Node::new(Pos::default(), Value::Table(vec![entry]))
    })
}

/// Follows the shape along `SECTION__KEY`: variables of a shell are in capitals and have no hyphens.
fn place_at(path: &str, text: &str) -> Node {
    let mut shape = Some(&schema::SHAPE);
    let mut names = Vec::new();
    let mut rest = Some(path);
    while let Some(part) = rest {
        if matches!(shape, Some(Shape::Named(_))) {
            // Names of variables keep their case, and may hold `__`.
            names.push(part.to_owned());
            shape = Some(&Shape::Text(check::any));
            break;
        }
        let (first, after) = match part.split_once("__") {
            Some((first, after)) => (first, Some(after)),
            None => (part, None),
        };
        let lowered = first.to_ascii_lowercase();
        match shape {
            Some(Shape::Members { each, .. }) => {
                names.push(lowered.replace('_', "-"));
                shape = Some(each);
            }
            Some(Shape::Table(keys)) => {
                shape = check::find(keys, &lowered);
                names.push(lowered);
            }
            _ => {
                names.push(lowered);
                shape = None;
            }
        }
        rest = after;
    }
    nest(names.into_iter(), leaf(shape, text))
}

/// The value in `text`, by what may stand there; what does not fit stays a text, for the check to refuse.
fn leaf(shape: Option<&Shape>, text: &str) -> Node {
    let written = || {
        let root = toml(&format!("value = {text}")).ok()?;
        root.get("value").cloned()
    };
    let value = match shape {
        Some(Shape::Bool | Shape::Count { .. } | Shape::Scalar | Shape::Scalars | Shape::Json | Shape::Either(..)) => {
            written()
        }
        Some(Shape::Texts(_) | Shape::Named(_) | Shape::Members { .. } | Shape::Tables(_) | Shape::Table(_)) => {
            written()
        }
        Some(Shape::Text(_) | Shape::Period { .. } | Shape::Word { .. }) | None => None,
    };
    value.unwrap_or_else(|| Node::new(Pos::default(), Value::Text(text.to_owned())))
}
