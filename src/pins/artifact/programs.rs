//! Programs: those that only hand on to another, those that run what nobody sees from here, and those that are what runs.
//!
//! Reads the words of one launch and looks which files are there. Called by [`super::of_launch`].

use std::path::{Path, PathBuf};

use super::runners::{self, NPM_VALUES, PYPI_VALUES};
use super::scripts::{self, INTERPRETERS};
use super::{ArtifactKind, Floating, Reference, images};

/// What only hands on to another program, its own content says nothing: its name, options that take nothing, options that
/// take a value, and how many words of its own come before that program.
const WRAPPERS: [(&str, &[&str], &[&str], usize); 14] = [
    ("cmd", &["/c", "/C"], &[], 0),
    ("env", &["-i", "--ignore-environment", "-"], &["-u", "--unset"], 0),
    ("nice", &[], &["-n", "--adjustment"], 0),
    ("ionice", &["-t"], &["-c", "-n", "--class", "--classdata"], 0),
    ("nohup", &[], &[], 0),
    ("setsid", &["-c", "-f", "-w"], &[], 0),
    ("stdbuf", &[], &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
    ("sudo", &["-n", "-E", "-H"], &["-u", "-g", "--user", "--group"], 0),
    ("doas", &["-n"], &["-u"], 0),
    ("time", &["-p"], &[], 0),
    ("timeout", &["--foreground", "--preserve-status"], &["-k", "-s", "--kill-after", "--signal"], 1),
    ("xvfb-run", &["-a", "--auto-servernum"], &["-n", "-s", "--server-args"], 0),
    ("busybox", &[], &[], 0),
    ("corepack", &[], &[], 0),
];
/// Programs that build, fetch or look up what they run, or run it where nobody sees it from here.
#[rustfmt::skip]
const LAUNCHERS: [&str; 70] = [
    "npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx", "deno", "uv", "uvx", "pipx", "pip", "poetry", "pipenv", "pdm",
    "rye", "hatch", "conda", "mamba", "micromamba", "pixi", "cargo", "rustup", "go", "make", "just", "task", "java",
    "jbang", "dotnet", "mvn", "gradle", "sbt", "mise", "asdf", "volta", "fnm", "nix", "nix-shell", "direnv", "devbox",
    "docker", "docker-compose", "podman", "nerdctl", "kubectl", "ssh", "su", "runuser", "chroot", "nsenter", "unshare",
    "bwrap", "firejail", "flatpak", "snap", "systemd-run", "script", "xargs", "find", "parallel", "watch", "flock",
    "strace", "bundle", "composer", "op", "doppler", "dotenv", "dotenvx",
];
/// How deep wrappers are looked through.
const MAX_WRAPPERS: usize = 8;

/// A program and its arguments.
pub(super) struct Words<'a> {
    /// Its file.
    pub(super) program: PathBuf,
    /// Its name, without its folder.
    pub(super) name: String,
    /// As people are shown it.
    pub(super) command: &'a str,
    /// Without the program.
    pub(super) args: &'a [&'a str],
    /// Where relative files are.
    pub(super) cwd: Option<&'a Path>,
}

/// The name of a file, without the endings of programs.
pub(super) fn file_name(path: &Path) -> String {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    [".exe", ".cmd", ".bat", ".ps1"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name).to_owned()
}

/// What these words refer to; `depth`: how many wrappers stand around them.
pub(super) fn read(words: &Words<'_>, depth: usize) -> Reference {
    let (name, args) = (words.name.as_str(), words.args);
    if let Some((_, switches, values, own)) = WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name) {
        let inner = inside(args, switches, values, *own).filter(|_| depth < MAX_WRAPPERS);
        return inner.and_then(|inner| wrapped(words, inner, depth)).unwrap_or_else(|| untold(words));
    }
    let npm_exec = |words: &[&[&str]]| after(args, words, &NPM_VALUES).map(|args| runners::npm(&args));
    let found = match name {
        "npx" | "bunx" | "pnpx" => Some(runners::npm(args)),
        "npm" => npm_exec(&[&["exec", "x"]]),
        "pnpm" | "yarn" => npm_exec(&[&["dlx"]]),
        "bun" => npm_exec(&[&["x"]]),
        "uvx" => Some(runners::pypi(args, "--from")),
        "uv" => after(args, &[&["tool"], &["run"]], &PYPI_VALUES)
            .map(|args| runners::pypi(&args, "--from"))
            .or_else(|| after(args, &[&["run"]], &PYPI_VALUES).and_then(|args| runners::uv_run(words, &args))),
        "pipx" => after(args, &[&["run"]], &PYPI_VALUES).map(|args| runners::pypi(&args, "--spec")),
        "docker" | "podman" | "nerdctl" => after(args, &[&["run"]], &images::VALUES)
            .or_else(|| after(args, &[&["container"], &["run"]], &images::VALUES))
            .and_then(|args| images::container(&args)),
        _ => None,
    };
    found.unwrap_or_else(|| file(words))
}

