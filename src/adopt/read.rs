//! Files of hosts → what they are, and the servers in them.
//!
//! Reads leniently: comments, trailing commas, a byte-order mark. Writes nothing. Called by `cli` for `import`, by
//! `install` and `doctor`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::config::tree::{self, Node, Value};
use crate::config::{jsonc, servers_member};
use crate::shown::shown_str as shown;

use super::bridge;
use super::fields;
use super::hosts::{HOSTS, Host, Scope, Servers, Syntax};
use super::place::{Ground, Platform};
use super::server::{Origin, Server};
use super::text::Text;

/// Largest file; some hosts keep much else beside their servers.
const LARGEST: u64 = 16 * 1024 * 1024;

/// Why a file gives no servers.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The system says so.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It is too large, not text, or not a file.
    #[error("{0}")]
    Odd(String),
    /// It is not of its format; the line is told where it is known.
    #[error("{}{message}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Broken {
        /// Where, from 1.
        line: Option<u32>,
        /// What is wrong; never a value of the file.
        message: String,
    },
}

/// What was found in one file.
pub struct Found {
    /// The file.
    pub file: PathBuf,
    /// The host that it is of, when that is known.
    pub host: Option<&'static Host>,
    /// For whom it counts, when that is known.
    pub scope: Option<Scope>,
    /// Its servers.
    pub servers: Vec<Server>,
    /// Our own entries, which are left out: their names.
    pub ourselves: Vec<String>,
    /// What these start: program and arguments.
    pub commands: Vec<Vec<String>>,
}

/// The bytes of a file, bounded.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let kind = std::fs::metadata(path)?;
    if !kind.is_file() {
        return Err(Unreadable::Odd("is not a regular file".to_owned()));
    }
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(LARGEST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST {
        return Err(Unreadable::Odd(format!("is larger than {} MiB", LARGEST / (1024 * 1024))));
    }
    Ok(content)
}

/// The text of a file.
pub(super) fn text(content: &[u8]) -> Result<&str, Unreadable> {
    std::str::from_utf8(content).map_err(|_| Unreadable::Odd("is not UTF-8".to_owned()))
}

/// Reads a text of this format, a byte-order mark before it aside; an empty one is an empty table.
pub(super) fn parse(text: &str, syntax: Syntax) -> Result<Node, Unreadable> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Ok(Node::new(tree::Pos::default(), Value::Table(Vec::new())));
    }
    let node = match syntax {
        Syntax::Json => jsonc::parse(text),
        Syntax::Toml => tree::toml(text),
        Syntax::Yaml => tree::yaml(text),
    };
    node.map_err(|broken| Unreadable::Broken {
        line: (broken.at.line > 0).then_some(broken.at.line),
        message: broken.message,
    })
}

/// What a file of this name is written in.
pub(super) fn syntax_of(path: &Path) -> Syntax {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => Syntax::Toml,
        Some("yaml" | "yml") => Syntax::Yaml,
        _ => Syntax::Json,
    }
}

/// All files of hosts that are on this machine, in the order of the table; what could not be read stands beside its path.
pub fn machine(ground: &Ground) -> Vec<(PathBuf, Result<Found, Unreadable>)> {
    HOSTS.iter().flat_map(|host| host_files(host, ground)).collect()
}

/// The files of one host that are there.
pub fn host_files(host: &'static Host, ground: &Ground) -> Vec<(PathBuf, Result<Found, Unreadable>)> {
    let mut found: Vec<(PathBuf, Result<Found, Unreadable>)> = Vec::new();
    for file in host.files {
        for path in ground.places(file) {
            // Continue reads all that lies in the folder of blocks.
            let beside = if matches!(file.servers, Servers::List(_)) && file.scope == Scope::Project {
                blocks(path.parent())
            } else {
                vec![path]
            };
            for path in beside {
                if std::fs::symlink_metadata(&path).is_ok() && found.iter().all(|(known, _)| *known != path) {
                    let read = self::file(&path, Some((host, file.scope, file.servers)));
                    found.push((path, read));
                }
            }
        }
    }
    found
}

/// The files of a folder of blocks, in the order of their names.
fn blocks(folder: Option<&Path>) -> Vec<PathBuf> {
    const MOST: usize = 100;
    let Some(Ok(entries)) = folder.map(std::fs::read_dir) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().take(MOST).map(|entry| entry.path()).collect();
    paths.retain(|path| matches!(path.extension().and_then(|e| e.to_str()), Some("yaml" | "yml" | "json")));
    paths.sort();
    paths
}

