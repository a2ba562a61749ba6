//! The hosts that are known, as data: where their files are, what shape these have, which limits they bring.
//!
//! Hosts change these often, so nothing but the table knows a host by name, and each row says by what it was
//! written. Deliberately touches no file: `place` makes paths of the schemes, the other files read and write.
//!
//! Long, and one thing: a table.

use super::place::Platform;

/// A host.
pub struct Host {
    /// What commands call it.
    pub id: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// Other words for it.
    pub aliases: &'static [&'static str],
    /// Its files. Of several in one scope the first that is there counts; where none is, the first one is made.
    pub files: &'static [File],
    /// How it writes variables.
    pub variables: Variables,
    /// What a `url` without further words means: HTTP+SSE (Gemini, Cline) or Streamable HTTP.
    pub url_is_sse: bool,
    /// Members with deadlines: name, milliseconds of one unit, what for.
    pub deadlines: &'static [(&'static str, u64, Deadline)],
    /// How our own entry looks.
    pub entry: Entry,
    /// How it shows our tools to the model, `{}` being the name of our entry, and the longest name that it takes.
    pub names: (&'static str, usize),
    /// How many tools it takes, where it takes only so many.
    pub most_tools: Option<usize>,
    /// It puts tool definitions off itself until the model asks for them, whatever the model: a plain list costs it little.
    pub defers: bool,
    /// It writes its own file while it runs, and would write over ours.
    pub writes_itself: bool,
    /// What makes it read its file again.
    pub reload: &'static str,
    /// By what this row was written: nothing here was tried with the application itself unless it says so.
    pub tested: &'static str,
}

/// Where one file of a host may be, per platform: schemes for [`super::place`], the first that is there counts.
pub struct File {
    /// For whom it counts.
    pub scope: Scope,
    /// On macOS.
    pub macos: &'static [&'static str],
    /// On Linux.
    pub linux: &'static [&'static str],
    /// On Windows.
    pub windows: &'static [&'static str],
    /// What it is written in.
    pub syntax: Syntax,
    /// Where in it the servers stand.
    pub servers: Servers,
}

impl File {
    /// The schemes of a platform.
    pub fn schemes(&self, platform: Platform) -> &'static [&'static str] {
        match platform {
            Platform::MacOs => self.macos,
            Platform::Linux => self.linux,
            Platform::Windows => self.windows,
        }
    }
}

/// For whom a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For the user, everywhere.
    User,
    /// For one project folder.
    Project,
    /// For all users of the machine.
    System,
}

impl Scope {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::System => "system",
        }
    }
}

/// What a file is written in. JSON is read with comments and trailing commas everywhere: hosts differ, and so do people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// JSON, with or without comments.
    Json,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
}

/// Where in a file the servers stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// In a map under this member.
    Map(&'static str),
    /// In a list under this member, each with its `name`.
    List(&'static str),
}

impl Servers {
    /// The member.
    pub const fn member(self) -> &'static str {
        match self {
            Self::Map(member) | Self::List(member) => member,
        }
    }
}

/// How a host writes variables in the texts of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variables {
    /// Not at all: texts are what they are.
    None,
    /// `${NAME}`, `${NAME:-default}`.
    Braces,
    /// `${env:NAME}`, `${input:id}`, `${file:/path}`, `${userHome}`, `${workspaceFolder}` and their kin.
    Code,
    /// `$NAME`, `${NAME}`, `%NAME%`.
    Dollar,
    /// `{env:NAME}`, `{file:path}`.
    Plain,
    /// `${{ secrets.NAME }}`.
    Secrets,
    /// Our own: `${env:NAME}`, `${file:/path}`, `$${` for a literal.
    Ours,
    /// A file of no known host: `${NAME}` and all of `Code` and `Secrets`.
    Any,
}

/// What a deadline of a host is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// To start.
    Start,
    /// For a call.
    Call,
}

/// How our own entry looks in a host's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// `command` and `args`.
    Bare,
    /// The same after `type = "stdio"`.
    Typed,
    /// The same after `source = "custom"`, which older Zeds ask for.
    Zed,
    /// `type = "local"`, the command as one list.
    OpenCode,
    /// `cmd`, with what Goose wants to know of an extension.
    Goose,
    /// An element of a list, with its name.
    Listed,
    /// `type = "local"` and the tools that may be used: all.
    Copilot,
}

/// The same file on all platforms.
const fn same(scope: Scope, schemes: &'static [&'static str], syntax: Syntax, servers: Servers) -> File {
    File { scope, macos: schemes, linux: schemes, windows: schemes, syntax, servers }
}

