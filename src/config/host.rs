//! The files of hosts, taken as they are: `{"mcpServers": {…}}` and its kin become our shape.
//!
//! Names become keys by slug; members that are not ours are tolerated and named in a note, never their values
//! (I-34). Deliberately does not expand anything. Called by `load`.

use std::collections::BTreeMap;

use data_encoding::BASE32_NOPAD;
use sha2::{Digest as _, Sha256};

use crate::ident::ServerKey;

use super::address;
use super::tree::{Entry, Node, Pos, Value};
use crate::shown::shown_str as shown;

/// What a host's file says of a server beyond our shape.
pub(super) struct Guest {
    /// Its name there, when that is not its key.
    pub title: Option<String>,
    /// Why it cannot be reached as it is described there: the member that says so, where that is, and the reason.
    pub trouble: Option<(String, Pos, String)>,
}

/// A host's file in our shape.
pub(super) struct Adopted {
    pub node: Node,
    pub guests: BTreeMap<String, Guest>,
    pub notes: Vec<(Pos, String)>,
}

/// Members that hold the servers, for every host that keeps them in a map.
const MAPS: [&str; 2] = ["mcpServers", "context_servers"];

/// Members that name the address of a remote server, the most telling first.
const ADDRESSES: [&str; 4] = ["httpUrl", "serverUrl", "url", "uri"];

/// The member that holds the servers, when `root` is a host's file.
///
/// VS Code calls it `servers`, as we do: there the kind of each server, which our shape does not have, or the
/// prompts for inputs, or the name of the file tell.
pub(crate) fn servers_member(root: &Node, file_name: &str) -> Option<&'static str> {
    if let Some(member) = MAPS.iter().find(|member| root.get(member).is_some()) {
        return Some(member);
    }
    let servers = root.get("servers")?;
    let theirs = root.get("inputs").is_some()
        || file_name == "mcp.json"
        || servers.entries().iter().any(|server| server.node.get("type").is_some());
    theirs.then_some("servers")
}

/// Brings a host's file into our shape.
pub(super) fn adopt(root: Node, member: &str) -> Adopted {
    let mut notes = Vec::new();
    let mut unread = Vec::new();
    let mut servers = Node::new(root.at, Value::Table(Vec::new()));
    if let Value::Table(entries) = root.value {
        for entry in entries {
            if entry.name == member {
                servers = entry.node;
            } else {
                unread.push(entry.name);
            }
        }
    }
    if !unread.is_empty() {
        notes.push((Pos::default(), format!("is a host's file: only `{member}` is read, not {}", listed(&unread))));
    }
    let at = servers.at;
    let mut guests = BTreeMap::new();
    // When it is not a map, the walk over the shape says so.
    if let Value::Table(entries) = &mut servers.value {
        let keys = keys(entries.iter().map(|entry| entry.name.as_str()));
        let named = std::mem::take(entries).into_iter().zip(keys);
        for (entry, key) in named {
            if let Some((entry, guest)) = server(entry, key, &mut notes) {
                guests.insert(entry.name.clone(), guest);
                entries.push(entry);
            }
        }
    }
    let root = Value::Table(vec![Entry { name: "servers".to_owned(), at, node: servers }]);
    Adopted { node: Node::new(at, root), guests, notes }
}

/// One server in our shape; `None` when it is this gateway itself.
fn server(entry: Entry, key: String, notes: &mut Vec<(Pos, String)>) -> Option<(Entry, Guest)> {
    let (at, title) = (entry.at, entry.name);
    if is_ourselves(&entry.node) {
        notes.push((at, format!("`{}` is this gateway itself and is left out", shown(&title))));
        return None;
    }
    let mut guest = Guest { title: None, trouble: None };
    let mut found = Found::default();
    let mut node = entry.node;
    if let Value::Table(members) = &mut node.value {
        for member in std::mem::take(members) {
            found.take(member);
        }
        found.settle(&mut guest);
        *members = found.kept;
    }
    if !found.unread.is_empty() {
        notes.push((at, format!("`{}`: not read: {}", shown(&title), listed(&found.unread))));
    }
    for header in found.ours {
        notes.push((at, format!("`{}`: the header `{}` is made by the gateway itself", shown(&title), shown(&header))));
    }
    if title != key {
        guest.title = Some(title);
    }
    let entry = Entry { name: key, at, node };
    Some((entry, guest))
}

/// What a host's file says of one server.
#[derive(Default)]
struct Found {
    /// The members of our shape.
    kept: Vec<Entry>,
    /// Its address, by any of its names.
    address: Option<Entry>,
    /// Its transport, by any of its names.
    transport: Option<(Entry, String)>,
    /// Members that mean nothing to us.
    unread: Vec<String>,
    /// Headers that are not the operator's to set.
    ours: Vec<String>,
}

