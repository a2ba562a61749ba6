//! Packages and images with scripted clients (threat model §3.2): npm, uv, pip and docker are small scripts on PATH that write
//! down what they are asked and put the fake server in the place of what they would run.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::host::{Era, Output, PATIENCE, Setup, fake, toml_list, toml_text, until};

const ENFORCE: &str = "[pins]\nmode = \"enforce\"\n";

/// What each script begins with: its own search path, and a line of the log.
fn script(setup: &Setup, name: &str, text: &str) {
    let (log, fake) = (setup.path("clients.log"), fake());
    let (log, fake) = (log.display(), fake.display());
    let text = text.replace("FAKE", &fake.to_string()).replace("LOG", &log.to_string());
    let path = setup.path("bin").join(name);
    std::fs::create_dir_all(setup.path("bin")).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\nPATH=/usr/bin:/bin\necho \"{name} $*\" >>{log}\n{text}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What the scripts were asked, and forgotten.
fn asked(setup: &Setup) -> Vec<String> {
    let log = setup.path("clients.log");
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    std::fs::write(&log, "").unwrap();
    text.lines().map(str::to_owned).collect()
}

const NPX: &str = "shift 2; exec FAKE \"$@\"\n";
const NPM: &str = r#"
version=$(sed 's/.*"x":"\([^"]*\)".*/\1/' package.json)
case "$1" in
install)
  [ "$version" = 6.6.6 ] && { echo "npm error code ETARGET" >&2; exit 1; }
  integrity=',"integrity":"sha512-'$version'"'
  [ "$version" = 5.5.5 ] && integrity=
  printf '{"packages":{"":{},"node_modules/x":{"version":"%s"%s}}}' "$version" "$integrity" >package-lock.json ;;
ci)
  grep -q "sha512-$version" package-lock.json || exit 1
  mkdir -p node_modules/x node_modules/.bin
  printf '{"bin":"i.sh"}' >node_modules/x/package.json
  printf '#!/bin/sh\necho installed x %s >>LOG\nexec FAKE "$@"\n' "$version" >node_modules/x/i.sh
  chmod 755 node_modules/x/i.sh
  ln -s ../x/i.sh node_modules/.bin/x ;;
esac
"#;
const UV: &str = r#"
case "$1 $2" in
"pip compile")
  while [ "$1" != --output-file ]; do shift; done
  printf '%s \\\n    --hash=sha256:aa\n' "$(cat "$3")" >"$2" ;;
"venv --quiet") mkdir -p venv/bin ;;
"pip install")
  printf '#!/bin/sh\necho installed >>LOG\nexec FAKE "$@"\n' >venv/bin/mcp-x
  chmod 755 venv/bin/mcp-x ;;
esac
"#;
const PYTHON: &str = r#"
mkdir -p venv/bin
cat >venv/bin/python <<'END'
#!/bin/sh
PATH=/usr/bin:/bin
echo "venv $*" >>LOG
case "$*" in
*--dry-run*)
  printf '{"install":[{"metadata":{"name":"mcp-x","version":"1.2"},"download_info":{"archive_info":{"hashes":{"sha256":"aa"}}}}]}' >report.json ;;
*)
  printf '#!/bin/sh\necho installed >>LOG\nexec FAKE "$@"\n' >venv/bin/mcp-x
  chmod 755 venv/bin/mcp-x ;;
esac
END
chmod 755 venv/bin/python
"#;

fn scenario(description: &str) -> Value {
    let tool = json!({"name": "t", "description": description, "inputSchema": {"type": "object"}});
    json!({"tools": [tool.to_string()]})
}

/// A server `a` that a runner starts, with only the scripts on PATH.
fn setup(command: &str, words: &[&str], clients: &[(&str, &str)]) -> Setup {
    let setup = Setup::new().head(ENFORCE);
    clients.iter().for_each(|(name, text)| script(&setup, name, text));
    let mut args: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
    args.extend(setup.scenario("a", scenario("Does it.")));
    let path = setup.path("bin");
    let table = format!("[servers.a]\ncommand = {}\nargs = {}\n", toml_text(command), toml_list(&args));
    setup.raw(&table).env("PATH", path.to_str().unwrap())
}

