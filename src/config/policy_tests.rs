//! Tests of `[policy]` and `override` as files say them, over all layers. What rules decide is tested in `crate::policy`.

use super::*;

/// What is wrong with this policy beside one server.
fn policy_faults(policy: &str) -> String {
    World::new().config("c.toml", &format!("{ONE}{policy}")).faults()
}

#[test]
fn d093_rules_need_a_default() {
    let rule = "[[policy.rule]]\neffect = \"deny\"\ntarget = [\"a/tool/x\"]\n";
    let faults = policy_faults(rule);
    assert!(faults.contains("policy.default: is not stated"), "{faults}");
    let loaded = World::new().config("c.toml", &format!("{ONE}[policy]\ndefault = \"allow\"\n{rule}")).load();
    let policy = &loaded.settings.policy;
    assert_eq!((policy.rules.len(), policy.default), (1, Some(Effect::Allow)));
    assert_eq!((&policy.rules[0].who[..], policy.rules[0].layer), (&["*".to_owned()][..], 1));
}

#[test]
fn e40_d026_what_cannot_be_meant_is_refused_all_at_once() {
    let faults = policy_faults(
        r#"[policy]
default = "deny"
[[policy.rule]]
effect = "alow"
who = ["dev"]
target = ["a/tools/x", "files"]
where = [{ pointer = "path" }, { pointer = "/n", range = [2, 1] }]
[[policy.rule]]
who = []
[[policy.limit]]
target = ["a/tool/*"]
rate = "5/minute"
"#,
    );
    for part in [
        "c.toml:6: policy.rule[0].effect: `alow` is not one of allow, deny; did you mean `allow`?",
        "`dev` names nobody",
        "`tools` names no kind",
        "`files` is not <server>/<kind>/<native name>",
        "`path` is no JSON pointer",
        "`5/minute` is not a rate",
    ] {
        assert!(faults.contains(part), "{part}: {faults}");
    }
    let faults = policy_faults(
        r#"[policy]
default = "deny"
[[policy.rule]]
effect = "deny"
who = []
target = []
where = [{ pointer = "/n" }, { equals = 1 }, { pointer = "/n", range = [2, 1] }, { pointer = "/n", absent = true, equals = 1 }]
[[policy.limit]]
target = ["a/tool/*"]
burst = 2
[[policy.limit]]
target = ["a/tool/*"]
rate = "1/d"
burst = 367
[[policy.limit]]
target = ["a/tool/*"]
rate = "1/d"
burst = 366
"#,
    );
    for part in [
        "policy.rule[0].who: is empty",
        "policy.rule[0].target: is missing or empty",
        "policy.rule[0].where: a deny rule refuses whatever",
        "policy.rule[0].where[0]: checks nothing",
        "policy.rule[0].where[1]: the key `pointer` is missing",
        "policy.rule[0].where[2].range: must be two numbers",
        "policy.rule[0].where[3]: `absent` excludes",
        "policy.limit[0]: limits nothing",
        "policy.limit[0].burst: means nothing without",
        "policy.limit[1].burst: a burst of 367 at 1/d comes back in 367 days",
    ] {
        assert!(faults.contains(part), "{part}: {faults}");
    }
}

#[test]
fn layers_add_rules_and_cannot_take_the_organisations_away() {
    let organisation =
        "[policy]\ndefault = \"deny\"\n[[policy.rule]]\neffect = \"allow\"\ntarget = [\"a/tool/x\"]\nlocked = true\n";
    let own = "[[policy.rule]]\neffect = \"allow\"\ntarget = [\"a/*/*\"]\n";
    let world = World::new();
    world.write("etc/policy.d/org.toml", organisation);
    let loaded = world.config("c.toml", &format!("{ONE}{own}{own}")).load();
    let policy = &loaded.settings.policy;
    assert_eq!(policy.default, Some(Effect::Deny));
    let seen: Vec<_> = policy.rules.iter().map(|rule| (rule.layer, rule.locked)).collect();
    assert_eq!(seen, [(0, true), (2, false), (2, false)]);
    assert!(policy.rules[0].place.ends_with("org.toml:3"), "{}", policy.rules[0].place);
    assert_eq!(policy.rules[2].place, "c.toml:6");

    let world = World::new();
    world.write("etc/policy.d/org.toml", organisation);
    let faults = world.config("c.toml", &format!("{ONE}[policy]\ndefault = \"allow\"\n")).faults();
    assert!(faults.contains("c.toml:4: policy.default: the organisation says `deny`"), "{faults}");

    // Nor is what it decides made a trial of.
    let world = World::new();
    world.write("etc/policy.d/org.toml", organisation);
    let faults = world.config("c.toml", &format!("{ONE}[policy]\nshadow = true\n")).faults();
    assert!(faults.contains("policy.shadow: the organisation's files decide"), "{faults}");
    let world = World::new();
    world.write("etc/policy.d/org.toml", &organisation.replace("[policy]\n", "[policy]\nshadow = true\n"));
    assert!(world.config("c.toml", ONE).load().settings.policy.shadow);

    // A folder of the organisation that cannot be read is no folder that is not there (E-40).
    let world = World::new();
    world.write("etc/policy.d", "no folder");
    let faults = world.config("c.toml", ONE).faults();
    assert!(faults.contains("policy.d: cannot be read"), "{faults}");
}

