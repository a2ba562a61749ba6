//! Is the program that a command starts the same tomorrow? Package runners fetch what is newest unless a version is written.
//!
//! Pure; knows the words of the runners and starts nothing. Called by `doctor`.

/// Something whose next start may run other code than the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Floating {
    /// The package or image as it is written.
    pub what: String,
    /// How it would be written with a version.
    pub fixed: String,
}

/// What floats about a command, if anything.
pub(super) fn floating(command: &str, args: &[&str]) -> Option<Floating> {
    let mut words = Vec::with_capacity(args.len() + 1);
    words.push(command);
    words.extend(args);
    // `cmd /c npx …` of Windows.
    if matches!(stem(command), "cmd") && args.first().is_some_and(|arg| arg.eq_ignore_ascii_case("/c")) {
        words.drain(..2);
    }
    let (program, rest) = words.split_first()?;
    let second = rest.first().copied().unwrap_or_default();
    match (stem(program), second) {
        ("npx" | "bunx" | "pnpx", _) => node(rest),
        ("npm", "exec" | "x") | ("pnpm" | "yarn", "dlx") | ("bun", "x") => node(rest.get(1..)?),
        ("uvx", _) => python(rest),
        ("uv", "tool") if rest.get(1) == Some(&"run") => python(rest.get(2..)?),
        ("pipx", "run") => python(rest.get(1..)?),
        ("docker" | "podman" | "nerdctl", "run") => image(rest.get(1..)?),
        _ => None,
    }
}

/// The name of a program, without its folder and ending.
fn stem(program: &str) -> &str {
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    [".exe", ".cmd", ".bat", ".ps1"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// The value of one of these flags, in either form.
fn flag<'a>(words: &[&'a str], flags: &[&str]) -> Option<&'a str> {
    words.iter().enumerate().find_map(|(n, word)| {
        if flags.contains(word) {
            return words.get(n + 1).copied();
        }
        word.split_once('=').filter(|(name, _)| flags.contains(name)).map(|(_, value)| value)
    })
}

/// The words of the runner itself: what follows its first word without a dash is the package's own.
fn first_plain<'a>(words: &[&'a str], with_value: &[&str]) -> Option<(usize, &'a str)> {
    let mut n = 0;
    while let Some(word) = words.get(n) {
        if !word.starts_with('-') {
            return Some((n, word));
        }
        n += if with_value.contains(word) { 2 } else { 1 };
    }
    None
}

fn node(words: &[&str]) -> Option<Floating> {
    const PACKAGE: [&str; 2] = ["-p", "--package"];
    let (at, first) = first_plain(words, &["-p", "--package", "-c", "--call", "--cache", "--registry", "-w"])?;
    let package = flag(words.get(..at)?, &PACKAGE).unwrap_or(first);
    if package.starts_with(['.', '/', '~']) || package.contains("://") || package.starts_with("file:") {
        return None;
    }
    // The `@` of a scope is no version.
    let version = package.get(1..).and_then(|rest| rest.rfind('@')).map(|at| (&package[..=at], &package[at + 2..]));
    let (name, version) = version.unwrap_or((package, ""));
    (!is_exact(version)).then(|| Floating { what: package.to_owned(), fixed: format!("{name}@x.y.z") })
}

fn python(words: &[&str]) -> Option<Floating> {
    let (at, first) = first_plain(words, &["--from", "--with", "--python", "-p", "--spec", "--index-url", "--index"])?;
    let package = flag(words.get(..at)?, &["--from", "--spec"]).unwrap_or(first);
    if package.starts_with(['.', '/', '~']) || package.starts_with("git+") && is_commit(package) {
        return None;
    }
    let exact =
        package.split_once("==").or_else(|| package.split_once('@')).is_some_and(|(_, version)| is_release(version));
    let name = package.split(['=', '@', '<', '>', '~', '!']).next().unwrap_or(package);
    (!exact).then(|| Floating { what: package.to_owned(), fixed: format!("{name}==x.y.z") })
}

