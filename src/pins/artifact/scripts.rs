//! Interpreters, and which of their arguments is the file that they run.
//!
//! Knows the options of the usual ones; where it does not, nothing is told rather than something wrong. Called by
//! [`super::programs`].

use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Programs that run a file of text.
#[rustfmt::skip]
pub(super) const INTERPRETERS: [&str; 36] = [
    "node", "nodejs", "bun", "deno", "python", "pypy", "ruby", "perl", "php", "lua", "luajit", "tsx", "ts-node", "bash",
    "sh", "zsh", "dash", "ash", "ksh", "mksh", "csh", "tcsh", "fish", "nu", "pwsh", "powershell", "cmd", "osascript",
    "tclsh", "expect", "julia", "guile", "escript", "elixir", "java", "dotnet",
];

/// What interprets a program that is a text, where it is one.
pub(super) fn stub(program: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    std::fs::File::open(program).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let interpreter = PathBuf::from(line.split_whitespace().next().unwrap_or_default());
    // One that is not there fails when it is started.
    Some(if interpreter.is_file() { interpreter } else { program.to_owned() })
}

/// The file of text among the arguments of an interpreter; nothing where its program is given as text, as a module by
/// name, or not at all.
pub(super) fn script<'a>(family: &str, args: &[&'a str]) -> Option<&'a str> {
    // Letters that say that the program is no file, letters with a value, and the same of long options.
    let (text, valued, long_text, long_valued): (&str, &str, &[&str], &[&str]) = match family {
        "node" | "nodejs" | "tsx" | "ts-node" => (
            "epi",
            "rCP",
            &["eval", "print", "interactive", "run", "test"],
            &[
                "require",
                "import",
                "loader",
                "experimental-loader",
                "conditions",
                "env-file",
                "env-file-if-exists",
                "inspect-port",
                "title",
                "input-type",
                "icu-data-dir",
                "openssl-config",
                "redirect-warnings",
                "diagnostic-dir",
                "tsconfig",
                "project",
                "compiler-options",
                "experimental-config-file",
                "experimental-default-type",
                "stack-trace-limit",
                "dns-result-order",
                "unhandled-rejections",
                "disable-warning",
                "trace-event-categories",
                "localstorage-file",
                "experimental-sea-config",
            ],
        ),
        "python" | "pypy" => ("cm", "WX", &["help"], &["check-hash-based-pycs"]),
        "bun" => (
            "ep",
            "rcd",
            &["eval", "print"],
            &["preload", "require", "import", "cwd", "config", "env-file", "define", "loader", "tsconfig-override"],
        ),
        "deno" => ("", "c", &[], &["config", "import-map", "lock", "cert", "location", "seed", "preload", "ext"]),
        "ruby" => ("e", "CIrExKW", &[], &["encoding", "require"]),
        "perl" => ("eE", "I", &[], &[]),
        "php" => ("rBRFSa", "dcz", &["run", "server"], &["define", "php-ini"]),
        "lua" | "luajit" => ("ei", "lj", &[], &[]),
        "fish" => ("ci", "CdDof", &["command", "init-command", "interactive"], &["debug", "debug-output", "features"]),
        "bash" | "sh" | "zsh" | "dash" | "ash" | "ksh" | "mksh" => ("csi", "oO", &[], &["rcfile", "init-file"]),
        "java" => return jar(args),
        // Of the others no options are known.
        _ => return args.first().copied().filter(|arg| !arg.starts_with('-')),
    };
    let mut args = args.iter().copied().peekable();
    if matches!(family, "bun" | "deno") {
        args.next_if_eq(&"run");
    }
    while let Some(arg) = args.next() {
        if arg == "--" {
            return args.next();
        }
        if let Some(long) = arg.strip_prefix("--") {
            let (option, attached) = long.split_once('=').map_or((long, false), |(option, _)| (option, true));
            if long_text.contains(&option) {
                return None;
            }
            if long_valued.contains(&option) && !attached {
                args.next();
            }
        } else if let Some(letters) = arg.strip_prefix('-').or_else(|| arg.strip_prefix('+')) {
            // The first letter that takes a value takes what is left, or the next argument.
            let found = letters.char_indices().find(|(_, c)| text.contains(*c) || valued.contains(*c));
            match found {
                _ if letters.is_empty() => return None,
                Some((_, c)) if text.contains(c) => return None,
                Some((at, _)) if at + 1 == letters.len() => drop(args.next()),
                _ => {}
            }
        } else {
            return Some(arg);
        }
    }
    None
}

/// The archive of `java -jar`.
fn jar<'a>(args: &[&'a str]) -> Option<&'a str> {
    let at = args.iter().position(|arg| *arg == "-jar")?;
    let harmless = |arg: &&str| ["-D", "-X", "-ea", "--enable-"].iter().any(|known| arg.starts_with(known));
    args[..at].iter().all(harmless).then(|| args.get(at + 1).copied()).flatten()
}

#[cfg(test)]
mod tests {
    use crate::pins::artifact::tests::launch;
    use crate::pins::artifact::{ArtifactKind, of_launch};
    use crate::pins::facet::Hash;

    #[test]
    fn e_10_the_script_is_hashed_and_not_the_value_of_an_option() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["s.js", "trace.js", "utf8", "run"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let read = |words: &str| {
            let mut launch = launch(words);
            launch.cwd = Some(folder.path().to_owned());
            of_launch(&launch)
        };
        for words in [
            "node --require ./trace.js s.js",
            "node -r trace.js s.js",
            "python -X utf8 s.js",
            "python -Xutf8 s.js",
            "deno run s.js",
            "deno run --config utf8 s.js",
            "bun run s.js",
            "uv run s.js",
            "uv run --python utf8 s.js",
        ] {
            let found = read(words);
            assert_eq!((&*found.name, found.kind, found.floating), ("s.js", ArtifactKind::Script, None), "{words}");
            assert_eq!(found.files.last().unwrap(), &folder.path().join("s.js"), "{words}");
        }
        assert!(read("uv --directory elsewhere run s.js").floating.is_some());
        let stub = folder.path().join("stub");
        std::fs::write(&stub, "#!/bin/sh\nexec x\n").unwrap();
        let mut launch = launch("stub");
        launch.program = stub;
        let found = of_launch(&launch).measure().unwrap();
        assert_eq!((found.kind, found.level), (ArtifactKind::Script, 1));
        assert_eq!(found.integrity, Some(Hash::of(b"#!/bin/sh\nexec x\n").to_string()));
    }
}