const MCP_SERVERS: Servers = Servers::Map("mcpServers");
const DOCUMENTS: &str = "documents of 2026-08";
const SOURCES: &str = "sources of 2026-08";

/// What is nothing special about a host.
const PLAIN: Host = Host {
    id: "",
    title: "",
    aliases: &[],
    files: &[],
    variables: Variables::None,
    url_is_sse: false,
    deadlines: &[],
    entry: Entry::Bare,
    names: ("", 64),
    most_tools: None,
    defers: false,
    writes_itself: false,
    reload: "",
    tested: DOCUMENTS,
};

/// All of them. The schemes: `{home}`, `{config}` (`$XDG_CONFIG_HOME` or `~/.config`), `{appdata}`, `{programdata}`,
/// `{NAME}` and `{NAME|home/path}` for a variable that may name the folder; without any, the project's folder.
pub const HOSTS: &[Host] = &[
    Host {
        id: "claude-desktop",
        title: "Claude Desktop",
        files: &[File {
            scope: Scope::User,
            macos: &["{home}/Library/Application Support/Claude/claude_desktop_config.json"],
            linux: &["{config}/Claude/claude_desktop_config.json"],
            windows: &["{appdata}/Claude/claude_desktop_config.json"],
            syntax: Syntax::Json,
            servers: MCP_SERVERS,
        }],
        reload: "quit it and start it again",
        ..PLAIN
    },
    Host {
        id: "claude-code",
        title: "Claude Code",
        aliases: &["claude"],
        files: &[
            same(Scope::User, &["{CLAUDE_CONFIG_DIR|home}/.claude.json"], Syntax::Json, MCP_SERVERS),
            same(Scope::Project, &[".mcp.json"], Syntax::Json, MCP_SERVERS),
        ],
        variables: Variables::Braces,
        deadlines: &[("timeout", 1, Deadline::Call)],
        entry: Entry::Typed,
        names: ("mcp__{}__", 64),
        // Beyond a share of the context, behind a search of its own.
        defers: true,
        writes_itself: true,
        reload: "start it anew",
        ..PLAIN
    },
    Host {
        id: "cursor",
        title: "Cursor",
        files: &[
            same(Scope::User, &["{home}/.cursor/mcp.json"], Syntax::Json, MCP_SERVERS),
            same(Scope::Project, &[".cursor/mcp.json"], Syntax::Json, MCP_SERVERS),
        ],
        variables: Variables::Code,
        names: ("{}", 60),
        most_tools: Some(80),
        reload: "it reads the file again by itself; see its settings, MCP",
        ..PLAIN
    },
    Host {
        id: "vscode",
        title: "VS Code",
        aliases: &["vs-code", "code", "copilot"],
        files: &[
            File {
                scope: Scope::User,
                macos: &["{home}/Library/Application Support/Code/User/mcp.json"],
                linux: &["{config}/Code/User/mcp.json"],
                windows: &["{appdata}/Code/User/mcp.json"],
                syntax: Syntax::Json,
                servers: Servers::Map("servers"),
            },
            same(Scope::Project, &[".vscode/mcp.json"], Syntax::Json, Servers::Map("servers")),
        ],
        variables: Variables::Code,
        entry: Entry::Typed,
        most_tools: Some(128),
        // In groups that are opened when they are needed (microsoft/vscode #294055).
        defers: true,
        reload: "start the server in its list of MCP servers",
        ..PLAIN
    },
    Host {
        id: "windsurf",
        title: "Windsurf",
        files: &[File {
            scope: Scope::User,
            macos: &["{home}/.codeium/windsurf/mcp_config.json"],
            linux: &["{home}/.codeium/windsurf/mcp_config.json"],
            windows: &["{home}/.codeium/windsurf/mcp_config.json", "{appdata}/Codeium/windsurf/mcp_config.json"],
            syntax: Syntax::Json,
            servers: MCP_SERVERS,
        }],
        variables: Variables::Code,
        most_tools: Some(100),
        reload: "refresh its list of servers",
        ..PLAIN
    },
    Host {
        id: "zed",
        title: "Zed",
        files: &[
            File {
                scope: Scope::User,
                macos: &["{home}/.config/zed/settings.json"],
                linux: &["{config}/zed/settings.json"],
                windows: &["{appdata}/Zed/settings.json"],
                syntax: Syntax::Json,
                servers: Servers::Map("context_servers"),
            },
            same(Scope::Project, &[".zed/settings.json"], Syntax::Json, Servers::Map("context_servers")),
        ],
        entry: Entry::Zed,
        reload: "it reads the file again by itself",
        ..PLAIN
    },
    Host {
        id: "codex",
        title: "Codex CLI",
        aliases: &["codex-cli"],
        files: &[
            same(Scope::User, &["{CODEX_HOME|home/.codex}/config.toml"], Syntax::Toml, Servers::Map("mcp_servers")),
            same(Scope::Project, &[".codex/config.toml"], Syntax::Toml, Servers::Map("mcp_servers")),
        ],
        deadlines: &[("startup_timeout_sec", 1000, Deadline::Start), ("tool_timeout_sec", 1000, Deadline::Call)],
        names: ("mcp__{}__", 64),
        reload: "start it anew",
        ..PLAIN
    },
    Host {
        id: "gemini",
        title: "Gemini CLI",
        aliases: &["gemini-cli"],
        files: &[
            same(Scope::User, &["{home}/.gemini/settings.json"], Syntax::Json, MCP_SERVERS),
            same(Scope::Project, &[".gemini/settings.json"], Syntax::Json, MCP_SERVERS),
            File {
                scope: Scope::System,
                macos: &["/Library/Application Support/GeminiCli/settings.json"],
                linux: &["/etc/gemini-cli/settings.json"],
                windows: &["{programdata}/gemini-cli/settings.json"],
                syntax: Syntax::Json,
                servers: MCP_SERVERS,
            },
        ],
        variables: Variables::Dollar,
        url_is_sse: true,
        deadlines: &[("timeout", 1, Deadline::Call)],
        names: ("mcp_{}_", 63),
        reload: "start it anew",
        tested: SOURCES,
        ..PLAIN
    },
    Host {
        id: "goose",
        title: "Goose",
        files: &[File {
            scope: Scope::User,
            macos: &["{config}/goose/config.yaml"],
            linux: &["{config}/goose/config.yaml"],
            windows: &["{appdata}/Block/goose/config/config.yaml"],
            syntax: Syntax::Yaml,
            servers: Servers::Map("extensions"),
        }],
        variables: Variables::Braces,
        deadlines: &[("timeout", 1000, Deadline::Call)],
        entry: Entry::Goose,
        names: ("{}__", 64),
        reload: "start a new session",
        ..PLAIN
    },
    Host {
        id: "cline",
        title: "Cline",
        files: &[File {
            scope: Scope::User,
            macos: &[
                "{CLINE_MCP_SETTINGS_PATH}",
                "{home}/.cline/data/settings/cline_mcp_settings.json",
                "{home}/.cline/mcp.json",
                "{home}/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ],
            linux: &[
                "{CLINE_MCP_SETTINGS_PATH}",
                "{home}/.cline/data/settings/cline_mcp_settings.json",
                "{home}/.cline/mcp.json",
                "{config}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ],
            windows: &[
                "{CLINE_MCP_SETTINGS_PATH}",
                "{home}/.cline/data/settings/cline_mcp_settings.json",
                "{home}/.cline/mcp.json",
                "{appdata}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ],
            syntax: Syntax::Json,
            servers: MCP_SERVERS,
        }],
        variables: Variables::Code,
        url_is_sse: true,
        deadlines: &[("timeout", 1000, Deadline::Call)],
        entry: Entry::Typed,
        reload: "it reads the file again by itself",
        tested: SOURCES,
        ..PLAIN
    },
    Host {
        id: "opencode",
        title: "opencode",
        aliases: &["open-code"],
        files: &[
            File {
                scope: Scope::User,
                macos: &[
                    "{OPENCODE_CONFIG}",
                    "{OPENCODE_CONFIG_DIR|config/opencode}/opencode.json",
                    "{OPENCODE_CONFIG_DIR|config/opencode}/opencode.jsonc",
                ],
                linux: &[
                    "{OPENCODE_CONFIG}",
                    "{OPENCODE_CONFIG_DIR|config/opencode}/opencode.json",
                    "{OPENCODE_CONFIG_DIR|config/opencode}/opencode.jsonc",
                ],
                windows: &[
                    "{OPENCODE_CONFIG}",
                    "{OPENCODE_CONFIG_DIR|appdata/opencode}/opencode.json",
                    "{OPENCODE_CONFIG_DIR|appdata/opencode}/opencode.jsonc",
                    "{home}/.config/opencode/opencode.json",
                    "{home}/.config/opencode/opencode.jsonc",
                ],
                syntax: Syntax::Json,
                servers: Servers::Map("mcp"),
            },
            same(Scope::Project, &["opencode.json", "opencode.jsonc"], Syntax::Json, Servers::Map("mcp")),
        ],
        variables: Variables::Plain,
        entry: Entry::OpenCode,
        names: ("{}_", 64),
        reload: "start it anew",
        ..PLAIN
    },
    Host {
        id: "continue",
        title: "Continue",
        files: &[
            same(Scope::User, &["{home}/.continue/config.yaml"], Syntax::Yaml, Servers::List("mcpServers")),
            same(Scope::Project, &[".continue/mcpServers/onegate.yaml"], Syntax::Yaml, Servers::List("mcpServers")),
        ],
        variables: Variables::Secrets,
        deadlines: &[("connectionTimeout", 1, Deadline::Start)],
        entry: Entry::Listed,
        reload: "reload its window; only its agent mode uses tools",
        ..PLAIN
    },
    Host {
        id: "copilot-cli",
        title: "Copilot CLI",
        files: &[same(Scope::User, &["{COPILOT_HOME|home/.copilot}/mcp-config.json"], Syntax::Json, MCP_SERVERS)],
        variables: Variables::Braces,
        entry: Entry::Copilot,
        names: ("{}-", 64),
        most_tools: Some(128),
        reload: "start it anew",
        ..PLAIN
    },
    Host {
        id: "roo-code",
        title: "Roo Code",
        aliases: &["roo"],
        files: &[
            File {
                scope: Scope::User,
                macos: &[
                    "{home}/Library/Application Support/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ],
                linux: &["{config}/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"],
                windows: &["{appdata}/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"],
                syntax: Syntax::Json,
                servers: MCP_SERVERS,
            },
            same(Scope::Project, &[".roo/mcp.json"], Syntax::Json, MCP_SERVERS),
        ],
        variables: Variables::Code,
        url_is_sse: true,
        deadlines: &[("timeout", 1000, Deadline::Call)],
        entry: Entry::Typed,
        reload: "it reads the file again by itself",
        tested: "other programs' tables of 2026-08",
        ..PLAIN
    },
    Host {
        id: "lm-studio",
        title: "LM Studio",
        aliases: &["lmstudio"],
        files: &[same(Scope::User, &["{home}/.lmstudio/mcp.json"], Syntax::Json, MCP_SERVERS)],
        reload: "it reads the file again by itself",
        tested: "other programs' tables of 2026-08",
        ..PLAIN
    },
    Host {
        id: "antigravity",
        title: "Antigravity",
        files: &[same(
            Scope::User,
            &["{home}/.gemini/config/mcp_config.json", "{home}/.gemini/antigravity/mcp_config.json"],
            Syntax::Json,
            MCP_SERVERS,
        )],
        most_tools: Some(100),
        reload: "refresh its list of servers",
        tested: "other programs' tables of 2026-08",
        ..PLAIN
    },
];

/// The host that a word names.
pub fn named(word: &str) -> Option<&'static Host> {
    let word = word.to_ascii_lowercase().replace(['_', ' '], "-");
    HOSTS.iter().find(|host| host.id == word || host.aliases.contains(&word.as_str()))
}

impl Host {
    /// Its file for a scope, when it has one.
    pub fn file(&self, scope: Scope) -> Option<&'static File> {
        self.files.iter().find(|file| file.scope == scope)
    }

    /// How long a name of ours may be, when our entry is called `entry`.
    pub fn longest_name(&self, entry: &str) -> usize {
        let (wrapper, longest) = self.names;
        longest.saturating_sub(wrapper.replace("{}", entry).len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_word_names_one_host() {
        let mut words = BTreeSet::new();
        for host in HOSTS {
            for word in std::iter::once(&host.id).chain(host.aliases) {
                assert!(words.insert(*word), "{word} twice");
                assert_eq!(named(word).unwrap().id, host.id);
            }
            assert!(host.file(Scope::User).is_some(), "{}", host.id);
        }
        assert!(HOSTS.len() >= 12);
        assert_eq!(named("Claude_Desktop").unwrap().id, "claude-desktop");
        assert!(named("nobody").is_none());
    }

    #[test]
    fn hosts_that_put_tools_off_themselves_are_few() {
        let defer: Vec<_> = HOSTS.iter().filter(|host| host.defers).map(|host| host.id).collect();
        assert_eq!(defer, ["claude-code", "vscode"]);
    }

    #[test]
    fn wrappers_cost_what_they_are_long() {
        assert_eq!(named("claude-code").unwrap().longest_name("onegate"), 50);
        assert_eq!(named("gemini").unwrap().longest_name("onegate"), 51);
        assert_eq!(named("cursor").unwrap().longest_name("onegate"), 53);
        assert_eq!(named("claude-desktop").unwrap().longest_name("onegate"), 64);
    }
}