/// What a wrapper hands on to; nothing where one of its options is not known.
fn inside<'a>(args: &'a [&'a str], switches: &[&str], values: &[&str], mut own: usize) -> Option<&'a [&'a str]> {
    let mut at = 0;
    while let Some(&arg) = args.get(at) {
        let option = arg.split_once('=').map_or(arg, |(option, _)| option);
        if arg == "--" || switches.contains(&arg) {
            at += 1;
        } else if values.contains(&option) {
            at += if option == arg { 2 } else { 1 };
        } else if values.iter().any(|value| value.len() == 2 && arg.len() > 2 && arg.starts_with(value)) {
            at += 1;
        } else if arg.starts_with('-') {
            return None;
        } else if own > 0 {
            own -= 1;
            at += 1;
        } else if option != arg && !option.contains('/') {
            // A variable of its environment.
            at += 1;
        } else {
            return args.get(at..);
        }
    }
    None
}

/// The reference of what a wrapper runs; nothing where it would have to be looked for.
fn wrapped(words: &Words<'_>, inner: &[&str], depth: usize) -> Option<Reference> {
    let (&command, args) = inner.split_first()?;
    let path = words.cwd.map_or_else(|| PathBuf::from(command), |cwd| cwd.join(command));
    let named = Words { name: file_name(&path), program: path, command, args, cwd: words.cwd };
    let reference = read(&named, depth + 1);
    // The file of a name depends on what the wrapper does to PATH.
    (reference.files.is_empty() || command.contains('/') && named.program.is_file()).then_some(reference)
}

/// The arguments without these words, in this order: subcommands, before and between which options of the program may
/// stand. Nothing where another word stands there.
fn after<'t>(args: &[&'t str], words: &[&[&str]], values: &[&str]) -> Option<Vec<&'t str>> {
    let (mut left, mut words, mut at) = (Vec::with_capacity(args.len()), words.iter(), 0);
    let mut word = words.next();
    while let Some(expected) = word {
        let arg = *args.get(at)?;
        at += 1;
        if arg.starts_with('-') {
            left.push(arg);
            if values.contains(&arg) {
                left.push(args.get(at)?);
                at += 1;
            }
        } else if expected.contains(&arg) {
            word = words.next();
        } else {
            return None;
        }
    }
    left.extend_from_slice(&args[at..]);
    Some(left)
}

/// A program of which is known only that it runs something.
fn untold(words: &Words<'_>) -> Reference {
    let mut reference = Reference::new(ArtifactKind::Binary, words.command, 0);
    reference.files = vec![words.program.clone()];
    reference.floating = Some(Floating::new("it cannot be told what it runs", "start that program itself"));
    reference
}

/// A program or script of this machine.
fn file(words: &Words<'_>) -> Reference {
    let name = words.name.as_str();
    let family = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    let launches = LAUNCHERS.contains(&name);
    if let Some(family) = [name, family].into_iter().find(|name| INTERPRETERS.contains(name)) {
        let script = scripts::script(family, words.args).and_then(|path| Some((path, here(words, path)?)));
        return match script {
            Some((path, script)) => {
                // Its imports are not covered, so it is not bound by its bytes as a whole.
                let mut reference = Reference::new(ArtifactKind::Script, path, u8::from(!launches));
                reference.files = vec![words.program.clone(), script];
                reference
            }
            None => Reference { kind: ArtifactKind::Script, ..untold(words) },
        };
    }
    if launches {
        return untold(words);
    }
    let mut reference = Reference::new(ArtifactKind::Binary, words.command, 2);
    reference.files = vec![words.program.clone()];
    if let Some(interpreter) = scripts::stub(&words.program) {
        (reference.kind, reference.level) = (ArtifactKind::Script, 1);
        reference.files.insert(0, interpreter);
    }
    reference
}