fn npm(version: &str) -> Setup {
    setup("npx", &["-y", &format!("x@{version}")], &[("npx", NPX), ("npm", NPM)])
}

#[track_caller]
fn ends(setup: &Setup, command: &[&str], code: i32) -> Output {
    let output = setup.output(command);
    assert_eq!(output.code, Some(code), "{command:?}\n{}{}", output.out, output.err);
    output
}

fn lock_text(setup: &Setup) -> String {
    std::fs::read_to_string(setup.path("onegate.lock")).unwrap()
}

/// The one folder that is installed.
fn folder(setup: &Setup) -> PathBuf {
    let all = std::fs::read_dir(setup.path("xdg/state/onegate/installed")).unwrap();
    all.map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap()
}

#[track_caller]
fn is_quarantined(setup: Setup, why: &str) -> Setup {
    let found: Value = serde_json::from_str(&ends(&setup, &["diff", "--json"], 3).out).unwrap();
    let quarantine = &found["servers"][0]["quarantine"];
    assert_eq!(quarantine["code"], "artifact-changed");
    assert!(quarantine["text"].as_str().unwrap().contains(why), "{quarantine}");
    asked(&setup);
    let mut host = setup.open(Era::Modern);
    assert_eq!(host.tools(), Vec::<String>::new());
    let refused = host.call("a__t", "{}");
    assert!(refused.code() == -32602 && refused.line.contains("server-quarantined"), "{}", refused.line);
    assert_eq!(asked(host.setup()), Vec::<String>::new(), "started");
    host.leave()
}

#[test]
fn e_10_an_npm_package_is_installed_bound_by_its_bytes_and_started_without_its_runner() {
    let setup = npm("1.2.3");
    let told = ends(&setup, &["lock", "--install"], 0);
    assert!(told.out.contains("npm x 1.2.3, level 2"), "{}", told.out);
    let text = lock_text(&setup);
    assert!(text.contains("integrity = \"sha512-1.2.3\"") && text.contains("packages = \"sha256:"), "{text}");
    let asked_for = asked(&setup);
    assert!(asked_for[0].starts_with("npm install --package-lock-only --ignore-scripts"), "{asked_for:?}");
    assert!(asked_for[1].starts_with("npm ci --ignore-scripts"), "{asked_for:?}");
    assert_eq!(asked_for[2..], ["installed x 1.2.3", "installed x 1.2.3"], "listed twice, without the runner");
    ends(&setup, &["verify"], 0);
    ends(&setup, &["lock", "--check"], 0);
    asked(&setup);
    let mut host = setup.open(Era::Legacy);
    assert_eq!(host.call("a__t", "{}").text(), "a:t");
    assert_eq!(asked(host.setup()), ["installed x 1.2.3"]);
    let setup = host.leave();
    // What is there is not installed again.
    ends(&setup, &["lock", "--install"], 0);
    assert_eq!(asked(&setup), Vec::<String>::new());
    // Other bytes.
    let code = folder(&setup).join("node_modules/x/i.sh");
    let good = std::fs::read(&code).unwrap();
    std::fs::write(&code, [&good[..], b"# evil\n"].concat()).unwrap();
    let setup = is_quarantined(setup, "node_modules/x/i.sh is another");
    let found: Value = serde_json::from_str(&ends(&setup, &["diff", "--json"], 3).out).unwrap();
    let hash = found["servers"][0]["launch"].as_str().unwrap().to_owned();
    ends(&setup, &["approve", "a", "server", "launch", "--hash", &hash], 1);
    // From the lock's own list, not a new one.
    ends(&setup, &["lock", "--install"], 0);
    let asked_for = asked(&setup);
    assert!(asked_for.len() == 1 && asked_for[0].starts_with("npm ci"), "{asked_for:?}");
    ends(&setup, &["lock", "--check"], 0);
    assert_eq!(lock_text(&setup), text, "nothing of the lock is another");
    // On another machine.
    std::fs::remove_dir_all(setup.path("xdg/state/onegate/installed")).unwrap();
    let setup = is_quarantined(setup, "it is not installed here as the lock says");
    ends(&setup, &["lock", "--check"], 3);
    ends(&setup, &["lock", "--install"], 0);
    ends(&setup, &["lock", "--check"], 0);
    // The list is a part of the lock: another one is not installed from, though it names the same package.
    let mut kept = std::fs::read_dir(setup.path("onegate.lock.d")).unwrap().map(|file| file.unwrap().path());
    let list = kept.find(|path| path.extension().is_some_and(|end| end == "packages")).unwrap();
    let whole = std::fs::read(&list).unwrap();
    std::fs::write(&list, [&whole[..], b"\n"].concat()).unwrap();
    std::fs::remove_dir_all(setup.path("xdg/state/onegate/installed")).unwrap();
    asked(&setup);
    assert!(ends(&setup, &["verify"], 5).err.contains("snapshot-wrong: a: its packages"));
    let told = ends(&setup, &["lock", "--install"], 1);
    assert!(told.err.contains("a cannot be installed: snapshot-wrong: a: its packages") && told.out.is_empty());
    std::fs::remove_file(&list).unwrap();
    let told = ends(&setup, &["lock", "--install"], 1);
    assert!(
        told.err.contains("a cannot be installed: snapshot-missing: a: its packages: there is no "),
        "{}",
        told.err
    );
    assert_eq!(asked(&setup), Vec::<String>::new());
    std::fs::write(&list, whole).unwrap();
    ends(&setup, &["lock", "--install"], 0);
}

