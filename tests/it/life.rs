//! Class B, processes: stderr, exits, restarts, and that nothing is left (D011–D019, contract §5).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::host::{Era, Host, PATIENCE, Setup, until};

/// What the contract promises a stdio host, and a little for the measuring on a busy machine.
const GONE: Duration = Duration::from_millis(1500 + 300);

#[test]
fn d011_a_mebibyte_of_stderr_before_each_answer() {
    for newline in [true, false] {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 1, "stderr_per_answer_kib": 1024, "stderr_newline": newline}))
            .open(Era::Legacy);
        host.tools_count(1);
        for _ in 0..5 {
            assert_eq!(host.call("a__t000", "{}").text(), "a:t000");
        }
        host.finish();
    }
}

/// STD-3, D-27.
#[test]
fn d012_a_stderr_flood_is_bounded_and_its_end_is_kept() {
    for newline in [true, false] {
        let mut host = Setup::new()
            .server(
                "a",
                json!({"tool_count": 3, "acts": {
                    "t000": {"do": "stderr", "mib": 64, "newline": newline.then_some(true)},
                    "t001": {"do": "exit", "code": 3, "stderr": "\nLAST-WORDS of the server\n"},
                }}),
            )
            .server("b", json!({"tool_count": 1}))
            .open(Era::Legacy);
        host.tools_count(4);
        let id = host.post_call("a__t000", "{}");
        assert_eq!(host.call("b__t000", "{}").text(), "b:t000");
        assert_eq!(host.answer(&id).text(), "a:t000");
        let peak = host.peak_kib();
        assert!(peak < 48 << 10, "peak memory {peak} KiB");
        assert_eq!(host.call("a__t001", "{}").code(), -32603);
        host.wait_stderr("LAST-WORDS");
        let log = host.stderr().len();
        assert!(log < 512 << 10, "the log has {log} bytes");
        host.finish();
    }
}

/// The servers that do not end by themselves, each a scenario.
fn stubborn() -> Vec<serde_json::Value> {
    vec![
        json!({"tool_count": 1, "wrapper": true}),
        json!({"tool_count": 1, "ignore_eof": true}),
        json!({"tool_count": 1, "ignore_eof": true, "ignore_term": true}),
        json!({"tool_count": 1, "ignore_eof": true, "ignore_term": true, "wrapper": true}),
        json!({"tool_count": 1, "grandchild": true}),
        json!({"tool_count": 1, "grandchild": true, "ignore_term": true, "wrapper": true, "era": "modern"}),
    ]
}

fn with_stubborn(also_deaf: bool) -> Host {
    let mut setup = Setup::new().server("polite", json!({"tool_count": 1}));
    let stubborn = stubborn();
    let count = stubborn.len() + 1;
    for (n, scenario) in stubborn.into_iter().enumerate() {
        setup = setup.server(&format!("s{n}"), scenario);
    }
    if also_deaf {
        setup = setup.server("deaf", json!({"deaf": true, "ignore_term": true}));
    }
    let mut host = setup.open(Era::Legacy);
    host.tools_count(count);
    assert!(host.processes().len() >= count + 5, "{:#?}", host.processes());
    host
}

/// STD-1, STD-2, D-31.
#[test]
fn d013_d014_end_of_input_ends_everything_in_time() {
    ends_in_time(with_stubborn(true), Host::close_input);
}

#[test]
fn d013_d014_term_ends_everything_in_time() {
    ends_in_time(with_stubborn(false), |host| host.signal("TERM"));
}

fn ends_in_time(mut host: Host, end: impl FnOnce(&mut Host)) {
    let begun = Instant::now();
    end(&mut host);
    let status = host.wait_end(PATIENCE);
    host.all_gone(PATIENCE);
    let took = begun.elapsed();
    assert_eq!(status.code(), Some(0), "{}", host.stderr());
    assert!(took < GONE, "took {took:?}");
}

#[test]
fn d013_children_that_left_the_group_end_too() {
    for signal in [None, Some("TERM")] {
        let mut host = Setup::new()
            .server("polite", json!({"tool_count": 1, "grandchild": true, "grandchild_group": true}))
            .server("stays", json!({"tool_count": 1, "grandchild": true, "grandchild_group": true, "ignore_eof": true}))
            .server("wrap", json!({"tool_count": 1, "grandchild": true, "grandchild_group": true, "ignore_term": true, "wrapper": true}))
            .open(Era::Legacy);
        host.tools_count(3);
        // Servers and their children, the wrapper; and the program itself.
        until("all are there", PATIENCE, || host.processes().len() > 3 + 3 + 1);
        match signal {
            Some(signal) => host.signal(signal),
            None => host.close_input(),
        }
        let begun = Instant::now();
        assert_eq!(host.wait_end(PATIENCE).code(), Some(0));
        host.all_gone(PATIENCE);
        assert!(begun.elapsed() < GONE, "took {:?}", begun.elapsed());
    }
}