/// A revision of git that cannot move.
fn is_commit(package: &str) -> bool {
    let revision = package.rsplit_once('@').map(|(_, revision)| revision.split(['#', '&']).next().unwrap_or_default());
    revision.is_some_and(|r| r.len() == 40 && r.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Flags of `docker run` that take the next word.
const DOCKER: &[&str] = &[
    "-e",
    "--env",
    "--env-file",
    "-v",
    "--volume",
    "--mount",
    "-p",
    "--publish",
    "--name",
    "--network",
    "--net",
    "-w",
    "--workdir",
    "-u",
    "--user",
    "--entrypoint",
    "-l",
    "--label",
    "--add-host",
    "-m",
    "--memory",
    "--cpus",
    "--pull",
    "--platform",
    "-h",
    "--hostname",
    "--cap-add",
    "--cap-drop",
    "--security-opt",
    "--tmpfs",
    "--ulimit",
    "--dns",
    "--restart",
    "--runtime",
    "--gpus",
    "--device",
    "--log-driver",
    "--log-opt",
    "--stop-signal",
    "--shm-size",
];

fn image(words: &[&str]) -> Option<Floating> {
    let (_, image) = first_plain(words, DOCKER)?;
    let name = match image.rsplit_once(':') {
        // The port of a registry is no tag.
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    };
    let fixed = || Floating { what: image.to_owned(), fixed: format!("{name}@sha256:…") };
    (!image.contains("@sha256:")).then(fixed)
}

/// `1.2.3`, with whatever follows a `-` or `+`.
fn is_exact(version: &str) -> bool {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    let parts: Vec<&str> = plain.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// A release of Python's: digits first, and nothing that matches several.
fn is_release(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit()) && !version.contains(['*', '<', '>', ',', '~'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_floats_is_told_from_what_is_fixed() {
        for (command, what) in [
            ("npx -y @scope/server", Some("@scope/server")),
            ("npx -y @scope/server@1.2.3 /srv", None),
            ("npx @scope/server@latest", Some("@scope/server@latest")),
            ("npx server@^1.2.3", Some("server@^1.2.3")),
            ("npx server@1", Some("server@1")),
            ("npx -y server@1.0.0-rc.1", None),
            ("npx -p pkg@1.2.3 bin", None),
            ("npx --package=pkg bin", Some("pkg")),
            ("npx ./local.js", None),
            ("/usr/local/bin/npx.cmd server", Some("server")),
            ("cmd /c npx server", Some("server")),
            ("pnpm dlx server@1.2.3", None),
            ("npm exec server", Some("server")),
            ("uvx server", Some("server")),
            ("uvx server==1.2", None),
            ("uvx server@1.2.3", None),
            ("uvx server@latest", Some("server@latest")),
            ("uvx --from git+https://x/y@0123456789012345678901234567890123456789 server", None),
            ("uvx --from pkg>=1 server", Some("pkg>=1")),
            ("uv tool run server", Some("server")),
            ("pipx run server==1.0", None),
            ("docker run -i --rm -e TOKEN mcp/server", Some("mcp/server")),
            ("docker run -i --rm registry:5000/mcp/server:1.2", Some("registry:5000/mcp/server:1.2")),
            ("docker run -i mcp/server@sha256:0123", None),
            ("docker ps", None),
            ("node server.js", None),
            ("npx", None),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            let found = floating(words[0], &words[1..]);
            assert_eq!(found.as_ref().map(|found| found.what.as_str()), what, "{command}");
        }
        let fixed = |command: &str| {
            let words: Vec<&str> = command.split(' ').collect();
            floating(words[0], &words[1..]).unwrap().fixed
        };
        assert_eq!(fixed("npx @a/b@latest"), "@a/b@x.y.z");
        assert_eq!(fixed("uvx b"), "b==x.y.z");
        assert_eq!(fixed("docker run r:5000/b:1"), "r:5000/b@sha256:…");
    }
}
