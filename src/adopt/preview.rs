//! What may be shown of a change: a diff without the secrets of the texts that it is of.
//!
//! Better a word too many hidden than one too few (I-34). Called by `install` and by `cli`.

use std::path::Path;

use crate::config::names_a_secret;
use crate::config::tree::{Node, Value as Read};

use super::hosts::{HOSTS, Syntax, Variables};
use super::secrets::{self, Instead};
use super::server::Origin;
use super::{fields, read};

/// A diff without the secrets of the texts that it is of (I-34).
pub fn without_secrets(diff: &str, texts: &[&str], syntax: Syntax) -> String {
    let mut hidden: Vec<String> = texts.iter().flat_map(|text| confidential(text, syntax)).collect();
    // One may be part of another.
    hidden.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    hidden.iter().fold(diff.to_owned(), |diff, secret| diff.replace(secret, "[secret]"))
}

/// All texts of a file that stand under a name of a secret or look like one, as they may be written there.
fn confidential(text: &str, syntax: Syntax) -> Vec<String> {
    fn walk(name: &str, node: &Node, found: &mut Vec<String>) {
        match &node.value {
            // References are none.
            Read::Text(text) if text.contains("${") || text.contains("{env:") || text.contains("{file:") => {}
            Read::Text(text) if secrets::is_secret(name, text) || (text.len() > 5 && names_a_secret(name)) => {
                found.push(text.clone());
                let quoted = serde_json::Value::from(text.as_str()).to_string();
                found.push(quoted.trim_matches('"').to_owned());
            }
            Read::List(items) => items.iter().for_each(|item| walk(name, item, found)),
            Read::Table(entries) => entries.iter().for_each(|entry| walk(&entry.name, &entry.node, found)),
            Read::Text(_) | Read::Integer(_) | Read::Float(_) | Read::Bool(_) | Read::Other(_) => {}
        }
    }
    let mut found = Vec::new();
    if let Ok(root) = read::parse(text, syntax) {
        walk("", &root, &mut found);
        // Arguments and addresses hold some too.
        let holders = HOSTS.iter().flat_map(|host| host.files).map(|file| file.servers.member());
        for holder in holders.filter_map(|name| root.get(name)) {
            for node in holder.entries().iter().map(|entry| &entry.node).chain(holder.items()) {
                let origin = Origin::default();
                let mut server = fields::server_in(Variables::Any, "", node, origin);
                let lifted = secrets::lift(&mut server, "x", Instead::Variable, Path::new("/"));
                found.extend(lifted.iter().map(|lifted| lifted.value.reveal().to_owned()));
            }
        }
    }
    // Shorter ones stand in every second word.
    found.retain(|secret| secret.len() >= 4);
    found
}
