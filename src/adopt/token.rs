//! The token of an installation: a file that its user alone can read proves who starts us, and our configuration holds its
//! hash. Both are edited here; the secret is shown nowhere.
//!
//! Knows neither the file of a host nor which configuration is ours: `cli` does. Called by `cli`; `install` and `undo`
//! remember it with the rest of an installation.

use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value, value};

use crate::ident::Secret;
use crate::whole;

use super::read::Unreadable;
use super::store::{self, NotWritten};
use super::{lines, own};

/// Below the state folder.
const FOLDER: &str = "tokens";

/// Whom an installation speaks for, and what proves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Who it is: `stdio:NAME`.
    pub name: String,
    /// The file with the token.
    pub file: PathBuf,
    /// The file of ours that has the hash.
    pub config: PathBuf,
    /// The hash, as it stands there.
    pub hash: String,
}

impl Named {
    /// Where the token of this name lies: each configuration has names of its own, and a folder for their tokens.
    pub fn place(state: &Path, config: &Path, name: &str) -> PathBuf {
        let hash = HEXLOWER.encode(&Sha256::digest(config.as_os_str().as_encoded_bytes()));
        state.join(FOLDER).join(hash.get(..16).unwrap_or_default()).join(name)
    }

    /// The token, where it is there.
    pub fn read(&self) -> Option<Secret> {
        std::fs::read_to_string(&self.file).ok().map(|text| Secret::new(text.trim()))
    }

    /// Writes the token: 0600, in a folder of 0700.
    pub fn write(&self, secret: &Secret) -> Result<(), NotWritten> {
        store::folders(self.file.parent().unwrap_or(Path::new("/")), 0o700)?;
        // Whatever its mode was, or wherever it pointed.
        Ok(whole::replace(&self.file, format!("{}\n", secret.reveal()).as_bytes(), 0o600)?)
    }

    /// Takes the token away, with the last one its folder.
    pub fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
        // Others lie there, or it is gone.
        let _ = self.file.parent().map(std::fs::remove_dir);
        Ok(())
    }
}

/// Puts a hash into the text of a configuration: in the place of an old one, else at the end of `auth.stdio`.
pub fn enter(text: &str, named: &Named, old: Option<&str>) -> Result<String, Unreadable> {
    let mut document = own::document(text)?;
    let first = document.is_empty() && document.trailing().as_str().is_none_or(str::is_empty);
    let is_new = !document.contains_key("auth");
    let auth = document.entry("auth").or_insert_with(|| {
        let mut auth = Table::new();
        auth.set_implicit(true);
        Item::Table(auth)
    });
    let inside_a_value = matches!(auth, Item::Value(_));
    let Some(auth) = auth.as_table_like_mut() else { return Err(odd("auth")) };
    let same = |entry: &&mut dyn TableLike| old.is_some() && hash_of(&**entry) == old;
    if let Some(hash) = entries(auth).into_iter().find(same).and_then(|entry| entry.get_mut("hash")) {
        *hash = value(&named.hash);
        return Ok(lines::keep(text, &document.to_string()));
    }
    let members = [("name", named.name.as_str()), ("hash", named.hash.as_str())];
    let inline = || members.iter().map(|(name, text)| (*name, Value::from(*text))).collect::<InlineTable>();
    let table = |prefix: &str| {
        let mut table: Table = members.iter().map(|(name, text)| (*name, value(*text))).collect();
        table.decor_mut().set_prefix(prefix);
        table
    };
    match auth.get_mut("stdio") {
        Some(Item::ArrayOfTables(tables)) => tables.push(table("\n")),
        Some(Item::Value(Value::Array(list))) => list.push(inline()),
        Some(_) => return Err(odd("auth.stdio")),
        None if inside_a_value => {
            auth.insert("stdio", value([inline()].into_iter().collect::<toml_edit::Array>()));
        }
        None => {
            let prefix = if first && is_new { "" } else { "\n" };
            auth.insert("stdio", Item::ArrayOfTables([table(prefix)].into_iter().collect::<ArrayOfTables>()));
        }
    }
    Ok(lines::keep(text, &document.to_string()))
}

