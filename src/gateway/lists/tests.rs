//! What is kept of catalogues, where no server runs.

use super::*;
use crate::config::settings::{
    Effect, LogFormat, PolicySettings, ProfileSettings, RuleSettings, ServerFault, ServerSettings, Settings,
    TelemetrySettings,
};
use crate::downstream::Offers;
use crate::ident::ServerKey;
use crate::policy::Clock;

/// Lists of one server with the tools `t0`, `t1`, …, each for who has its number as a group.
fn lists(tools: usize) -> Lists {
    let key = ServerKey::new("a").unwrap();
    let fault = ServerFault { key: String::new(), message: String::new() };
    let telemetry = TelemetrySettings { log: "off".into(), format: LogFormat::Pretty, audit: None, otlp: None };
    let mut settings = Settings::of(vec![ServerSettings::new(key.clone(), Err(fault))], "none".into(), telemetry);
    let rule = |n| RuleSettings::new(Effect::Allow, vec![format!("group:{n}")], vec![format!("a/tool/t{n}")], "");
    let rules = (0..tools).map(rule).collect();
    settings.policy = PolicySettings { default: Some(Effect::Deny), rules, ..PolicySettings::default() };
    let views = vec![View::compile(&ProfileSettings::everything(), std::slice::from_ref(&key)).unwrap()];
    let place =
        Place { prefix: key.to_string(), key, serial: 0, gone: false, http: false, overrides: Vec::new(), slot: None };
    let policy = Arc::new(Policy::compile(&settings, &Clock::default()).unwrap());
    let (background, before) = (Background::new(tokio_util::task::TaskTracker::new()), (None, vec![None]));
    let lists = Lists::new(
        vec![place],
        views,
        policy,
        Arc::new(Pinned::new(&settings, None)),
        (45, Duration::ZERO),
        before,
        background,
    );
    let tool = |n: usize| format!(r#"{{"name":"t{n}","inputSchema":{{"type":"object"}}}}"#);
    let page = format!("[{}]", (0..tools).map(tool).collect::<Vec<_>>().join(","));
    let items = Arc::new(
        catalog::Part::parse(Kind::Tool, &[page.into()], crate::config::settings::ListLimits::default()).unwrap(),
    );
    let mut parts = lists.parts();
    parts[0].lists[Kind::Tool.index()].items = Some(items);
    parts[0].offers[0] = Some(Offers::read(br#"{"tools":{}}"#));
    drop(parts);
    lists
}

#[test]
fn catalogues_of_classes_that_nobody_looks_at_go() {
    const MORE: usize = 20;
    let lists = lists(MAX_BUILT + MORE);
    let look = |n: usize| {
        let who = Principal::user("ann", &[n.to_string()], &[]);
        let catalogue = lists.catalogue(lists.sight(&who, 0));
        let own = catalogue.resolve(Kind::Tool, &format!("a__t{n}")).is_some();
        assert!(own && catalogue.resolve(Kind::Tool, &format!("a__t{}", n + 1)).is_none(), "{n}");
        catalogue
    };
    let everybody = lists.catalogue(Sight(0));
    let first = look(0);
    for n in 1..MAX_BUILT + MORE {
        look(n);
        look(0);
    }
    let is_built = || lists.shows.load().iter().map(|show| show.current.load().is_some()).collect::<Vec<_>>();
    assert_eq!(is_built()[1..].iter().filter(|built| **built).count(), MAX_BUILT);
    assert!(Arc::ptr_eq(&first, &look(0)), "it is looked at all the time");
    assert!(Arc::ptr_eq(&everybody, &lists.catalogue(Sight(0))), "of profiles there are few");
    let gone = is_built().iter().position(|built| !built).unwrap();
    assert_eq!(gone, 2, "the oldest one that was not looked at again");
    look(1);
    assert!(is_built()[gone]);
}
