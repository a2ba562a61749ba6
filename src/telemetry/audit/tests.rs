//! Files of records: what stands in them after each way to begin, go on and end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use super::chain::{Break, Line, Link};
use super::queue::{MAX_BYTES, MAX_RECORDS};
use super::*;
use crate::caller::Caller;
use crate::ident::Principal;
use crate::protocol::version::Revision;

const SOON: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn settings(folder: &Path) -> AuditSettings {
    AuditSettings { file: folder.join("audit/audit.jsonl"), keep: 30 * DAY, values: Vec::new(), place: "here".into() }
}

/// Writes so many records in a process of its own, so to speak.
fn run(settings: &AuditSettings, count: usize) {
    let (audit, keeper) = Audit::open(settings).unwrap();
    for n in 0..count {
        record(&audit, &format!("t{n}"), b"{}");
    }
    assert!(keeper.finish(SOON));
}

fn record(audit: &Audit, exposed: &str, arguments: &[u8]) {
    let caller =
        Caller { principal: Principal::key("ann"), session: Some(7), ..Caller::stdio(Revision::LATEST_LEGACY) };
    let mut record = audit.begin(&Asked { caller: &caller, method: "tools/call", exposed: Some(exposed) });
    record.item("files", "tool", "native");
    let verdict = Verdict {
        word: "allow",
        reason: None,
        rule: Some("x"),
        policy: Some("p"),
        pin: None,
        arguments: Some(arguments),
    };
    record.decided(&verdict);
    record.end(&Ended { word: "ok", code: None, reason: None });
}

fn lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
}

/// All lines follow each other; answers what events there are, `-` for a decision.
fn follow(link: &mut Link, file: &Path) -> String {
    let one = |line: &String| match link.follow(line.as_bytes()).unwrap().event.as_deref() {
        Some(event) => event[..1].to_owned(),
        None => "-".to_owned(),
    };
    lines(file).iter().map(one).collect()
}

fn events(file: &Path) -> String {
    follow(&mut Link::default(), file)
}

#[test]
fn r36_a_chain_goes_over_processes_and_ends_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    run(&settings, 2);
    assert_eq!(events(&settings.file), "b--e");
    run(&settings, 1);
    assert_eq!(events(&settings.file), "b--es-e");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&settings.file), mode(&folder.path().join("audit"))), (0o600, 0o700));
    let line: serde_json::Value = serde_json::from_str(&lines(&settings.file)[1]).unwrap();
    for (member, value) in [
        ("principal", "key:ann"),
        ("method", "tools/call"),
        ("exposed", "t0"),
        ("server", "files"),
        ("kind", "tool"),
        ("native", "native"),
        ("verdict", "allow"),
        ("rule", "x"),
        ("policy", "p"),
        ("outcome", "ok"),
    ] {
        assert_eq!(line[member], value, "{line}");
    }
    assert!(line["session"].as_str().unwrap().ends_with("-7") && line["pin"].is_null(), "{line}");
    assert!(line["duration_ms"].is_number() && line.as_object().unwrap().contains_key("reason"), "{line}");
}