#[test]
fn e_10_a_version_that_is_locked_is_bound_by_its_bytes_later_and_an_upgrade_stays_so() {
    let setup = npm("1.2.3");
    ends(&setup, &["lock"], 0);
    assert!(lock_text(&setup).contains("level = 1"));
    let mut host = setup.open(Era::Modern);
    assert_eq!(host.call("a__t", "{}").text(), "a:t");
    ends(host.setup(), &["lock", "--install"], 0);
    assert!(lock_text(host.setup()).contains("level = 2"), "nothing else is reviewed anew");
    // What runs is what was reviewed: it goes on, until it is started the next time.
    until("the lock is taken up", PATIENCE, || {
        ["the lock was changed", "the new configuration is in force"].iter().any(|word| host.stderr().contains(word))
    });
    assert_eq!(host.call("a__t", "{}").text(), "a:t");
    let setup = host.leave();
    ends(&setup, &["lock", "--check"], 0);
    let setup = setup.with("x@1.2.3", "x@1.3.0");
    ends(&setup, &["lock", "--check"], 3);
    assert!(ends(&setup, &["lock", "--install"], 1).err.contains("launched in another way than was reviewed"));
    asked(&setup);
    ends(&setup, &["lock", "--update"], 0);
    assert!(asked(&setup).contains(&"installed x 1.3.0".to_owned()));
    let text = lock_text(&setup);
    assert!(text.contains("integrity = \"sha512-1.3.0\"") && text.contains("level = 2"), "{text}");
    ends(&setup, &["lock", "--check"], 0);
    let kept = std::fs::read_dir(setup.path("onegate.lock.d")).unwrap();
    let lists = kept.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "packages"));
    assert_eq!(lists.count(), 1, "the old list is gone");
    let there = |setup: &Setup| {
        let all = std::fs::read_dir(setup.path("xdg/state/onegate/installed")).unwrap();
        let mut all: Vec<_> = all.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
        all.sort();
        all
    };
    assert_eq!(there(&setup).len(), 1, "what was installed from it too");
    // What an interrupted one left goes with the next.
    let half = setup.path("xdg/state/onegate/installed/.a");
    std::fs::create_dir(&half).unwrap();
    let kept = there(&setup);
    ends(&setup, &["lock", "--install"], 0);
    assert!(!half.exists() && there(&setup) == kept[1..], "{kept:?}");
}

