//! Ceilings and search by the whole program: what hosts are listed, find and call, and what commands say it costs.

use serde_json::{Value, json};

use crate::host::{Era, Host, PATIENCE, Setup, until};

fn tool(name: &str, description: &str) -> String {
    json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": {
        "path": {"type": "string", "description": description}}}})
    .to_string()
}

/// Two servers: `files` with three tools and `web` with two, of some size.
fn setup(profile: &str) -> Setup {
    sized(profile, 20)
}

/// The same, with descriptions of so many sentences.
fn sized(profile: &str, sentences: usize) -> Setup {
    let long = "It does so and says so, at some length, for everybody to read. ".repeat(sentences);
    let tools = |all: &[(&str, &str)]| -> Vec<String> {
        all.iter().map(|(name, what)| tool(name, &format!("{what} {long}"))).collect()
    };
    Setup::new()
        .head(&format!("[telemetry]\naudit = {{ file = \"audit.jsonl\" }}\n[profiles.default]\n{profile}"))
        .server(
            "files",
            json!({"tools": tools(&[("read_file", "Reads a file."), ("write_file", "Writes a file."), ("list_directory", "Lists a directory.")])}),
        )
        .server("web", json!({"era": "modern", "tools": tools(&[("fetch", "Fetches a page."), ("take_screenshot", "Takes an image of a page.")])}))
}

fn json_of(setup: &Setup, command: &[&str]) -> Value {
    let shown = setup.output(command);
    serde_json::from_str(&shown.out).unwrap_or_else(|_| panic!("{command:?}: {} {}", shown.out, shown.err))
}