/// Reads one file, as that of a host or, without one, by what is in it.
pub fn file(path: &Path, of: Option<(&'static Host, Scope, Servers)>) -> Result<Found, Unreadable> {
    content(path, &bytes(path)?, of)
}

/// The same of what was read before.
pub(super) fn content(
    path: &Path,
    content: &[u8],
    of: Option<(&'static Host, Scope, Servers)>,
) -> Result<Found, Unreadable> {
    let root = parse(text(content)?, syntax_of(path))?;
    let host = of.map(|(host, _, _)| host);
    let scope = of.map(|(_, scope, _)| scope);
    let member = of.map(|(_, _, servers)| servers.member());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // What its host says, else what is in it: a file that was dropped there may be of another form.
    let member = member.filter(|member| root.get(member).is_some());
    let member = member.or_else(|| servers_member(&root, &name)).or_else(|| {
        let known = HOSTS.iter().flat_map(|host| host.files).map(|file| file.servers.member());
        known.into_iter().find(|member| host.is_none() && root.get(member).is_some())
    });
    let mut found =
        Found { file: path.to_owned(), host, scope, servers: Vec::new(), ourselves: Vec::new(), commands: Vec::new() };
    let title = host.map_or_else(|| shown(&name), |host| host.title.to_owned());
    let origin = Origin {
        host: title,
        file: path.to_owned(),
        scope,
        folder: of.and_then(|of| project_of(path, of)),
        ..Origin::default()
    };
    match member {
        Some(member) => found.take(root.get(member), &origin)?,
        None if host.is_none() => {
            return Err(Unreadable::Odd("holds no servers in a form that is known here".to_owned()));
        }
        None => {}
    }
    // Claude Code keeps the servers of single projects in the user's file.
    if host.is_some_and(|host| host.id == "claude-code") {
        for project in root.get("projects").map(Node::entries).unwrap_or_default() {
            let project_s = Some(project.name.clone());
            let folder = Some(PathBuf::from(&project.name));
            let origin = Origin { scope: Some(Scope::Project), project: project_s, folder, ..origin.clone() };
            found.take(project.node.get("mcpServers"), &origin)?;
        }
    }
    Ok(found)
}

/// The folder of the project whose file this is: what is left without the host's own names.
fn project_of(path: &Path, (host, scope, _): (&'static Host, Scope, Servers)) -> Option<PathBuf> {
    let file = host.file(scope).filter(|_| scope == Scope::Project)?;
    let path = std::path::absolute(path).ok()?;
    // A folder of blocks holds files of any name.
    let folder = path.parent()?;
    let within = file.schemes(Platform::of_process()).iter().filter_map(|scheme| Path::new(scheme).parent());
    let within = within.filter(|within| folder.ends_with(within)).max_by_key(|within| within.components().count())?;
    folder.ancestors().nth(within.components().count()).map(Path::to_owned)
}

impl Found {
    /// Takes the servers of a map or list.
    fn take(&mut self, servers: Option<&Node>, origin: &Origin) -> Result<(), Unreadable> {
        let Some(servers) = servers else { return Ok(()) };
        let named: Vec<(&str, u32, &Node)> = match &servers.value {
            Value::Table(entries) => {
                entries.iter().map(|entry| (entry.name.as_str(), entry.at.line, &entry.node)).collect()
            }
            Value::List(items) => items
                .iter()
                .map(|item| (item.get("name").and_then(Node::as_text).unwrap_or_default(), item.at.line, item))
                .collect(),
            Value::Other("null") => Vec::new(),
            Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::Other(_) => {
                let line = (servers.at.line > 0).then_some(servers.at.line);
                let message = format!("the servers are {}, not a table", servers.kind());
                return Err(Unreadable::Broken { line, message });
            }
        };
        for (name, line, node) in named {
            let origin = Origin { line: (line > 0).then_some(line), ..origin.clone() };
            match fields::server(name, node, origin, self.host) {
                Ok(mut server) => {
                    bridge::unwrap(&mut server);
                    // The host starts it in its project.
                    if let (Some(_), None, Some(folder)) = (&server.command, &server.cwd, &server.origin.folder) {
                        server.cwd = Some(Text::plain(&folder.to_string_lossy()));
                    }
                    self.servers.push(server);
                }
                Err(command) => {
                    self.ourselves.push(name.to_owned());
                    self.commands.push(command);
                }
            }
        }
        Ok(())
    }
}