#[test]
fn d013_d014_when_killed_outright_everything_goes_too() {
    let mut host = with_stubborn(false);
    host.signal("KILL");
    host.wait_end(PATIENCE);
    host.all_gone(Duration::from_secs(5));
}

#[test]
fn interrupt_ends_with_130_and_leaves_nothing() {
    let mut host = Setup::new().server("a", json!({"tool_count": 1, "ignore_eof": true})).open(Era::Legacy);
    host.tools_count(1);
    host.signal("INT");
    let code = host.wait_end(PATIENCE).code();
    host.all_gone(GONE);
    assert!(matches!(code, Some(0 | 130)), "{code:?}");
}

#[test]
fn end_of_input_while_calls_run_and_servers_start() {
    let mut host = Setup::new()
        .server("a", json!({"tool_count": 1, "act": {"do": "never"}, "ignore_eof": true}))
        .server("slow", json!({"start_gate": "/nonexistent/gate", "ignore_term": true}))
        .server("wrapped", json!({"start_gate": "/nonexistent/gate", "ignore_eof": true, "wrapper": true}))
        .server("probed", json!({"discover": "silent"}))
        .open(Era::Legacy);
    host.tools_count(1);
    host.post_call("a__t000", "{}");
    until("the call has arrived", PATIENCE, || !host.received_of("a", "tools/call").is_empty());
    let begun = Instant::now();
    host.close_input();
    assert_eq!(host.wait_end(PATIENCE).code(), Some(0));
    host.all_gone(PATIENCE);
    assert!(begun.elapsed() < GONE, "took {:?}", begun.elapsed());
}

#[test]
fn end_of_input_before_anything_was_said() {
    let host = Setup::new().server("a", json!({"tool_count": 1})).start();
    host.finish();
    let host = Setup::new().start();
    host.finish();
}

#[test]
fn answers_under_way_are_written_before_the_end() {
    // The host may close its end right after the last request; what can be answered at once is.
    let mut host = Setup::new().server("a", json!({"tool_count": 1})).open(Era::Legacy);
    host.tools_count(1);
    let id = host.post("ping", "");
    host.close_input();
    assert_eq!(host.answer(&id).result(), "{}");
    host.finish();
}

/// CON-6.
#[test]
fn d015_a_server_that_exits_after_each_answer_is_started_again() {
    for era in Era::ALL {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 1, "era": era.word(), "exit_after": 1, "exit_delay_ms": 50}))
            .open(era);
        host.tools_count(1);
        for round in 1..=3 {
            assert_eq!(host.call("a__t000", "{}").text(), "a:t000", "round {round}");
            host.ended("a");
        }
        // A process may have ended while it was asked for its list; then one more was started.
        assert!((3..=5).contains(&host.starts("a")), "{}", host.starts("a"));
        host.finish();
    }
}

