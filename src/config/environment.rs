//! Our environment, read once, and what of it a child may see.
//!
//! Deliberately knows no server: `launch` adds a server's own variables. Nothing here has `Debug`:
//! the environment is full of secrets (I-34).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::ident::Secret;
use crate::pattern::Pattern;

/// What every child gets when we have it (I-11); nothing else but `pass_env` and the server's `env`.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TERM",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];

/// Families of variables that every child gets.
const PASSED_FAMILIES: &[&str] = &["LC_", "XDG_"];

/// A copy of an environment: the process' own, or one made for a test.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// One variable.
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.0.get(name.as_ref()).map(OsString::as_os_str)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The home folder, when it is known.
    pub fn home(&self) -> Option<PathBuf> {
        self.folder("HOME")
    }

    /// The folder for what survives a restart, before any configuration is read.
    ///
    /// Trust is kept here and nowhere else: a configuration must not choose who trusts it.
    pub fn state_folder(&self) -> PathBuf {
        self.folder("XDG_STATE_HOME")
            .or_else(|| Some(self.home()?.join(".local/state")))
            .map_or_else(|| PathBuf::from("/var/lib/onegate"), |f| f.join("onegate"))
    }

    /// The folder for what lives as long as a process: systemd's, the session's, or one beside the state.
    pub fn runtime_folder(&self) -> PathBuf {
        self.folder("RUNTIME_DIRECTORY")
            .or_else(|| self.folder("XDG_RUNTIME_DIR").map(|folder| folder.join("onegate")))
            .unwrap_or_else(|| self.state_folder().join("run"))
    }

    /// The user's own configuration file.
    pub fn user_file(&self) -> Option<PathBuf> {
        self.folder("XDG_CONFIG_HOME")
            .or_else(|| Some(self.home()?.join(".config")))
            .map(|folder| folder.join("onegate/onegate.toml"))
    }

    /// A variable that names a folder; relative ones do not count.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// `path` against `base`; `~/` is the home folder.
    pub(super) fn path(&self, path: &str, base: &Path) -> PathBuf {
        if let (Some(rest), Some(home)) = (path.strip_prefix("~/"), self.home()) {
            return home.join(rest);
        }
        // Collected anew, so that `./x` does not show as `/folder/./x`.
        base.join(path).components().collect()
    }

    /// What of this environment every child sees (I-11), and the names that could not be handed on.
    pub(super) fn for_children(&self, pass_env: &[Pattern]) -> (BTreeMap<OsString, Secret>, Vec<String>) {
        let mut passed = BTreeMap::new();
        let mut lost = Vec::new();
        for (name, value) in self.iter() {
            let text = name.to_string_lossy();
            let wanted = PASSED.contains(&&*text)
                || PASSED_FAMILIES.iter().any(|family| text.starts_with(family))
                || pass_env.iter().any(|pattern| pattern.matches(&text));
            if !wanted {
                continue;
            }
            match value.to_str() {
                Some(value) => {
                    passed.insert(name.to_owned(), Secret::new(value));
                }
                None => lost.push(text.into_owned()),
            }
        }
        (passed, lost)
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_get_the_allow_list_and_no_more_i_11_d024() {
        let listed = [
            "PATH",
            "HOME",
            "USER",
            "LOGNAME",
            "SHELL",
            "LANG",
            "LC_ALL",
            "LC_TIME",
            "TZ",
            "TERM",
            "TMPDIR",
            "XDG_RUNTIME_DIR",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "NODE_EXTRA_CA_CERTS",
            "REQUESTS_CA_BUNDLE",
            "http_proxy",
            "HTTPS_PROXY",
            "no_proxy",
            "ALL_PROXY",
        ];
        let ours = [
            "CANARY",
            "AWS_SECRET_ACCESS_KEY",
            "ONEGATE__TELEMETRY__LOG",
            "ONEGATE_CONFIG",
            "LC",
            "PATHX",
            "LD_PRELOAD",
            "npm_config_registry",
            "path",
        ];
        let environment: Environment = listed.iter().chain(&ours).map(|name| (*name, "x")).collect();
        let (passed, lost) = environment.for_children(&[]);
        let mut expected: Vec<_> = listed.iter().map(OsString::from).collect();
        expected.sort();
        assert_eq!(passed.into_keys().collect::<Vec<_>>(), expected);
        assert!(lost.is_empty());

        let (passed, _) = environment.for_children(&[Pattern::new("npm_config_*").unwrap()]);
        assert_eq!(passed.len(), listed.len() + 1);
        assert!(passed.contains_key(OsStr::new("npm_config_registry")));
    }

    #[test]
    fn the_runtime_folder_is_systemds_the_sessions_or_beside_the_state() {
        let mut variables = vec![("HOME", "/h")];
        for (name, value, expected) in [
            ("X", "/x", "/h/.local/state/onegate/run"),
            ("XDG_RUNTIME_DIR", "/run/user/1", "/run/user/1/onegate"),
            ("RUNTIME_DIRECTORY", "/run/onegate", "/run/onegate"),
        ] {
            variables.push((name, value));
            assert_eq!(Environment::from_iter(variables.clone()).runtime_folder(), Path::new(expected));
        }
    }

    #[test]
    fn the_state_folder_follows_xdg() {
        let home = Environment::from_iter([("HOME", "/h")]);
        assert_eq!(home.state_folder(), Path::new("/h/.local/state/onegate"));
        let xdg = Environment::from_iter([("HOME", "/h"), ("XDG_STATE_HOME", "/s")]);
        assert_eq!(xdg.state_folder(), Path::new("/s/onegate"));
        let relative = Environment::from_iter([("HOME", "/h"), ("XDG_STATE_HOME", "s")]);
        assert_eq!(relative.state_folder(), Path::new("/h/.local/state/onegate"));
    }
}
