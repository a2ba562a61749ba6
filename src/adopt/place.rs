//! Schemes of paths → paths: pure functions of a platform and an environment, so that all three are tested on one.
//!
//! Deliberately asks no disk; what is there is for `read` and `install` to see.

use std::path::{Path, PathBuf};

use crate::config::Environment;

use super::hosts::{File, Scope};

/// A family of operating systems, as far as hosts put their files elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// macOS.
    MacOs,
    /// Linux, and what is like it.
    Linux,
    /// Windows.
    Windows,
}

impl Platform {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::MacOs, Self::Linux, Self::Windows];

    /// The one that this program runs on.
    pub const fn of_process() -> Self {
        if cfg!(target_os = "macos") {
            Self::MacOs
        } else if cfg!(windows) {
            Self::Windows
        } else {
            Self::Linux
        }
    }
}

/// From where hosts are looked at.
pub struct Ground {
    /// Whose paths.
    pub platform: Platform,
    /// The variables that name folders.
    pub environment: Environment,
    /// The project's folder.
    pub project: PathBuf,
}

impl Ground {
    /// All places where this file of a host may be, the most likely first.
    pub fn places(&self, file: &File) -> Vec<PathBuf> {
        file.schemes(self.platform).iter().filter_map(|scheme| self.place(scheme)).collect()
    }

    /// The place that a scheme names; none when it hangs on a variable that is not set.
    fn place(&self, scheme: &str) -> Option<PathBuf> {
        let Some(rest) = scheme.strip_prefix('{') else {
            return Some(join(&self.project, scheme));
        };
        let (words, rest) = rest.split_once('}')?;
        let folder = words.split('|').find_map(|word| self.folder(word))?;
        Some(join(&folder, rest.trim_start_matches('/')))
    }

    /// The folder of a word: `home/.codex`, `config`, or the name of a variable.
    fn folder(&self, word: &str) -> Option<PathBuf> {
        let (first, rest) = word.split_once('/').unwrap_or((word, ""));
        let folder = match first {
            "home" => self.home(),
            "config" => match self.platform {
                Platform::Linux | Platform::MacOs => {
                    self.variable("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")))
                }
                Platform::Windows => Some(self.home()?.join(".config")),
            },
            "appdata" => self.variable("APPDATA").or_else(|| Some(self.home()?.join("AppData").join("Roaming"))),
            "programdata" => self.variable("ProgramData").or_else(|| Some(PathBuf::from("C:\\ProgramData"))),
            name => self.variable(name),
        };
        folder.map(|folder| join(&folder, rest))
    }

    fn home(&self) -> Option<PathBuf> {
        match self.platform {
            Platform::Windows => self.variable("USERPROFILE").or_else(|| self.variable("HOME")),
            Platform::MacOs | Platform::Linux => self.variable("HOME"),
        }
    }

    fn variable(&self, name: &str) -> Option<PathBuf> {
        self.environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// Where a file of this scope is, when it is there: the first of its places that holds one.
    pub fn existing(&self, file: &File) -> Option<PathBuf> {
        self.places(file).into_iter().find(|path| std::fs::symlink_metadata(path).is_ok())
    }

    /// Where a file of this scope is or would be: the first that is there, else the first whose folder is, else the
    /// first of all.
    pub fn chosen(&self, file: &File) -> Option<PathBuf> {
        let places = self.places(file);
        let with_folder = || places.iter().find(|path| path.parent().is_some_and(Path::is_dir)).cloned();
        self.existing(file).or_else(with_folder).or_else(|| match file.scope {
            // Nobody makes a system's file by guess.
            Scope::System => None,
            Scope::User | Scope::Project => places.first().cloned(),
        })
    }
}

/// `folder` and the parts of `rest`, with the separators of the system that runs.
fn join(folder: &Path, rest: &str) -> PathBuf {
    if rest.starts_with('/') {
        return PathBuf::from(rest);
    }
    let mut path = folder.to_owned();
    path.extend(rest.split('/').filter(|part| !part.is_empty()));
    path
}

#[cfg(test)]
mod tests {
    use super::super::hosts::named;
    use super::*;