#[test]
fn e_10_no_yes_takes_back_that_packages_are_bound_by_their_bytes() {
    let setup = npm("1.2.3");
    ends(&setup, &["lock", "--install"], 0);
    let text = lock_text(&setup);
    let is_refused = |setup: &Setup, remedy: &str| {
        let found: Value = serde_json::from_str(&ends(setup, &["diff", "--json"], 3).out).unwrap();
        let server = &found["servers"][0];
        assert!(server["unbound"].as_str().unwrap().contains(remedy), "{server}");
        let hash = server["launch"].as_str().unwrap().to_owned();
        for words in [&["a", "server", "launch"][..], &["--all"]] {
            let told = ends(setup, &[&["approve"], words, &["--hash", &hash]].concat(), 1).err;
            assert!(told.contains(remedy), "{words:?}: {told}");
        }
        assert_eq!(lock_text(setup), text);
    };
    // Another version, which is not installed: its runner would fetch it.
    let setup = setup.with("x@1.2.3", "x@1.3.0");
    let told = ends(&setup, &["diff", "--live"], 3).out;
    assert!(told.contains("now npm x 1.3.0, level 1") && told.contains("`onegate lock --update a`"), "{told}");
    assert!(!told.contains("onegate approve"), "{told}");
    is_refused(&setup, "`onegate lock --update a`");
    // On another machine, and with other bytes.
    let setup = setup.with("x@1.3.0", "x@1.2.3");
    let code = folder(&setup).join("node_modules/x/i.sh");
    std::fs::write(&code, [&std::fs::read(&code).unwrap()[..], b"# evil\n"].concat()).unwrap();
    is_refused(&setup, "`onegate lock --install` installs it anew");
    std::fs::remove_dir_all(setup.path("xdg/state/onegate/installed")).unwrap();
    is_refused(&setup, "`onegate lock --install a`");
    // A package that nobody can install is not bound by less either, named or not.
    let setup = setup.with("\"-y\"", "\"--registry=https://r.invalid\"");
    for words in [&["lock", "--update"][..], &["lock", "--update", "a"]] {
        assert!(ends(&setup, words, 1).err.contains("a cannot be installed: nobody knows what its option --registry"));
        assert_eq!(lock_text(&setup), text);
    }
    // What is no package any more is another server altogether.
    let setup = setup.with("command = \"npx\"", &format!("command = {}", toml_text(fake().to_str().unwrap())));
    let setup = setup.with("\"--registry=https://r.invalid\", \"x@1.2.3\", ", "");
    is_refused(&setup, "`onegate lock --update a`");
    let told = ends(&setup, &["lock", "--update", "a"], 0).out;
    assert!(told.contains("a: 1 definition; binary "), "{told}");
    ends(&setup, &["lock", "--check"], 0);
}

#[test]
fn e_10_what_cannot_be_bound_is_not_locked() {
    for (version, why) in
        [("6.6.6", "`npm install` failed: npm error code ETARGET"), ("5.5.5", "node_modules/x has no sha512")]
    {
        let setup = npm(version);
        let output = ends(&setup, &["lock", "--install"], 1);
        assert!(output.err.contains(why), "{}", output.err);
        assert!(!setup.path("onegate.lock").exists());
    }
    // A client that is not there, a package that floats, a program that is none.
    let setup = self::setup("npx", &["-y", "x@1.2.3"], &[("npx", NPX)]);
    assert!(ends(&setup, &["lock", "--install", "a"], 1).err.contains("npm is not found"));
    let setup = self::setup("npx", &["-y", "x"], &[("npx", NPX), ("npm", NPM)]);
    assert!(ends(&setup, &["lock", "--install", "a"], 1).err.contains("has no exact version"));
    let setup = Setup::new().head(ENFORCE).server("a", scenario("Does it."));
    assert!(ends(&setup, &["lock", "--install", "a"], 1).err.contains("it is not started by npx"));
    ends(&setup, &["lock", "--install"], 0);
}

