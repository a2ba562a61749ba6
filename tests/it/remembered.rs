//! The first list of a run that is not the first: it waits for no server and starts none, and what is another by then is
//! corrected.

use serde_json::{Value, json};

use crate::host::{Era, Host, PATIENCE, Setup, until};

fn tools(host: &mut Host) -> Vec<String> {
    let id = host.post("tools/list", "");
    let answer: Value = host.answer(&id).value();
    let tools = answer["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Runs once, so that what is listed is kept.
fn once(setup: Setup, count: usize) -> Setup {
    let mut host = setup.open(Era::Legacy);
    host.tools_count(count);
    let folder = host.path("xdg/state/onegate/catalogue");
    until("it is kept", PATIENCE, || std::fs::read_dir(&folder).is_ok_and(|files| files.count() == 1));
    host.leave()
}

/// A server that would never answer is listed and not started; the first call starts it, in both eras (N-9).
#[test]
fn n9_the_first_list_is_there_before_any_server() {
    for era in [Era::Legacy, Era::Modern] {
        let setup = once(Setup::new().server("a", json!({"tool_count": 3})), 3);
        let mut host = setup.open(era);
        host.tools_count(3);
        assert_eq!(host.starts("a"), 1, "{era:?}: it was started to list");
        // A name that nobody listed in this run is known.
        assert_eq!(host.call("a__t002", "{}").text(), "a:t002");
        assert_eq!(host.starts("a"), 2);
        host.finish();
    }
}

/// What lists something else by now is shown as it was until its first call starts it; then hosts are told.
#[test]
fn what_is_another_by_now_is_corrected() {
    let setup = once(Setup::new().server("a", json!({"tool_count": 2})), 2);
    setup.scenario("a", json!({"tool_count": 4}));
    let mut host = setup.open(Era::Legacy);
    host.tools_count(2);
    host.call("a__t001", "{}");
    until("the new list is there", PATIENCE, || tools(&mut host).len() == 4);
    host.finish();
}

/// Eager servers are started all the same, and so is one whose program is another, or of which nothing is kept.
#[test]
fn what_is_to_be_started_is_started() {
    let eager = |count| Setup::new().server_with("a", json!({"tool_count": count}), "start = \"eager\"");
    let setup = once(eager(1), 1);
    let mut host = setup.open(Era::Legacy);
    host.tools_count(1);
    until("it is started", PATIENCE, || host.starts("a") == 2);
    host.finish();
    let setup = once(Setup::new().server("a", json!({"tool_count": 1})), 1);
    for file in std::fs::read_dir(setup.path("xdg/state/onegate/catalogue")).unwrap() {
        std::fs::write(file.unwrap().path(), "spoiled").unwrap();
    }
    let mut host = setup.open(Era::Legacy);
    host.tools_count(1);
    assert_eq!(host.starts("a"), 2);
    host.finish();
}

/// What is kept is graded by the lock as it is now, and filtered by the configuration as it is now (INV-8).
#[test]
fn inv8_what_is_kept_is_filtered_and_graded_anew() {
    let setup = once(Setup::new().server("a", json!({"tool_count": 2})), 2);
    let mut host = setup.head("[policy]\ndefault = \"allow\"\n[[policy.rule]]\neffect = \"deny\"\nwho = [\"*\"]\ntarget = [\"a/tool/t000\"]").open(Era::Legacy);
    assert_eq!(tools(&mut host), ["a__t001"]);
    assert_eq!(host.starts("a"), 1);
    host.finish();
    let setup = once(Setup::new().server("a", json!({"tool_count": 2})), 2);
    // Nothing is locked, and all of it enforced.
    let mut host = setup.head("[pins]\nmode = \"enforce\"").open(Era::Legacy);
    assert_eq!(tools(&mut host), [""; 0]);
    host.finish();
}
