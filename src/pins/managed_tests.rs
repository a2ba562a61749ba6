//! What is installed and started in the place of a package: lists, integrity values, starts.

use std::os::unix::fs::symlink;

use super::*;
use crate::config::settings::Reach;
use crate::pins::artifact::reference;

fn launch(words: &str) -> Launch {
    let mut words = words.split(' ').map(str::to_owned);
    let command = words.next().unwrap();
    Launch {
        program: PathBuf::from("/nowhere").join(&command),
        command,
        args: words.map(Secret::new).collect(),
        env: [("PATH".into(), Secret::new("/bin"))].into(),
        cwd: None,
        identity: String::new(),
        written: Secret::new(""),
        secrets: Vec::new(),
    }
}

pub(in crate::pins) fn plan(words: &str) -> Result<Plan, String> {
    Plan::of(&launch(words))
}

#[test]
fn e_10_what_a_runner_is_asked_for_can_be_installed_or_is_refused() {
    for (words, packages, entry, rest) in [
        ("npx -y @a/x@1.2.3 --flag", &["@a/x 1.2.3"][..], None, 2),
        ("npx --package=x@1.2.3 -p y@2.0.0 -- run it", &["x 1.2.3", "y 2.0.0"], Some("run"), 5),
        ("npm exec -- x@1.2.3 a", &["x 1.2.3"], None, 3),
        ("uvx mcp-x==1.2 a b", &["mcp-x 1.2"], Some("mcp-x"), 1),
        ("uvx --with y==2,z==3 mcp-x[cli]@1.2", &["y 2", "z 3", "mcp-x[cli] 1.2"], Some("mcp-x"), 3),
        ("uv tool run --from=p==1 serve", &["p 1"], Some("serve"), 4),
        ("pipx run --spec p==1 serve", &["p 1"], Some("serve"), 4),
    ] {
        let found = plan(words).unwrap();
        let named: Vec<_> = found.packages.iter().map(|(name, version)| format!("{name} {version}")).collect();
        assert_eq!(
            (&named[..], found.entry.as_deref(), found.rest),
            (&packages.iter().map(|&p| p.to_owned()).collect::<Vec<_>>()[..], entry, rest),
            "{words}"
        );
    }
    assert_eq!(plan("uvx --python 3.12 x==1").unwrap().python.as_deref(), Some("3.12"));
    for words in [
        "npx -y x",
        "npx -c x@1.2.3",
        "npx --registry http://r x@1.2.3",
        "npx",
        "npx -p",
        "npm exec x@1.2.3 --flag",
        "npm run x@1.2.3",
        "uvx x>=1",
        "uvx --with-editable . x==1",
        "npx -p x@1.2.3 ../../evil",
        "docker run x@1.2.3",
    ] {
        assert!(plan(words).is_err(), "{words}");
    }
}