    fn places(platform: Platform, variables: &[(&str, &str)], host: &str, scope: Scope) -> Vec<String> {
        let environment = Environment::from_iter(variables.iter().copied());
        let ground = Ground { platform, environment, project: "/project".into() };
        let places = ground.places(named(host).unwrap().file(scope).unwrap());
        places.into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn paths_follow_platform_and_variables() {
        let unix = &[("HOME", "/h")][..];
        let windows = &[("USERPROFILE", "/u"), ("APPDATA", "/u/AppData/Roaming"), ("HOME", "/other")][..];
        for (platform, variables, host, expected) in [
            (
                Platform::MacOs,
                unix,
                "claude-desktop",
                "/h/Library/Application Support/Claude/claude_desktop_config.json",
            ),
            (Platform::Linux, unix, "claude-desktop", "/h/.config/Claude/claude_desktop_config.json"),
            (Platform::Windows, windows, "claude-desktop", "/u/AppData/Roaming/Claude/claude_desktop_config.json"),
            (Platform::Linux, &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")], "zed", "/x/zed/settings.json"),
            (Platform::MacOs, &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")], "zed", "/h/.config/zed/settings.json"),
            (Platform::Windows, windows, "cursor", "/u/.cursor/mcp.json"),
            (Platform::Linux, unix, "codex", "/h/.codex/config.toml"),
            (Platform::Linux, &[("HOME", "/h"), ("CODEX_HOME", "/c")], "codex", "/c/config.toml"),
            (Platform::Linux, unix, "claude-code", "/h/.claude.json"),
            (Platform::Windows, windows, "goose", "/u/AppData/Roaming/Block/goose/config/config.yaml"),
            (Platform::Windows, &[("USERPROFILE", "/u")], "vscode", "/u/AppData/Roaming/Code/User/mcp.json"),
            (Platform::Linux, &[("HOME", "/h"), ("CLINE_MCP_SETTINGS_PATH", "/c.json")], "cline", "/c.json"),
            (Platform::Linux, unix, "cline", "/h/.cline/data/settings/cline_mcp_settings.json"),
        ] {
            assert_eq!(places(platform, variables, host, Scope::User)[0], expected, "{platform:?} {host}");
        }
        assert_eq!(places(Platform::Linux, unix, "cursor", Scope::Project), ["/project/.cursor/mcp.json"]);
        assert_eq!(places(Platform::Linux, unix, "gemini", Scope::System), ["/etc/gemini-cli/settings.json"]);
        assert!(places(Platform::Linux, &[], "cursor", Scope::User).is_empty(), "no home, no place");
    }

    #[test]
    fn every_host_has_a_place_on_every_platform() {
        for host in super::super::hosts::HOSTS {
            for platform in Platform::ALL {
                let variables = [("HOME", "/h"), ("USERPROFILE", "/h")];
                assert!(!places(platform, &variables, host.id, Scope::User).is_empty(), "{} {platform:?}", host.id);
            }
        }
    }

    #[test]
    fn the_first_that_is_there_counts_then_the_first_with_a_folder() {
        let home = tempfile::tempdir().unwrap();
        let environment = Environment::from_iter([("HOME", home.path())]);
        let ground = Ground { platform: Platform::Linux, environment, project: home.path().to_owned() };
        let file = named("cline").unwrap().file(Scope::User).unwrap();
        let end = |path: Option<PathBuf>| path.map(|p| p.strip_prefix(home.path()).unwrap().to_owned());
        assert_eq!(end(ground.chosen(file)), Some(".cline/data/settings/cline_mcp_settings.json".into()));
        std::fs::create_dir(home.path().join(".cline")).unwrap();
        assert_eq!(end(ground.chosen(file)), Some(".cline/mcp.json".into()));
        let old = home.path().join(".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings");
        std::fs::create_dir_all(&old).unwrap();
        std::fs::write(old.join("cline_mcp_settings.json"), "{}").unwrap();
        assert!(end(ground.chosen(file)).unwrap().starts_with(".config/Code"));
        assert_eq!(ground.existing(file), ground.chosen(file));
    }
}