#[test]
fn r36_named_values_are_written_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let values = ["/path", "/long", "/none"].map(str::to_owned).to_vec();
    let settings = AuditSettings { values, ..settings(folder.path()) };
    let (audit, keeper) = Audit::open(&settings).unwrap();
    let long = "l".repeat(2000);
    record(&audit, "t", format!(r#"{{"path":"/srv","token":"hush","long":"{long}"}}"#).as_bytes());
    assert!(keeper.finish(SOON));
    let line = &lines(&settings.file)[1];
    let told: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(told["values"], serde_json::json!({"/path": "/srv"}));
    assert_eq!(told["omitted"], serde_json::json!(["/long"]));
    assert!(!line.contains("hush") && !line.contains("token") && !line.contains("lll"), "{line}");
    assert!(lines(&settings.file)[0].contains(r#""values":["/path","/long","/none"]"#));
}

#[test]
fn r36_a_record_that_is_dropped_was_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let (audit, keeper) = Audit::open(&settings).unwrap();
    let caller = Caller::stdio(Revision::LATEST_MODERN);
    drop(audit.begin(&Asked { caller: &caller, method: "tools/call", exposed: Some("x") }));
    assert!(keeper.finish(SOON));
    let line = &lines(&settings.file)[1];
    assert!(line.contains(r#""verdict":"none""#) && line.contains(r#""outcome":"cancelled""#), "{line}");
}

#[test]
fn a_line_that_was_cut_off_is_told_apart_and_the_chain_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    run(&settings, 2);
    let whole = fs::read(&settings.file).unwrap();
    // Within the last record, which is a decision then; and just before its end.
    let last = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for (cut, torn) in [(last + 20, true), (last, false), (last - 1, false)] {
        fs::write(&settings.file, &whole[..cut]).unwrap();
        run(&settings, 1);
        let lines = lines(&settings.file);
        let start = lines.iter().position(|line| line.contains(r#""event":"start""#)).unwrap();
        let read = Line::read(lines[start].as_bytes()).unwrap();
        assert_eq!(read.torn, torn, "{cut}");
        if torn {
            let before = &lines[start - 1];
            assert_eq!(Line::read(before.as_bytes()), None);
            assert_eq!(read.prev, Some(chain::hash_of(before.as_bytes())));
        } else {
            assert_eq!(events(&settings.file), "b--s-e", "{cut}");
        }
    }
    // Not even the first line.
    fs::write(&settings.file, &whole[..60]).unwrap();
    run(&settings, 1);
    assert_eq!(events(&settings.file), "b-e");
}

#[test]
fn e40_what_is_no_audit_file_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    fs::create_dir(folder.path().join("audit")).unwrap();
    for text in ["precious\n", "{\"seq\":1,\"prev\":null}\n", "{}"] {
        fs::write(&settings.file, text).unwrap();
        let why = Audit::open(&settings).err().unwrap().to_string();
        assert!(why.starts_with("here: telemetry.audit.file: `") && why.contains("no audit file"), "{why}");
        assert_eq!(fs::read_to_string(&settings.file).unwrap(), text);
    }
    fs::remove_file(&settings.file).unwrap();
    assert!(Audit::check(&settings).is_ok() && !settings.file.exists());
    fs::create_dir(&settings.file).unwrap();
    assert!(Audit::open(&settings).is_err() && Audit::check(&settings).is_err());
    let below = AuditSettings { file: "/dev/null/x/audit.jsonl".into(), ..settings.clone() };
    assert!(Audit::open(&below).is_err() && Audit::check(&below).is_err());
    fs::remove_dir(&settings.file).unwrap();
    std::os::unix::fs::symlink("/dev/null", &settings.file).unwrap();
    assert!(Audit::open(&settings).is_err());
}

#[test]
fn a_second_process_writes_beside_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let second = folder.path().join("audit/audit.2.jsonl");
    let (audit, keeper) = Audit::open(&settings).unwrap();
    assert!(is_written(&settings.file) && !is_written(&second));
    run(&settings, 3);
    record(&audit, "t", b"{}");
    assert!(keeper.finish(SOON));
    assert_eq!((events(&settings.file).as_str(), events(&second).as_str()), ("b-e", "b---e"));
    assert!(!is_written(&settings.file));
    assert_eq!(family(&settings.file).unwrap(), [second, settings.file.clone()]);
    run(&settings, 1);
    assert_eq!(events(&settings.file), "b-es-e", "a place that is free again is taken");
}

#[test]
fn a_new_day_begins_a_new_file_and_old_ones_go() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let mut log = Log::open(&settings, "p").unwrap();
    let now = SystemTime::now();
    let one = [br#""n":1"#.to_vec()];
    log.write(now, &one, 0);
    log.write(now + DAY, &one, 0);
    log.write(now + DAY * 2, &one, 0);
    let all = family(&settings.file).unwrap();
    assert_eq!(all.len(), 3, "{all:?}");
    let past: Vec<_> = all.iter().filter(|path| **path != settings.file).collect();
    let mut link = Link::default();
    let told: Vec<_> = past.iter().map(|path| follow(&mut link, path)).collect();
    assert_eq!((told.join(" "), follow(&mut link, &settings.file)), ("b- b-".to_owned(), "b-".to_owned()));
    // Files were written when they say so; here that is now, all of them. Of a clock that alone says otherwise none is old.
    log.write(now + DAY * 40, &one, 0);
    assert_eq!(family(&settings.file).unwrap().len(), 4, "a clock that was set takes nothing along");
    let age = |path: &Path| fs::File::options().append(true).open(path).unwrap().set_modified(now - DAY * 40).unwrap();
    past.iter().for_each(|path| age(path));
    // By its name alone nothing goes.
    let foreign = settings.file.with_file_name("audit.20260101T000000Z-1.jsonl");
    for text in ["precious\n", "", "{\"seq\":1,\"prev\":null,\"event\":\"end\"}\n"] {
        fs::write(&foreign, text).unwrap();
        age(&foreign);
        log.forget_old(SystemTime::now());
        assert!(foreign.exists(), "{text}");
    }
    fs::remove_file(&foreign).unwrap();
    let kept = family(&settings.file).unwrap();
    assert!(kept.len() == 2 && kept.contains(&settings.file), "only what goes on and is young is kept: {kept:?}");
    assert_eq!(follow(&mut link.clone(), &settings.file), "b-");
    // A file of another process that has ended goes too, one that somebody has does not.
    let (ended, held) = (settings.file.with_file_name("audit.2.jsonl"), settings.file.with_file_name("audit.3.jsonl"));
    run(&settings, 0);
    fs::copy(&ended, &held).unwrap();
    [&ended, &held].into_iter().for_each(|path| age(path));
    let other = names::lock(&held).unwrap();
    log.write(now + DAY * 80, &one, 0);
    assert!(!ended.exists() && held.exists());
    drop(other);
}

#[test]
fn a_file_that_is_taken_away_is_followed_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let mut log = Log::open(&settings, "p").unwrap();
    let moved = folder.path().join("moved");
    fs::rename(&settings.file, &moved).unwrap();
    log.write(SystemTime::now(), &[br#""n":1"#.to_vec()], 0);
    let mut link = Link::default();
    assert_eq!((follow(&mut link, &moved), follow(&mut link, &settings.file)), ("b".to_owned(), "b-".to_owned()));
}

#[test]
fn d32_what_finds_no_place_is_counted_and_said() {
    for (length, places) in [(100, MAX_RECORDS), (1 << 20, MAX_BYTES >> 20)] {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let queue = Queue::default();
        for _ in 0..places + 5 {
            queue.push(format!("\"x\":\"{}\"", "x".repeat(length - 6)).into_bytes());
        }
        let (records, lost) = queue.take().unwrap();
        assert_eq!((records.len(), lost), (places, 5));
        let mut log = Log::open(&settings, "p").unwrap();
        log.write(SystemTime::now(), &records, lost);
        let last = lines(&settings.file).pop().unwrap();
        assert_eq!(Line::read(last.as_bytes()).unwrap().lost, 5, "{last}");
        assert_eq!(events(&settings.file).len(), places + 2);
        queue.push(vec![b'x']);
        queue.close();
        queue.push(vec![b'y']);
        assert_eq!(queue.take(), Some((vec![vec![b'x']], 1)), "what was there is written, what comes later is not");
        assert_eq!(queue.take(), None);
    }
}

#[test]
fn what_cannot_be_written_is_counted_and_what_follows_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let mut log = Log::open(&settings, "p").unwrap();
    let one = [br#""n":1"#.to_vec()];
    log.write(SystemTime::now(), &one, 0);
    log.break_for_tests(true);
    log.write(SystemTime::now(), &one, 0);
    log.write(SystemTime::now(), &one, 2);
    log.break_for_tests(false);
    log.write(SystemTime::now(), &one, 0);
    assert_eq!(events(&settings.file), "b--l");
    assert_eq!(Line::read(lines(&settings.file)[3].as_bytes()).unwrap().lost, 4);
}

#[test]
fn r36_lines_that_were_tampered_with_are_found_by_number() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    run(&settings, 3);
    let text = fs::read_to_string(&settings.file).unwrap();
    let broken = |text: &str| {
        let mut link = Link::default();
        text.lines().enumerate().find_map(|(n, line)| Some((n, link.follow(line.as_bytes()).err()?)))
    };
    assert_eq!(broken(&text), None);
    assert_eq!(broken(&text.replacen("key:ann", "key:bob", 1)), Some((2, Break::Hash)));
    let without: String =
        text.lines().filter(|line| !line.contains(r#""exposed":"t1""#)).map(|l| format!("{l}\n")).collect();
    assert_eq!(broken(&without), Some((2, Break::Number { expected: 3, found: 4 })));
}