#[test]
fn d096_rules_that_look_wrong_are_pointed_out() {
    let policy = r#"tools = { deny = ["x "] }
[policy]
default = "deny"
[[policy.rule]]
effect = "allow"
target = ["aa/tool/x", "a/tool/read ", "a/tool/a__t"]
[[policy.rule]]
effect = "deny"
target = ["a/tool/*", "aa/*/*"]
"#;
    let loaded = World::new().config("c.toml", &format!("{ONE}{policy}")).load();
    let notes: Vec<_> = loaded.notes.iter().map(Note::to_string).collect();
    for part in [
        "c.toml:8: policy.rule[0].target[0]: `aa/tool/x` matches no server that is configured",
        "policy.rule[0].target[1]: `a/tool/read ` begins or ends with white space",
        "policy.rule[0].target[2]: `a/tool/a__t` looks like an exposed name",
        "policy.rule[0]: never allows anything: the deny rule at c.toml:9 covers it",
        "c.toml:3: servers.a.tools.deny[0]: `x ` begins or ends with white space",
    ] {
        assert!(notes.iter().any(|note| note.contains(part)), "{part}: {notes:#?}");
    }
}

#[test]
fn a_network_is_not_served_by_a_default_that_nobody_chose() {
    let serving = |text: &str| World::new().config("c.toml", text).load().serving;
    let key = "[auth]\nkeys = [{ name = \"a\", hash = \"sha256:e1373063ec6668f8f2de10090ca0e6b2d8c7b59b9b94faa6909738453c902152\" }]\n";
    let open = serving(&format!("{key}[http]\nlisten = \"0.0.0.0:0\"\n"));
    assert!(open.faults[0].to_string().contains("policy.default is not stated"), "{open:?}");
    let here = serving(key);
    assert!(here.faults.is_empty() && here.notes[0].message.contains("policy.default is not stated"), "{here:?}");
    let stated = serving(&format!("{key}[http]\nlisten = \"0.0.0.0:0\"\n[policy]\ndefault = \"allow\"\n"));
    assert!(stated.faults.is_empty(), "{stated:?}");
}

#[test]
fn overrides_are_read_with_whatever_json_can_say() {
    let text = "[servers.a.override.\"odd name\"]\nfixed = { x = [1, { y = true }], z = \"s\" }\ndefaults = { n = 1.5 }\ntimeout = \"5s\"\n";
    let loaded = World::new().config("c.toml", &format!("{ONE}{text}")).load();
    let one = &loaded.settings.servers[0].overrides[0];
    assert_eq!((one.native.as_str(), one.timeout), ("odd name", Some(Duration::from_secs(5))));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(one.fixed, [pair("x", r#"[1,{"y":true}]"#), pair("z", r#""s""#)]);
    assert_eq!(one.defaults, [pair("n", "1.5")]);
    let faults = policy_faults(
        "[servers.a.override.t]\nfixed = { x = 1 }\ndefaults = { x = 2 }\nname = \"a b\"\n[servers.a.override.u]\nname = \"v\"\n[servers.a.override.w]\nname = \"v\"\n",
    );
    for part in ["a name is 1 to 64", "defaults.x: is fixed already", "`v` is already the name of `u`"] {
        assert!(faults.contains(part), "{part}: {faults}");
    }
}
