//! How one server is started: references put in, paths resolved, the child's environment made (I-11).
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
use super::environment::Environment;
use super::fault::{Fault, Note};
use super::layers::{Layer, Origins};
use super::references::{Style, Trouble, expand};
use super::schema::Server;
use super::settings::Launch;
use crate::shown::shown_str as shown;

/// What starting servers needs to know, the same for all of them.
pub(super) struct Ground<'a> {
    pub environment: &'a Environment,
    /// What every child sees.
    pub inherited: BTreeMap<OsString, Secret>,
    pub cwd: &'a Path,
    pub layers: &'a [Layer],
    pub origins: &'a Origins,
}

/// What making one launch found out.
#[derive(Default)]
pub(super) struct Findings {
    /// Wrong in the text.
    pub faults: Vec<Fault>,
    /// Missing on this machine.
    pub missing: Vec<Fault>,
    pub notes: Vec<Note>,
}

/// Makes the launch of the server at `path` (`servers.KEY`); `None` when the findings say why not.
pub(super) fn launch(server: &Server, path: &str, ground: &Ground<'_>, findings: &mut Findings) -> Option<Launch> {
    let mut maker = Maker { ground, findings, secrets: Vec::new() };
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
        secrets: maker.secrets,
    })
}

/// Whether what a variable of this name holds is likely to be confidential, though it is written in the open.
fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["TOKEN", "KEY", "SECRET", "PASS", "AUTH", "CREDENTIAL"].iter().any(|word| name.contains(word))
}

impl Findings {
    fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.missing.is_empty()
    }
}

struct Maker<'a, 'g> {
    ground: &'a Ground<'g>,
    findings: &'a mut Findings,
    /// What references put in.
    secrets: Vec<Secret>,
}

impl Maker<'_, '_> {
    fn fault(&self, path: &str, message: String, nearest: Option<&str>) -> Fault {
        Fault {
            place: self.ground.origins.place(path, self.ground.layers),
            key: path.to_owned(),
            message,
            nearest: nearest.map(str::to_owned),
        }
    }

    fn missing(&mut self, path: &str, message: String) {
        let fault = self.fault(path, message, None);
        self.findings.missing.push(fault);
    }

    /// Whose rules the text at `path` follows, and where its relative paths start.
    fn origin(&self, path: &str) -> (Style, &Path) {
        match self.ground.origins.get(path, self.ground.layers) {
            Some((layer, _)) => (layer.style, &layer.base),
            None => (Style::Own, self.ground.cwd),
        }
    }

    /// The text at `path` with its references put in.
    fn text(&mut self, text: &str, path: &str) -> Option<String> {
        let (style, base) = self.origin(path);
        match expand(text, style, self.ground.environment, base) {
            Ok(expanded) => {
                for name in expanded.bare {
                    let message = format!(
                        "{path}: `${{{name}}}` is handed on as it stands; write `${{env:{name}}}` for the \
                         variable, or `$${{{name}}}` to say that this is meant"
                    );
                    let place = self.ground.origins.place(path, self.ground.layers);
                    self.findings.notes.push(Note { place, message });
                }
                self.secrets.extend(expanded.put_in.into_iter().map(Secret::new));
                Some(expanded.text)
            }
            Err(Trouble::Syntax { message, nearest }) => {
                let fault = self.fault(path, message, nearest);
                self.findings.faults.push(fault);
                None
            }
            Err(Trouble::Missing(message)) => {
                self.missing(path, message);
                None
            }
        }
    }

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
