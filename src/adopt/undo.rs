//! The way back: our entry taken out of a host's file, and what `install` took out put in again.
//!
//! Plans alone, like `install`, whose plans it makes. Called by `cli`.

use std::path::{Path, PathBuf};

use super::edit::{self, NotEdited, Value};
use super::hosts::{Host, Scope};
use super::install::{Plan, Refused, Todo, is_ours, place};
use super::place::Ground;
use super::read;
use super::record::{Memory, hash};
use super::store::Seen;

/// Plans the way back: every byte as it was, when nobody else changed the file; else our entry alone is taken out.
pub fn uninstall(
    ground: &Ground,
    state: &Path,
    (host, scope): (&'static Host, Scope),
    name: &str,
) -> Result<Todo, Refused> {
    let (file, chosen) = place(ground, host, scope)?;
    // A newer place may have come since: where we were put is where we are.
    let remembers =
        |path: &PathBuf| Seen::or_gone(path).is_ok_and(|seen| Memory::of(state, &seen.path, name).is_there());
    let path = ground.places(file).into_iter().find(remembers).unwrap_or(chosen);
    let seen = Seen::or_gone(&path).map_err(|why| Refused::NotWritten { path: path.clone(), why })?;
    let file_at = seen.path.clone();
    let memory = Memory::of(state, &file_at, name);
    let remembered = memory.recall()?;
    let mut plan = Plan {
        host,
        scope,
        file: file_at.clone(),
        moved: Vec::new(),
        beside: Vec::new(),
        notes: Vec::new(),
        named: remembered.as_ref().and_then(|(record, _)| record.named.clone()),
        after: seen.content.clone(),
        seen,
        record: None,
        folders: Vec::new(),
        memory,
    };
    let Some(content) = plan.seen.content.clone() else {
        return match remembered {
            Some((record, _)) => {
                plan.folders = record.made_folders;
                plan.notes.push("the file is gone; what was remembered of it goes too".to_owned());
                Ok(Todo::Change(Box::new(plan)))
            }
            None => Ok(Todo::Nothing { file: file_at, why: "there is no such file".to_owned() }),
        };
    };
    if let Some((record, before)) = &remembered
        && record.after == hash(&content)
    {
        plan.after.clone_from(before);
        plan.folders.clone_from(&record.made_folders);
        plan.moved = record.replaced.iter().map(|(name, _)| name.clone()).collect();
        plan.notes.push("nobody else changed the file: it becomes what it was, to the byte".to_owned());
        return Ok(Todo::Change(Box::new(plan)));
    }
    let at = (file.syntax, file.servers);
    let refuse = |why: NotEdited| Refused::NotEdited { path: file_at.clone(), why, paste: None };
    let text = read::text(&content).map_err(|why| refuse(why.into()))?;
    let there = edit::servers(text, file.syntax, file.servers).map_err(refuse)?;
    let known = there.iter().find(|(known, _)| known == name).map(|(_, entry)| entry);
    let not_ours = |why: String| Refused::NotOurs { path: file_at.clone(), why };
    match (known, &remembered) {
        (None, None) => return Ok(Todo::Nothing { file: file_at, why: format!("there is no `{name}` in it") }),
        (Some(entry), Some((record, _))) if *entry != record.entry => {
            return Err(not_ours(format!(
                "`{name}` was changed since it was installed; take it out by hand, or install it anew"
            )));
        }
        (Some(entry), None) if !is_ours(entry) => {
            return Err(not_ours(format!("`{name}` is not this gateway")));
        }
        (Some(_) | None, _) => {}
    }
    let mut after = text.to_owned();
    let made_member = remembered.as_ref().is_some_and(|(record, _)| record.made_member && record.replaced.is_empty());
    if known.is_some() {
        after = edit::remove(&after, at, name, made_member).map_err(refuse)?;
        let word = if remembered.is_some() { "the file was changed since: " } else { "" };
        plan.notes.push(format!("{word}only our entry is taken out"));
    } else {
        plan.notes.push("our entry is gone already".to_owned());
    }
    for (other, value) in remembered.iter().flat_map(|(record, _)| &record.replaced) {
        let there_now = there.iter().any(|(known, _)| known == other);
        if !there_now {
            after = edit::put(&after, at, other, &Value::of_json(value), "").map_err(refuse)?;
            plan.moved.push(other.clone());
        }
    }
    plan.after = Some(after.into_bytes());
    Ok(Todo::Change(Box::new(plan)))
}