#[test]
fn e_10_a_python_package_is_installed_by_uv_or_by_pip() {
    type Asked<'a> = &'a [&'a str];
    let cases: [(&str, &str, Asked<'_>); 2] = [
        ("uv", UV, &["uv pip compile --universal --generate-hashes", "uv venv", "uv pip install", "installed"]),
        (
            "python3",
            PYTHON,
            &[
                "python3 -m venv",
                "venv -m pip install --dry-run",
                "python3 -m venv",
                "venv -m pip install",
                "installed",
            ],
        ),
    ];
    for (client, text, steps) in cases {
        let setup = self::setup("uvx", &["mcp-x==1.2"], &[("uvx", "shift; exec FAKE \"$@\"\n"), (client, text)]);
        let told = ends(&setup, &["lock", "--install"], 0);
        assert!(told.out.contains("pypi mcp-x 1.2, level 2"), "{}", told.out);
        let asked_for = asked(&setup);
        for (asked, step) in asked_for.iter().zip(steps) {
            assert!(asked.starts_with(step), "{client}: {asked_for:?}");
        }
        assert!(asked_for.iter().any(|asked| asked.contains("--require-hashes")), "{asked_for:?}");
        assert!(asked_for.iter().all(|asked| !asked.contains("pip") || asked.contains("--only-binary :all:")));
        assert!(lock_text(&setup).contains("integrity = \"sha256:aa\""));
        ends(&setup, &["lock", "--check"], 0);
        asked(&setup);
        let mut host = setup.open(Era::Modern);
        assert_eq!(host.call("a__t", "{}").text(), "a:t");
        assert_eq!(asked(host.setup()), ["installed"]);
        let setup = host.leave();
        std::fs::write(folder(&setup).join("venv/bin/mcp-x"), "#!/bin/sh\n").unwrap();
        is_quarantined(setup, "venv/bin/mcp-x is another");
    }
}

/// The words of a run of this image; the scripted client runs what stands behind it.
fn image(image: &str) -> Setup {
    let run = "while [ \"$1\" != --scenario ]; do shift; done\nexec FAKE \"$@\"\n";
    setup("docker", &["run", "-i", "--rm", image], &[("docker", run)])
}

#[test]
fn e_09_e_10_an_image_is_pinned_by_its_digest() {
    let digest = |of: &str| format!("sha256:{}", of.repeat(32));
    let (old, new) = (digest("a1"), digest("b2"));
    let setup = image(&format!("acme/x:1@{old}"));
    assert!(ends(&setup, &["lock"], 0).out.contains("oci acme/x 1, level 2"));
    let text = lock_text(&setup);
    assert!(text.contains("kind = \"oci\"") && text.contains(&format!("integrity = \"{old}\"")), "{text}");
    ends(&setup, &["lock", "--check"], 0);
    asked(&setup);
    let mut host = setup.open(Era::Modern);
    assert_eq!(host.call("a__t", "{}").text(), "a:t");
    let setup = host.leave();
    assert!(asked(&setup)[0].starts_with(&format!("docker run -i --rm acme/x:1@{old}")));
    // Another digest, and a tag alone, whether reviewed or not: nothing is run.
    let setup = setup.with(&old, &new);
    let found: Value = serde_json::from_str(&ends(&setup, &["diff", "--json"], 3).out).unwrap();
    assert_eq!(found["servers"][0]["quarantine"]["code"], "launch-changed");
    let setup = nothing_runs(setup);
    let setup = setup.with(&format!("@{new}"), "");
    let found: Value = serde_json::from_str(&ends(&setup, &["diff", "--json"], 3).out).unwrap();
    assert_eq!(found["servers"][0]["quarantine"]["code"], "launch-changed");
    let told = ends(&setup, &["lock", "--update"], 0).out;
    assert!(told.contains("floating: the image `acme/x:1` is named without its digest"), "{told}");
    nothing_runs(setup);
    // Digest and name in the lock are compared too, not the way to launch alone.
    let setup = image(&format!("acme/x:1@{old}"));
    ends(&setup, &["lock"], 0);
    std::fs::write(setup.path("onegate.lock"), lock_text(&setup).replace(&old, &new)).unwrap();
    let found: Value = serde_json::from_str(&ends(&setup, &["diff", "--json"], 3).out).unwrap();
    assert_eq!(found["servers"][0]["quarantine"]["code"], "artifact-changed");
    nothing_runs(setup);
}

#[track_caller]
fn nothing_runs(setup: Setup) -> Setup {
    asked(&setup);
    let mut host = setup.open(Era::Legacy);
    assert_eq!(host.tools(), Vec::<String>::new());
    assert_eq!(host.call("a__t", "{}").code(), -32602);
    assert_eq!(asked(host.setup()), Vec::<String>::new(), "started");
    host.leave()
}