fn found(host: &mut Host, query: &str) -> Vec<String> {
    let answer = host.call("onegate__search_tools", &json!({"query": query}).to_string());
    let tools = answer.value()["structuredContent"]["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn srf_1_hosts_of_both_eras_find_and_call_what_they_are_not_listed() {
    for era in [Era::Legacy, Era::Modern] {
        let mut host = setup("surface = \"search\"\ntools.always = [\"files/read_file\"]").open(era);
        let listed = host.tools_until("all servers", |tools| tools.len() == 3);
        assert_eq!(listed, ["files__read_file", "onegate__call_tool", "onegate__search_tools"]);
        until("both servers to be found", PATIENCE, || found(&mut host, "write a photo of a folder").len() >= 3);
        assert_eq!(found(&mut host, "photo")[0], "web__take_screenshot");
        let arguments = r#"{ "path" : "/a\u002fb", "n":1.50 }"#;
        let through = format!(r#"{{"arguments":{arguments},"name":"web__take_screenshot"}}"#);
        assert_eq!(host.call("onegate__call_tool", &through).text(), "web:take_screenshot");
        let sent = host.received("web").into_iter().find(|line| line.contains("tools/call")).unwrap();
        assert!(sent.contains(&format!(r#""arguments":{arguments}"#)), "byte for byte: {sent}");
        // By its name it can be called as well.
        assert_eq!(host.call("files__write_file", "{}").text(), "files:write_file");
        host.finish();
    }
}

#[test]
fn srf_3_commands_tell_what_lists_cost_and_what_saves_it() {
    let whole = json_of(&setup(""), &["tools", "--json"]);
    assert_eq!((&whole["estimator"], &whole["behind"]["items"]), (&json!("utf8-bytes/4"), &json!(0)));
    let most = 2000;
    assert!(whole["tokens"].as_u64().unwrap() > most, "{whole}");
    let ceiling = format!("max_tokens = {most}\ntrim = {{ description = 600 }}");
    let cut = json_of(&setup(&ceiling), &["tools", "--json"]);
    assert!(
        cut["tokens"].as_u64().unwrap() <= most && cut["saved"]["trims"]["bytes"].as_u64().unwrap() > 1000,
        "{cut}"
    );
    let read = cut["items"].as_array().unwrap().iter().find(|item| item["native"] == "read_file").unwrap();
    assert!(read["saved"]["trim"]["tokens"].as_u64().unwrap() > 300, "{read}");
    let listed = |item: &&Value| item["listed"] == true;
    let items = cut["items"].as_array().unwrap();
    let bytes: u64 = items.iter().filter(listed).map(|item| item["bytes"].as_u64().unwrap()).sum();
    assert_eq!(json!(bytes), cut["bytes"]);
    assert_eq!(items.iter().filter(|item| item["server"] != "onegate").count(), 5, "nothing is lost");
    let searched = setup("surface = \"search\"");
    let text = searched.output(&["tools"]).out;
    for part in ["onegate__search_tools", "by search", "saved by", "web"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let called = searched.output(&["call", "onegate__call_tool", r#"{"name":"web__fetch","arguments":{}}"#]);
    assert_eq!((called.code, called.out.trim()), (Some(0), "web:fetch"), "{}", called.err);
    // What was called is used, what was not can be left out.
    let unused = json_of(&searched, &["tools", "--unused", "30d", "--json"]);
    let names: Vec<_> = unused["unused"].as_array().unwrap().iter().map(|item| &item["native"]).collect();
    assert_eq!(names, ["read_file", "write_file", "list_directory", "take_screenshot"]);
    assert_eq!(unused["deny"]["web"], json!(["take_screenshot"]));
    let text = searched.output(&["tools", "--unused", "30d"]).out;
    assert!(text.contains("[servers.web]\ntools.deny = [\"take_screenshot\"]"), "{text}");
    // It can be pasted as it stands.
    std::fs::create_dir(searched.path("onegate.d")).unwrap();
    let remedy: Vec<&str> = text.lines().filter(|line| line.starts_with(['[', '#']) || line.contains(" = [")).collect();
    std::fs::write(searched.path("onegate.d/unused.toml"), remedy.join("\n")).unwrap();
    assert!(searched.output(&["tools", "--unused", "30d"]).out.ends_with("every tool was called\n"));
    let left = json_of(&searched, &["tools", "--json"]);
    assert_eq!((&left["behind"]["items"], &left["saved"]["by_reason"]["not-allowed"]["items"]), (&json!(1), &json!(4)));
}

/// By what is said when it is installed, never by what a host says of itself; alone, and by a gateway that serves both kinds.
#[test]
fn srf_2_auto_is_the_plain_list_for_a_host_that_defers() {
    let setup = sized("surface = \"auto\"", 200);
    let cost = |more: &[&str]| {
        let told = json_of(&setup, &[&["tools", "--json"], more].concat());
        (told["tokens"].as_u64().unwrap(), told["behind"]["items"].as_u64().unwrap())
    };
    assert!(matches!(cost(&[]), (0..1000, 5)) && matches!(cost(&["--host-defers"]), (10_001.., 0)));
    let open = "[auth]\nmode = \"none\"\n[policy]\ndefault = \"allow\"";
    let mut serve = setup.head("[admin]\nattach = \"auto\"").head(open).start_as(&["serve", "--listen", "127.0.0.1:0"]);
    serve.wait_stderr("listening on");
    let config = serve.path("onegate.toml");
    let run = ["run", "--config", config.to_str().unwrap()];
    let mut hosts = [serve.beside(&run, &[]), serve.beside(&[&run[..], &["--host-defers"]].concat(), &[])];
    let look = |hosts: &mut [Host; 2]| {
        assert_eq!(hosts[0].tools_count(2), ["onegate__call_tool", "onegate__search_tools"]);
        assert!(hosts[1].tools_count(5).iter().all(|name| !name.starts_with("onegate__")));
    };
    for host in &mut hosts {
        host.open(Era::Legacy);
        host.wait_stderr("attached to the gateway of process");
    }
    look(&mut hosts);
    assert_eq!(serve.starts("files"), 3, "two commands and the one gateway");
    serve.signal("TERM");
    serve.wait_end(PATIENCE);
    for host in &hosts {
        host.wait_stderr("going on alone");
    }
    look(&mut hosts);
    hosts.into_iter().for_each(Host::finish);
}

#[test]
fn srf_3_each_means_says_what_it_saves() {
    let setup = setup("trim = { description = 600 }\ntools.deny = [\"web/fetch\"]").raw(
        "[servers.files.tools]\ndeny = [\"list_*\"]\n[servers.files.override.read_file]\ndescription = \"Reads.\"\n[servers.files.override.write_file]\nhide = true\n",
    );
    let told = json_of(&setup, &["tools", "--json"]);
    let saved = &told["saved"];
    for why in ["not-allowed", "hidden-by-override", "not-in-profile"] {
        let sum = &saved["by_reason"][why];
        assert!(sum["items"] == 1 && sum["tokens"].as_u64().unwrap() > 300, "{why}: {saved}");
    }
    let read = &told["items"].as_array().unwrap()[0];
    assert_eq!((&read["native"], &read["saved"]["override"]), (&json!("read_file"), &saved["overrides"]));
    assert!(saved["overrides"]["bytes"].as_i64().unwrap() > 1000 && saved["trims"]["tokens"].as_i64().unwrap() > 0);
    assert_eq!(told["by_server"][0]["saved"]["overrides"], saved["overrides"]);
    let text = setup.output(&["tools"]).out;
    let begins = |line: &str| text.lines().any(|known| known.starts_with(line));
    for line in ["saved by ", "trim ", "override of files/read_file ", "not-allowed ", "not-in-profile "] {
        assert!(begins(line), "{line}\n{text}");
    }
}

#[test]
fn srf_3_status_tells_what_profiles_cost() {
    let mut host = setup("surface = \"search\"").open(Era::Legacy);
    host.tools_until("our tools", |tools| tools.len() == 2);
    until("both servers to be found", PATIENCE, || found(&mut host, "file page").len() == 5);
    let status: Value = serde_json::from_str(&host.output(&["status", "--json"]).out).unwrap();
    let profile = &status["gateways"][0]["profiles"][0];
    assert_eq!((&profile["surface"], &profile["behind"], &profile["tools"]), (&json!("search"), &json!(5), &json!(2)));
    assert_eq!(profile["servers"][1]["key"], "web");
    assert_eq!((&profile["estimator"], &profile["saved"]["search"]["items"]), (&json!("utf8-bytes/4"), &json!(5)));
    assert_eq!((&profile["servers"][1]["items"], &profile["servers"][1]["behind"]), (&json!(0), &json!(2)));
    assert!(host.output(&["status"]).out.contains("5 more by search"));
    host.finish();
}
