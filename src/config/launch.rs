//! How one child is started: references put in, paths resolved, the child's environment made (I-11).
//!
//! What is missing on this machine (a variable, a file, a command) disables this server alone; what is wrong in
//! the text is a fault of the file. Neither ever holds an expanded value (I-34). Called by `resolve`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::ident::Secret;

use super::check::join;
use super::ground::{Findings, Ground, Maker, names_a_secret};
use super::schema::Server;
use super::settings::Launch;
use crate::shown::shown_str as shown;

/// Makes the launch of the server at `path` (`servers.KEY`); `None` when the findings say why not.
pub(super) fn launch(server: &Server, path: &str, ground: &Ground<'_>, findings: &mut Findings) -> Option<Launch> {
    let mut maker = Maker::new(ground, findings);
    let command_path = join(path, "command");
    let command = server.command.as_deref()?;
    let program = maker.text(command, &command_path);

    let args_path = join(path, "args");
    let args: Vec<Option<String>> =
        server.args.iter().enumerate().map(|(index, arg)| maker.text(arg, &format!("{args_path}[{index}]"))).collect();

    let mut env = ground.inherited.clone();
    // What `pass_env` lets through may be a secret as well.
    let confided = env.iter().filter(|(name, _)| name.to_str().is_some_and(names_a_secret));
    maker.secrets.extend(confided.map(|(_, value)| value.clone()));
    let env_path = join(path, "env");
    for (name, value) in &server.env {
        if let Some(value) = maker.text(value, &join(&env_path, name)) {
            if names_a_secret(name) {
                maker.secrets.push(Secret::new(value.as_str()));
            }
            env.insert(name.into(), Secret::new(value));
        }
    }

    let cwd = maker.cwd(server, &join(path, "cwd"));
    let program = program.and_then(|program| {
        let folder = cwd.as_ref().ok()?.as_deref();
        maker.program(command, &program, &command_path, &env, folder)
    });
    if !maker.findings.is_clean() {
        return None;
    }
    Some(Launch {
        program: program?,
        command: command.to_owned(),
        args: args.into_iter().map(|arg| arg.map(Secret::new)).collect::<Option<_>>()?,
        env,
        cwd: cwd.ok()?,
        identity: identity(server),
        written: Secret::new(written(server)),
        secrets: maker.secrets,
    })
}

impl Maker<'_, '_> {
    /// The working folder; an error when the findings say why there is none.
    fn cwd(&mut self, server: &Server, path: &str) -> Result<Option<PathBuf>, ()> {
        let Some(written) = server.cwd.as_deref() else {
            return Ok(None);
        };
        let text = self.text(written, path).ok_or(())?;
        let folder = self.ground.environment.path(&text, self.origin(path).1);
        if folder.is_dir() {
            return Ok(Some(folder));
        }
        self.missing(path, format!("the folder `{}` is not there", shown(written)));
        Err(())
    }

    /// The program: a path against the file that says it, a name through the child's own `PATH`.
    fn program(
        &mut self,
        written: &str,
        command: &str,
        path: &str,
        env: &BTreeMap<OsString, Secret>,
        folder: Option<&Path>,
    ) -> Option<PathBuf> {
        let search = env.get(OsStr::new("PATH")).map(Secret::reveal);
        let folder = folder.unwrap_or(self.ground.cwd);
        let (found, remedy) = if command.contains('/') {
            let full = self.ground.environment.path(command, self.origin(path).1);
            let found = which::which_in(&full, None::<&OsStr>, folder);
            (found, "check the path, and that it may be executed")
        } else {
            let found = which::which_in(command, search, folder);
            (found, "install it, or write its full path")
        };
        if found.is_err() {
            let where_to = if command.contains('/') { "" } else { " in PATH" };
            self.missing(path, format!("the command `{}` is not found{where_to}; {remedy}", shown(written)));
        }
        found.ok()
    }
}

/// How it is launched, in one hash: as written, references unexpanded, so that no secret enters it and a changed
/// secret does not change it.
fn identity(server: &Server) -> String {
    let names: Vec<&str> = server.env.keys().map(String::as_str).collect();
    let described = serde_json::to_vec(&(&server.command, &server.args, &server.cwd, names)).unwrap_or_default();
    HEXLOWER.encode(&Sha256::digest(described))
}

/// The same in full, for the hash that pins are made of.
fn written(server: &Server) -> String {
    let names: Vec<&str> = server.env.keys().map(String::as_str).collect();
    let described = serde_json::json!({
        "transport": "stdio", "command": server.command, "args": server.args, "cwd": server.cwd, "env": names,
    });
    described.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(args: &[&str], env: &[(&str, &str)]) -> Server {
        Server {
            command: Some("npx".into()),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..Server::default()
        }
    }

    #[test]
    fn the_identity_is_of_what_is_written() {
        let one = identity(&server(&["-y", "${env:A}"], &[("T", "1")]));
        assert_eq!(one.len(), 64);
        assert_eq!(one, identity(&server(&["-y", "${env:A}"], &[("T", "2")])), "values are out");
        assert_ne!(one, identity(&server(&["-y", "x"], &[("T", "1")])));
        assert_ne!(one, identity(&server(&["-y", "${env:A}"], &[("U", "1")])));
        assert_ne!(identity(&server(&["a b"], &[])), identity(&server(&["a", "b"], &[])));
    }
}