impl Found {
    /// Takes one member over.
    fn take(&mut self, mut member: Entry) {
        if matches!(member.node.value, Value::Other("null")) {
            return;
        }
        match member.name.as_str() {
            "command" | "cwd" => self.kept.push(member),
            "args" => {
                if let Value::List(items) = &mut member.node.value {
                    items.iter_mut().for_each(scalar_to_text);
                }
                self.kept.push(member);
            }
            "env" | "headers" => {
                if let Value::Table(texts) = &mut member.node.value {
                    texts.iter_mut().for_each(|text| scalar_to_text(&mut text.node));
                    if member.name == "headers" {
                        // Hosts' files often say what every client sends anyway.
                        let (ours, theirs) =
                            std::mem::take(texts).into_iter().partition(|text| address::is_ours(&text.name));
                        *texts = theirs;
                        let ours: Vec<Entry> = ours;
                        self.ours.extend(ours.into_iter().map(|text| text.name));
                    }
                }
                self.kept.push(member);
            }
            "disabled" | "enabled" => {
                if let Value::Bool(truth) = member.node.value {
                    member.node.value = Value::Bool(truth == (member.name == "enabled"));
                }
                member.name = "enabled".to_owned();
                let off = matches!(member.node.value, Value::Bool(false));
                // Said both ways, off wins.
                match self.kept.iter_mut().find(|entry| entry.name == "enabled") {
                    Some(before) if off => *before = member,
                    Some(_) => {}
                    None => self.kept.push(member),
                }
            }
            "type" | "transport" => match member.node.as_text().map(str::to_ascii_lowercase) {
                Some(word) => self.transport = Some((member, word)),
                None => self.unread.push(member.name),
            },
            name if ADDRESSES.contains(&name) => {
                let rank = |name: &str| ADDRESSES.iter().position(|known| *known == name);
                if let Some(other) = self.address.take_if(|known| rank(&known.name) <= rank(&member.name)) {
                    self.unread.push(member.name);
                    self.address = Some(other);
                } else if let Some(other) = self.address.replace(member) {
                    self.unread.push(other.name);
                }
            }
            _ => self.unread.push(member.name),
        }
    }

    /// Decides between program and address when all members are known.
    fn settle(&mut self, guest: &mut Guest) {
        let has_command = self.kept.iter().any(|entry| entry.name == "command");
        let remote = match (&self.transport, &self.address, has_command) {
            (_, None, _) => false,
            (_, Some(_), false) => true,
            (Some((_, word)), Some(_), true) => word != "stdio" && word != "local",
            (None, Some(_), true) => false,
        };
        let strange: &[&str] = if remote { &["command", "args", "env", "cwd"] } else { &["headers"] };
        let (strange, kept) =
            std::mem::take(&mut self.kept).into_iter().partition(|entry| strange.contains(&entry.name.as_str()));
        self.kept = kept;
        let strange: Vec<Entry> = strange;
        self.unread.extend(strange.into_iter().map(|entry| entry.name));
        let Some(mut address) = self.address.take() else { return };
        if !remote {
            self.unread.push(address.name);
            return;
        }
        match self.transport.take() {
            Some((mut member, word)) if word == "sse" => {
                member.name = "transport".to_owned();
                member.node.value = Value::Text(word);
                self.kept.push(member);
            }
            Some((member, word)) if !STREAMABLE.contains(&word.as_str()) => {
                let message = format!("the transport `{}` is not known; `http` and `sse` are", shown(&word));
                guest.trouble = Some((member.name, member.at, message));
            }
            Some(_) | None => {}
        }
        address.name = "url".to_owned();
        self.kept.push(address);
    }
}

/// What hosts call Streamable HTTP.
pub(crate) const STREAMABLE: [&str; 6] =
    ["http", "streamable-http", "streamablehttp", "streamable_http", "remote", "url"];

/// A host's file may hold the one entry that starts us: starting it would start it again, without end.
fn is_ourselves(server: &Node) -> bool {
    let Some(command) = server.get("command").and_then(Node::as_text) else {
        return false;
    };
    let Some(Value::List(args)) = server.get("args").map(|node| &node.value) else {
        return false;
    };
    ours(command, args.first().and_then(Node::as_text))
}

/// Whether this program with this first argument is the gateway itself.
pub(crate) fn ours(command: &str, first: Option<&str>) -> bool {
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    matches!(name, "onegate" | "onegate.exe") && matches!(first, Some("run" | "serve"))
}

/// Numbers and booleans are taken as the text that they are written as.
fn scalar_to_text(node: &mut Node) {
    let text = match &node.value {
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Text(_) | Value::List(_) | Value::Table(_) | Value::Other(_) => return,
    };
    node.value = Value::Text(text);
}

