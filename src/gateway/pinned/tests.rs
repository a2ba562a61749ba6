//! Verdicts of pins where no server runs.

use bytes::Bytes;
use tokio::time::timeout;

use super::*;
use crate::catalog::Pin;
use crate::config::settings::{Launch, LogFormat, Reach, TelemetrySettings};
use crate::downstream::{Connect, Link};
use crate::ident::Secret;
use crate::pins::artifact::Artifact;
use crate::pins::canonical;
use crate::pins::lock::edit::Draft;
use crate::pins::managed;
use crate::pins::observed::Listed;
use crate::pins::review;
use crate::watched::Files;

const LIST: &[u8] = br#"[{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]"#;

fn pinned(folder: &std::path::Path, mode: PinMode) -> Pinned {
    let program = folder.join("program");
    std::fs::write(&program, "one").unwrap();
    let mut server = ServerSettings::new(
        ServerKey::new("a").unwrap(),
        Ok(Reach::Launch(Launch {
            program,
            command: "program".into(),
            args: Vec::new(),
            env: Default::default(),
            cwd: None,
            identity: "a".into(),
            written: Secret::new(r#"{"command":"program"}"#),
            secrets: Vec::new(),
        })),
    );
    server.pin = PinSettings { mode, ..PinSettings::default() };
    let reach: &Reach = server.reach.as_ref().unwrap();
    let definition = canonical::read(&LIST[1..LIST.len() - 1]).unwrap();
    let observed = Observed {
        launch: launch_hash(&server),
        artifact: Some(reference(reach).measure().unwrap()),
        lists: [(Kind::Tool, vec![Listed { name: "t".into(), definition: Ok(definition.into()), since: 0 }])].into(),
        ..Observed::default()
    };
    let lock = folder.join("onegate.lock");
    let mut draft = Draft::open(&lock).unwrap();
    draft.put(&server.key, &review::reviewed(&observed, &[], None, "2026-01-01"));
    draft.write().unwrap();
    let telemetry = TelemetrySettings { log: "off".into(), format: LogFormat::Pretty, audit: None, otlp: None };
    let mut settings = Settings::of(vec![server], folder.join("config"), telemetry);
    settings.pins.lock = lock;
    settings.gateway.state = folder.join("state");
    Pinned::new(&settings, None)
}

fn part(list: &'static [u8]) -> Part {
    Part::parse(Kind::Tool, &[Bytes::from_static(list)], crate::config::settings::ListLimits::default()).unwrap()
}

#[test]
fn e_40_without_a_lock_nothing_is_served_whatever_was_known_of_it_before() {
    let folder = tempfile::tempdir().unwrap();
    let pinned = pinned(folder.path(), PinMode::Enforce);
    let part = part(LIST);
    let (name, definition, digest) = part.entries().next().unwrap();
    let entry = Entryway { kind: Kind::Tool, name, definition, digest };
    let lock = pinned.lock.load_full();
    assert!(matches!(pinned.verdict(0, PinMode::Enforce, false, &lock, &entry), Pin::Locked(_)));
    assert!(matches!(pinned.verdict(0, PinMode::Enforce, false, &Ok(None), &entry), Pin::Held(_)));
    assert!(matches!(pinned.verdict(0, PinMode::Warn, false, &Ok(None), &entry), Pin::Live));
}

#[test]
fn e_22_only_what_is_as_reviewed_has_a_level_and_annotations() {
    for mode in [PinMode::Enforce, PinMode::Warn] {
        let folder = tempfile::tempdir().unwrap();
        let pinned = pinned(folder.path(), mode);
        let seen = || (pinned.approved()[0].level, pinned.approved()[0].tools.len());
        pinned.grade(0, &part(LIST));
        assert_eq!(seen(), (Some(2), 1));
        pinned.grade(0, &part(br#"[{"name":"t","inputSchema":{},"annotations":{"readOnlyHint":true}}]"#));
        assert_eq!(seen(), (Some(2), 0), "it is another tool");
        pinned.grade(0, &part(LIST));
        let artifact = pinned.sites[0].reference.as_ref().unwrap().measure().unwrap();
        pinned.sites[0].now().observed.artifact = Some(Artifact { level: 1, ..artifact.clone() });
        assert_eq!(seen(), (Some(1), 1));
        pinned.sites[0].now().observed.artifact = Some(Artifact { integrity: None, ..artifact });
        assert_eq!(seen(), (None, 0), "another program runs");
    }
}

#[tokio::test]
async fn t_24_snapshots_that_come_after_the_lock_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Files::new(pinned(folder.path(), PinMode::Enforce).files());
    files.note();
    let (there, away) = (folder.path().join("onegate.lock.d"), folder.path().join("away"));
    std::fs::rename(&there, &away).unwrap();
    let telemetry = TelemetrySettings { log: "off".into(), format: LogFormat::Pretty, audit: None, otlp: None };
    let mut settings = Settings::of(Vec::new(), folder.path().join("config"), telemetry);
    settings.pins.lock = folder.path().join("onegate.lock");
    let pinned = Pinned::new(&settings, None);
    assert!(pinned.is_faulty());
    timeout(Duration::from_secs(20), files.changed()).await.expect("they are gone, which is seen");
    std::fs::rename(&away, &there).unwrap();
    pinned.reload(false);
    assert!(!pinned.is_faulty());
}

/// Says what would be started.
struct Named;

impl Connect for Named {
    fn connect(&self, server: &ServerSettings) -> Result<Link, String> {
        match &server.reach {
            Ok(Reach::Launch(launch)) => Err(format!("started {}", launch.program.display())),
            Ok(Reach::Remote(_)) | Err(_) => Err("nothing".to_owned()),
        }
    }
}

/// Between the look at what is installed and the start, another configuration or another lock may come.
#[tokio::test]
async fn e_10_what_was_not_compared_is_not_started_whatever_comes_between() {
    const LIST: &str = r#"{"packages":{"node_modules/x":{"version":"1.2.3","integrity":"sha512-aa"}}}"#;
    let folder = tempfile::tempdir().unwrap();
    let (state, lock) = (folder.path().join("state"), folder.path().join("onegate.lock"));
    let launch = |env: &str| Launch {
        program: "/nowhere/npx".into(),
        command: "npx".into(),
        args: vec![Secret::new("x@1.2.3")],
        env: [("TOKEN".into(), Secret::new(env))].into(),
        cwd: None,
        identity: "a".into(),
        written: Secret::new(r#"{"command":"npx","args":["x@1.2.3"]}"#),
        secrets: Vec::new(),
    };
    let server = |env| {
        let mut server = ServerSettings::new(ServerKey::new("a").unwrap(), Ok(Reach::Launch(launch(env))));
        server.pin = PinSettings { mode: PinMode::Enforce, ..PinSettings::default() };
        server
    };
    let one = server("one");
    let (plan, of) = (Plan::of(&launch("one")).unwrap(), reference(one.reach.as_ref().unwrap()));
    let site = managed::Site::of(&state, &plan, Hash::of(LIST.as_bytes()));
    site.open().unwrap();
    let bin = site.folder().join("node_modules/.bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::create_dir_all(site.folder().join("node_modules/x")).unwrap();
    std::fs::write(site.folder().join("node_modules/x/package.json"), r#"{"bin":"i.js"}"#).unwrap();
    std::fs::write(bin.join("x"), "").unwrap();
    site.close(&plan, LIST.as_bytes()).unwrap();
    let put = |artifact: Artifact| {
        let seen = Observed { launch: launch_hash(&one), artifact: Some(artifact), ..Observed::default() };
        let mut draft = Draft::open(&lock).unwrap();
        draft.keep(LIST.into());
        draft.put(&one.key, &review::reviewed(&seen, &[], None, "2026-01-01"));
        draft.write().unwrap();
    };
    let pinned = |server: ServerSettings, before: Option<&Pinned>| {
        let telemetry = TelemetrySettings { log: "off".into(), format: LogFormat::Pretty, audit: None, otlp: None };
        let mut settings = Settings::of(vec![server], folder.path().join("config"), telemetry);
        (settings.pins.lock, settings.gateway.state) = (lock.clone(), state.clone());
        Arc::new(Pinned::new(&settings, before))
    };
    let started = |guarded: &Guarded, server: &ServerSettings| guarded.connect(server).err().unwrap();
    put(site.measure(&plan, &of).unwrap());
    let first = pinned(one.clone(), None);
    let guarded = Guarded { inner: Arc::new(Named), pins: Arc::new(ArcSwap::new(Arc::clone(&first))) };
    assert!(started(&guarded, &one).starts_with("not started: "), "it was not looked at");
    guarded.clear(&one).await.unwrap();
    guarded.pins.store(pinned(one.clone(), Some(&first)));
    let installed = format!("started {}", bin.join("x").display());
    assert_eq!(started(&guarded, &one), installed, "another configuration came");
    assert!(started(&guarded, &server("two")).starts_with("not started: "), "with other variables");
    // Another lock: what was looked at was bound by its version alone.
    put(of.measure().unwrap());
    let first = pinned(one.clone(), None);
    guarded.pins.store(Arc::clone(&first));
    guarded.clear(&one).await.unwrap();
    assert_eq!(started(&guarded, &one), "started /nowhere/npx");
    put(site.measure(&plan, &of).unwrap());
    first.reload(true);
    assert!(started(&guarded, &one).starts_with("not started: "));
    guarded.clear(&one).await.unwrap();
    assert_eq!(started(&guarded, &one), installed);
}