#[test]
fn the_command_of_a_package_is_found_as_npx_finds_it() {
    for (about, command) in [
        (r#"{"bin":"./i.js"}"#, Some("x")),
        (r#"{"bin":{"mcp-y":"i.js"}}"#, Some("mcp-y")),
        (r#"{"bin":{"a":"i.js","x":"j.js"}}"#, Some("x")),
        (r#"{"bin":{"a":"i.js","b":"j.js"}}"#, None),
        (r#"{"bin":{"../a":"i.js"}}"#, None),
        ("{}", None),
    ] {
        assert_eq!(command_of("@a/x", &serde_json::from_str(about).unwrap()).as_deref(), command, "{about}");
    }
}

pub(super) const LIST: &str = r#"{"packages":{"node_modules/x":{"version":"1.2.3","integrity":"sha512-aa"}}}"#;

/// What `npm ci` would make.
pub(super) fn installed(state: &Path) -> (Site, Plan, Launch) {
    let launch = launch("npx -y x@1.2.3 --flag");
    let plan = Plan::of(&launch).unwrap();
    let site = Site::of(state, &plan, Hash::of(LIST.as_bytes()));
    site.open().unwrap();
    let package = site.folder().join("node_modules/x");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::create_dir_all(site.folder().join("node_modules/.bin")).unwrap();
    std::fs::write(package.join("package.json"), r#"{"bin":"i.js"}"#).unwrap();
    std::fs::write(package.join("i.js"), "serve()").unwrap();
    symlink("../x/i.js", site.folder().join("node_modules/.bin/x")).unwrap();
    (site, plan, launch)
}

#[test]
fn e_10_what_is_installed_is_compared_file_by_file() {
    let state = tempfile::tempdir().unwrap();
    let (site, plan, launch) = installed(state.path());
    let of = reference(&Reach::Launch(launch.clone()));
    assert!(site.measure(&plan, &of).is_none() && site.launch(&plan, &launch).is_none(), "half an installation");
    site.close(&plan, LIST.as_bytes()).unwrap();
    assert!(site.is_whole(&plan));
    let whole = site.measure(&plan, &of).unwrap();
    assert_eq!(
        (whole.level, whole.packages, whole.integrity.as_deref()),
        (2, Some(Hash::of(LIST.as_bytes())), Some("sha512-aa"))
    );
    assert_eq!(whole.difference(&whole), None);
    let entry = site.launch(&plan, &launch).unwrap();
    assert_eq!(entry.program, site.folder().join("node_modules/.bin/x"));
    assert_eq!(entry.args.iter().map(Secret::reveal).collect::<Vec<_>>(), ["--flag"]);
    assert!(entry.env[std::ffi::OsStr::new("PATH")].reveal().ends_with("node_modules/.bin:/bin"));
    // Of another version it is not that installation.
    let newer = Plan::of(&self::launch("npx -y x@1.2.4 --flag")).unwrap();
    assert!(site.measure(&newer, &of).is_none() && site.launch(&newer, &launch).is_none());
    let (code, bin) = (site.folder().join("node_modules/x/i.js"), site.folder().join("node_modules/.bin/x"));
    type Break<'a> = &'a dyn Fn();
    let cases: [(&str, Break<'_>, Break<'_>); 5] = [
        ("i.js is another", &|| std::fs::write(&code, "evil()").unwrap(), &|| {
            std::fs::write(&code, "serve()").unwrap()
        }),
        (
            "i.js is another",
            &|| std::fs::set_permissions(&code, std::fs::Permissions::from_mode(0o755)).unwrap(),
            &|| std::fs::set_permissions(&code, std::fs::Permissions::from_mode(0o644)).unwrap(),
        ),
        ("new.js is new", &|| std::fs::write(site.folder().join("node_modules/new.js"), "").unwrap(), &|| {
            std::fs::remove_file(site.folder().join("node_modules/new.js")).unwrap()
        }),
        (".bin/x is another", &|| std::fs::remove_file(&bin).and_then(|()| symlink("/bin/sh", &bin)).unwrap(), &|| {
            std::fs::remove_file(&bin).and_then(|()| symlink("../x/i.js", &bin)).unwrap()
        }),
        ("package.json is gone", &|| std::fs::remove_file(code.with_file_name("package.json")).unwrap(), &|| {}),
    ];
    for (what, break_it, mend) in cases {
        break_it();
        let found = site.measure(&plan, &of).unwrap();
        assert_eq!((found.level, &found.packages, &found.integrity), (0, &None, &None), "{what}");
        let told = found.difference(&whole).unwrap();
        assert!(told.contains(what) && told.contains("onegate lock --install"), "{told}");
        mend();
    }
    site.open().unwrap();
    assert!(site.measure(&plan, &of).is_none(), "begun anew");
}

#[test]
fn each_way_to_the_same_list_has_a_place_of_its_own() {
    let list = Hash::of(b"a==1 --hash=sha256:aa\nb==2 --hash=sha256:bb\n");
    let place = |words: &str, list| Site::of(Path::new("/state"), &plan(words).unwrap(), list).folder().to_owned();
    let one = place("uvx --from a==1 --with b==2 a", list);
    for words in ["uvx --from b==2 --with a==1 b", "uvx --python 3.12 --from a==1 --with b==2 a"] {
        assert_ne!(place(words, list), one, "{words}");
    }
    assert_ne!(place("uvx --from a==1 --with b==2 a", Hash::of(b"other")), one);
    assert_eq!(place("uvx --with b==2 --from a==1 a", list), place("uvx --with b==2 --from a==1 a x", list));
}

#[test]
fn what_is_locked_as_installed_is_not_the_version_alone() {
    let state = tempfile::tempdir().unwrap();
    let (site, plan, launch) = installed(state.path());
    site.close(&plan, LIST.as_bytes()).unwrap();
    let of = reference(&Reach::Launch(launch));
    let locked = site.measure(&plan, &of).unwrap();
    let runner = of.measure().unwrap();
    assert!(runner.difference(&locked).unwrap().contains("is not installed here"));
    let other = Artifact { packages: Some(Hash::of(b"other")), ..locked.clone() };
    assert!(other.difference(&locked).unwrap().contains("from the packages"));
}