fn listed(names: &[String]) -> String {
    const MOST: usize = 6;
    let mut text = names.iter().take(MOST).map(|name| format!("`{}`", shown(name))).collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text.push_str(&format!(" and {} more", names.len() - MOST));
    }
    text
}

/// The keys for these names. Where several come to the same key, the one that is written so keeps it; the others
/// get a suffix made of their own name, so that the order in the file does not matter.
pub(crate) fn keys<'n>(names: impl Iterator<Item = &'n str> + Clone) -> Vec<String> {
    let mut claims: BTreeMap<String, usize> = BTreeMap::new();
    for name in names.clone() {
        *claims.entry(slug(name)).or_default() += 1;
    }
    names
        .map(|name| {
            let slug = slug(name);
            let alone = claims.get(&slug).copied().unwrap_or(0) <= 1;
            if (alone || slug == name) && slug != ServerKey::RESERVED {
                return slug;
            }
            const STEM: usize = ServerKey::MAX_LEN - 5;
            let stem: String = slug.chars().take(STEM).collect();
            let hash = BASE32_NOPAD.encode(&Sha256::digest(name.as_bytes()));
            let hash = hash.get(..4).unwrap_or_default().to_ascii_lowercase();
            format!("{}-{hash}", stem.trim_end_matches('-'))
        })
        .collect()
}

/// `name` in the alphabet of keys.
fn slug(name: &str) -> String {
    let lowered: String = name
        .chars()
        .map(|c| match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => c,
            _ => '-',
        })
        .collect();
    let trimmed = lowered.trim_matches('-');
    let lettered = if trimmed.starts_with(|c: char| c.is_ascii_lowercase()) {
        trimmed.to_owned()
    } else if trimmed.is_empty() {
        "server".to_owned()
    } else {
        format!("s{trimmed}")
    };
    let short: String = lettered.chars().take(ServerKey::MAX_LEN).collect();
    short.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::jsonc;
    use proptest::prelude::*;

    #[test]
    fn names_become_keys_by_slug() {
        for (name, key) in [
            ("files", "files"),
            ("My Files", "my-files"),
            ("@scope/server.files", "scope-server-fil"),
            ("123", "s123"),
            ("ä", "server"),
            ("", "server"),
            ("a_b__c", "a-b--c"),
        ] {
            assert_eq!(slug(name), key, "{name}");
        }
    }

    #[test]
    fn clashes_get_a_suffix_whatever_the_order() {
        let forth = keys(["a.b", "a-b", "A B"].into_iter());
        let mut back = keys(["A B", "a-b", "a.b"].into_iter());
        back.reverse();
        assert_eq!(forth, back);
        assert_eq!(forth[1], "a-b");
        assert!(forth[0].starts_with("a-b-") && forth[0].len() == 8, "{forth:?}");
        assert_ne!(forth[0], forth[2]);
        assert_ne!(keys(["onegate"].into_iter())[0], "onegate");
    }

    #[test]
    fn the_gateway_does_not_start_itself() {
        let root = jsonc::parse(
            r#"{"mcpServers": {"og": {"command": "/usr/bin/onegate", "args": ["run"]},
                               "x": {"command": "onegate", "args": ["demo-server", "clock"]}}}"#,
        )
        .unwrap();
        let adopted = adopt(root, "mcpServers");
        let keys: Vec<_> = adopted.guests.keys().collect();
        assert_eq!(keys, ["x"]);
        assert!(adopted.notes[0].1.contains("`og` is this gateway itself"));
    }

    #[test]
    fn vs_code_is_told_from_our_own_shape() {
        let member = |text, name| servers_member(&jsonc::parse(text).unwrap(), name);
        let ours = r#"{"servers": {"a": {"command": "x"}}}"#;
        let theirs = r#"{"servers": {"a": {"type": "stdio", "command": "x"}}}"#;
        assert_eq!(member(ours, "onegate.json"), None);
        assert_eq!(member(ours, "mcp.json"), Some("servers"));
        assert_eq!(member(theirs, "onegate.json"), Some("servers"));
        assert_eq!(member(r#"{"inputs": [], "servers": {}}"#, "x.json"), Some("servers"));
        assert_eq!(member(r#"{"mcpServers": {}}"#, "x.json"), Some("mcpServers"));
    }

    proptest! {
        #[test]
        fn every_name_becomes_a_key(names in proptest::collection::btree_set(".{0,20}", 1..6)) {
            let keys = keys(names.iter().map(String::as_str));
            for key in &keys {
                prop_assert!(ServerKey::new(key).is_ok(), "{}", key);
            }
        }
    }
}