/// A file that an argument names.
pub(super) fn here(words: &Words<'_>, path: &str) -> Option<PathBuf> {
    let moved = words.args.iter().any(|arg| {
        ["--directory", "--cwd"]
            .iter()
            .any(|option| arg.strip_prefix(option).is_some_and(|rest| !rest.starts_with('-')))
    });
    let file = words.cwd.map_or_else(|| PathBuf::from(path), |cwd| cwd.join(path));
    Some(file).filter(|file| !moved && file.is_file())
}

#[cfg(test)]
mod tests {
    use super::super::tests::launch;
    use super::super::{ArtifactKind, of_launch};
    use crate::pins::facet::Hash;

    #[test]
    fn e_10_files_are_bound_by_their_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let (program, script) = (folder.path().join("node"), folder.path().join("s.js"));
        std::fs::write(&program, "one").unwrap();
        std::fs::write(&script, "run").unwrap();
        let server = folder.path().join("server");
        std::fs::hard_link(&program, &server).unwrap();
        let mut binary = launch("./server --flag");
        binary.program.clone_from(&server);
        let before = of_launch(&binary).measure().unwrap();
        assert_eq!((before.kind, before.level), (ArtifactKind::Binary, 2));
        assert_eq!(before.integrity, Some(Hash::of(b"one").to_string()));
        let mut interpreted = launch("node --no-warnings s.js --port 1");
        interpreted.program.clone_from(&program);
        interpreted.cwd = Some(folder.path().to_owned());
        let script_before = of_launch(&interpreted).measure().unwrap();
        assert_eq!((script_before.kind, &*script_before.name, script_before.level), (ArtifactKind::Script, "s.js", 1));
        std::fs::write(&program, "two").unwrap();
        let after = of_launch(&binary).measure().unwrap();
        assert!(after.difference(&before).unwrap().starts_with("it has the content sha256:"));
        assert!(of_launch(&interpreted).measure().unwrap().difference(&script_before).unwrap().contains("interpreter"));
        std::fs::write(&program, "one").unwrap();
        std::fs::write(&script, "changed").unwrap();
        assert!(of_launch(&interpreted).measure().unwrap().difference(&script_before).unwrap().contains("content"));
        assert_eq!(of_launch(&binary).measure().unwrap().difference(&before), None);
        std::fs::remove_file(&server).unwrap();
        assert!(of_launch(&binary).measure().is_err());
    }

    #[test]
    fn e_09_what_cannot_be_told_floats() {
        for words in [
            "env npx -y x",
            "npm start",
            "python -m x",
            "python3.12 -m uv tool run x",
            "python -Ic x",
            "node -e 1",
            "node",
            "node gone.js",
            "sh -c x",
            "dash -c x",
            "fish -c x",
            "busybox sh -c x",
            "bash -ec x",
            "uv run serve",
            "cargo run",
            "pnpm --package=x dlx cmd",
            "npm --yes exec x",
            "uv --quiet tool run x",
            "deno run npm:x",
            "corepack pnpm dlx x",
            "mise exec -- npx x@1.2.3",
            "ssh h cmd",
            "docker exec a b",
            "docker compose up",
            "docker compose run x",
            "npx -p x@1.2.3 -c cmd",
            "env -S npx x@1.2.3",
            "nice server",
            "java -cp a b",
        ] {
            let reference = of_launch(&launch(words));
            assert!(reference.floating.is_some(), "{words}");
        }
        for words in [
            "env A=1 -u B npx -y x@1.2.3",
            "timeout -k 5 10 nice -n 5 npx x@1.2.3",
            "npm --yes exec x@1.2.3",
            "pnpm --package=x@1.2.3 dlx cmd",
            "uv --quiet tool run x==1.2.3",
            "corepack pnpm dlx x@1.2.3",
        ] {
            let reference = of_launch(&launch(words));
            assert_eq!((reference.version.as_deref(), reference.floating), (Some("1.2.3"), None), "{words}");
        }
    }
}