#[test]
fn d015_a_call_in_flight_at_exit_fails_once_and_is_not_repeated() {
    for code in [0, 3] {
        let mut host = Setup::new()
            .server(
                "a",
                json!({"tool_count": 3, "acts": {
                    "t000": {"do": "never"}, "t001": {"do": "exit", "code": code, "stderr": "BYE\n"},
                }}),
            )
            .server("b", json!({"tool_count": 1}))
            .open(Era::Legacy);
        host.tools_count(4);
        let lost = host.post_call("a__t000", r#"{"once":1}"#);
        until("it has arrived", PATIENCE, || host.received_of("a", "tools/call").len() == 1);
        let ended = host.post_call("a__t001", "{}");
        for id in [lost, ended] {
            let answer = host.answer(&id);
            assert_eq!((answer.code(), answer.reason().as_str()), (-32603, "downstream-unavailable"));
            assert_eq!(answer.error()["data"]["server"], "a");
        }
        assert_eq!(host.call("b__t000", "{}").text(), "b:t000");
        assert_eq!(host.call("a__t002", "{}").text(), "a:t002");
        let calls = host.received_of("a", "tools/call");
        let once = calls.iter().filter(|c| c["params"].get().contains("once")).count();
        assert_eq!(once, 1, "a call was repeated");
        host.finish();
    }
}

#[test]
fn d015_calls_close_to_the_exit_are_answered_one_way_or_the_other() {
    let mut host =
        Setup::new().server("a", json!({"tool_count": 1, "exit_after": 2, "exit_delay_ms": 5})).open(Era::Legacy);
    host.tools_count(1);
    for n in 0..8 {
        let answer = host.call("a__t000", &format!(r#"{{"n":{n}}}"#));
        if answer.raw("error").is_some() {
            assert_eq!(answer.reason(), "downstream-unavailable", "{}", answer.line);
        } else {
            assert_eq!(answer.text(), "a:t000");
        }
    }
    for n in 0..8 {
        let mark = format!(r#"{{"n":{n}}}"#);
        let sent = host.received("a").iter().filter(|l| l.contains(&mark)).count();
        assert!(sent <= 1, "call {n} was sent {sent} times");
    }
    host.finish();
}

#[test]
fn d016_the_exit_code_and_the_last_words_are_told() {
    for (code, words) in
        [(3, "cannot open the database: permission denied"), (127, "module \u{1b}[31mnot found\u{1b}[0m \u{202e}")]
    {
        let scenario = json!({"exit_at_start": code, "stderr_at_start": format!("{words}\n")});
        let mut host =
            Setup::new().server("broken", scenario.clone()).server("fine", json!({"tool_count": 1})).open(Era::Legacy);
        assert_eq!(host.tools(), ["fine__t000"]);
        host.wait_stderr(&code.to_string());
        host.wait_stderr(words.split(['\u{1b}', ':']).next().unwrap());
        let log = host.stderr();
        assert!(log.contains("broken"));
        assert!(!log.contains("\u{1b}[31m") && !log.contains('\u{202e}'), "not escaped: {log:?}");
        host.finish();

        let shown = Setup::new().server("broken", scenario).output(&["tools", "broken"]);
        assert_eq!(shown.code, Some(4), "{}\n{}", shown.out, shown.err);
        let said = format!("{}{}", shown.out, shown.err);
        assert!(said.contains("broken") && said.contains(&code.to_string()), "{said}");
        assert!(!said.contains("\u{1b}[31m") && !said.contains('\u{202e}'), "not escaped: {said:?}");
    }
}

#[test]
fn d017_a_crashing_server_is_not_started_in_a_loop() {
    let mut host = Setup::new()
        .server("crash", json!({"exit_at_start": 1}))
        .server("half", json!({"tool_count": 1, "list": r#"{"jsonrpc":"2.0","id":@ID@,"result":"#, "exit_after": 1, "initialize": "die"}))
        .server("fine", json!({"tool_count": 1}))
        .open(Era::Legacy);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        for _ in 0..20 {
            assert_eq!(host.tools(), ["fine__t000"]);
            assert_eq!(host.call("crash__t000", "{}").raw("result"), None);
        }
    }
    assert_eq!(host.call("fine__t000", "{}").text(), "fine:t000");
    let (crash, half) = (host.starts("crash"), host.starts("half"));
    // Each of at most five failures may cost two starts: the probe takes one (PRB-2).
    assert!((2..=10).contains(&crash), "started {crash} times");
    assert!((2..=10).contains(&half), "started {half} times");
    host.finish();
}

#[test]
fn d018_many_first_calls_start_one_process() {
    for era in Era::ALL {
        let setup = Setup::new();
        let gate = setup.path("gate");
        let mut host = setup.server("a", json!({"tool_count": 2, "era": era.word(), "start_gate": gate})).start();
        host.open(era);
        // Names are known by their server's key even before the first list (N-9).
        let ids: Vec<String> = (0..50).map(|n| host.post_call(&format!("a__t{:03}", n % 2), "{}")).collect();
        std::fs::write(&gate, "").unwrap();
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(host.answer(id).text(), format!("a:t{:03}", n % 2));
        }
        assert_eq!(host.starts("a"), 1);
        host.finish();
    }
}

#[test]
fn d018_many_calls_after_an_exit_start_one_process() {
    let mut host = Setup::new()
        .server("a", json!({"tool_count": 2, "acts": {"t001": {"do": "exit", "code": 0, "answer": true}}}))
        .open(Era::Legacy);
    host.tools_count(2);
    assert_eq!(host.call("a__t001", "{}").text(), "a:t001");
    host.ended("a");
    let ids: Vec<String> = (0..50).map(|_| host.post_call("a__t000", "{}")).collect();
    for id in &ids {
        assert_eq!(host.answer(id).text(), "a:t000");
    }
    assert_eq!(host.starts("a"), 2);
    host.finish();
}

#[test]
fn d019_runs_one_after_another_leave_nothing() {
    let setup = Setup::new();
    let config = setup.server("a", json!({"tool_count": 1, "wrapper": true}));
    for _ in 0..5 {
        let shown = config.output(&["tools", "--json"]);
        assert_eq!(shown.code, Some(0), "{}", shown.err);
        until("nothing is left", Duration::from_secs(3), || crate::host::processes_of(config.dir()).is_empty());
    }
}

#[test]
fn idle_servers_are_stopped_and_come_back() {
    let mut host = Setup::new().server_with("a", json!({"tool_count": 1}), "idle_stop = \"300ms\"").open(Era::Legacy);
    host.tools_count(1);
    host.ended("a");
    assert_eq!(host.tools(), ["a__t000"], "its list is remembered");
    assert_eq!(host.call("a__t000", "{}").text(), "a:t000");
    assert_eq!(host.starts("a"), 2);
    host.finish();
}