/// Takes a hash out of the text of a configuration, with its entry; nothing where it is not in it.
pub fn leave(text: &str, hash: &str) -> Result<Option<String>, Unreadable> {
    let mut document: DocumentMut = own::document(text)?;
    let Some(auth) = document.get_mut("auth").and_then(Item::as_table_like_mut) else { return Ok(None) };
    let Some(at) = entries(auth).iter().position(|entry| hash_of(&**entry) == Some(hash)) else { return Ok(None) };
    let is_empty = match auth.get_mut("stdio") {
        Some(Item::ArrayOfTables(tables)) => {
            tables.remove(at);
            tables.is_empty()
        }
        Some(Item::Value(Value::Array(list))) => {
            list.remove(at);
            list.is_empty()
        }
        _ => false,
    };
    if is_empty {
        auth.remove("stdio");
    }
    if auth.is_empty() && document.get("auth").and_then(Item::as_table).is_some_and(Table::is_implicit) {
        document.remove("auth");
    }
    Ok(Some(lines::keep(text, &document.to_string())))
}

/// The entries of `auth.stdio`, however they are written.
fn entries(auth: &mut dyn TableLike) -> Vec<&mut dyn TableLike> {
    match auth.get_mut("stdio") {
        Some(Item::ArrayOfTables(tables)) => tables.iter_mut().map(|table| table as &mut dyn TableLike).collect(),
        Some(Item::Value(Value::Array(list))) => {
            let tables = list.iter_mut().map(Value::as_inline_table_mut);
            // What is no table would shift the others: then nothing is edited.
            tables
                .map(|table| table.map(|table| table as &mut dyn TableLike))
                .collect::<Option<_>>()
                .unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn hash_of(entry: &dyn TableLike) -> Option<&str> {
    entry.get("hash").and_then(Item::as_str)
}

fn odd(key: &str) -> Unreadable {
    Unreadable::Odd(format!("`{key}` is written so that nothing can be added to it"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn named(hash: &str) -> Named {
        Named { name: "laptop".to_owned(), file: "t".into(), config: "c".into(), hash: hash.to_owned() }
    }

    #[test]
    fn a_hash_goes_in_and_out_and_every_byte_is_as_before() {
        for (before, entry) in [
            ("", "[[auth.stdio]]\nname = \"laptop\"\nhash = \"sha256:1\"\n"),
            ("# mine\n[servers.a] # here\nurl = \"x\"\n", "\n[[auth.stdio]]\nname = \"laptop\"\nhash = \"sha256:1\"\n"),
            (
                "[auth]\r\nmode = \"keys\" # so\r\n",
                "\r\n[[auth.stdio]]\r\nname = \"laptop\"\r\nhash = \"sha256:1\"\r\n",
            ),
            (
                "[[auth.stdio]]\nname = \"a\"\nhash = \"b\"\n[pins]\n",
                "\n[[auth.stdio]]\nname = \"laptop\"\nhash = \"sha256:1\"\n",
            ),
            ("[auth]\nstdio = [{ name = \"a\", hash = \"b\" }]\n", ", { name = \"laptop\", hash = \"sha256:1\" }"),
        ] {
            let after = enter(before, &named("sha256:1"), None).unwrap();
            assert!(after.contains(entry) && after.len() == before.len() + entry.len(), "{after}");
            assert_eq!(leave(&after, "sha256:1").unwrap().as_deref(), Some(before));
            let again = enter(&after, &named("sha256:2"), Some("sha256:1")).unwrap();
            assert_eq!(again, after.replace("sha256:1", "sha256:2"), "in its place");
            assert_eq!(leave(&after, "sha256:2").unwrap(), None);
        }
        let inside = enter("auth = { mode = \"keys\" }\n", &named("sha256:1"), None).unwrap();
        let said = |text: &str| text.replace(' ', "");
        assert_eq!(said(&inside), "auth={mode=\"keys\",stdio=[{name=\"laptop\",hash=\"sha256:1\"}]}\n");
        assert_eq!(said(&leave(&inside, "sha256:1").unwrap().unwrap()), "auth={mode=\"keys\"}\n");
        for odd in ["auth = 1\n", "[auth]\nstdio = 1\n"] {
            assert!(enter(odd, &named("x"), None).is_err(), "{odd}");
        }
    }

    #[test]
    fn i_34_a_token_is_its_user_s_alone() {
        let root = tempfile::tempdir().unwrap();
        let file = Named::place(root.path(), Path::new("/etc/x.toml"), "laptop");
        let named = Named { file: file.clone(), ..named("x") };
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        named.write(&Secret::new("one")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        named.write(&Secret::new("two")).unwrap();
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        assert_eq!(named.read().unwrap().reveal(), "two");
        named.remove().and_then(|()| named.remove()).unwrap();
        assert!(named.read().is_none());
        assert!(!file.parent().unwrap().exists());
        for (config, name) in [("/etc/x.toml", "phone"), ("/etc/y.toml", "laptop")] {
            assert_ne!(Named::place(root.path(), Path::new(config), name), file);
        }
    }
}
