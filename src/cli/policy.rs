//! `onegate policy`: a table of expected decisions against the configuration, or those of the past (`replay`). Starts
//! nothing.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use super::exit::Exit;
use super::who::{self, Then, Wanted};
use super::{Common, load, out, replay};
use crate::config::settings::{Effect, Settings};
use crate::config::{PolicyCase, policy_cases};
use crate::policy::Policy;
use crate::shown::shown_str;

/// Flags of `policy`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare a table of expected decisions with what is decided.
    Test {
        /// The table: `[[case]]` with as, target, args, expect, reason.
        file: PathBuf,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Say which recorded decisions would be others under this configuration: exit 1 when any would.
    Replay {
        /// Audit files.
        #[arg(required = true, value_name = "AUDIT")]
        files: Vec<PathBuf>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        common: Common,
    },
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let (file, json, common) = match &args.command {
        Command::Test { file, json, common } => (file, json, common),
        Command::Replay { files, json, common } => return replay::run(files, *json, common),
    };
    let settings = load::load(common, *json)?.settings;
    let cases = match policy_cases(file) {
        Ok(cases) => cases,
        Err(faults) => return load::tell(*json, &faults.0),
    };
    let then = Then::default();
    let policy = load::policy(&settings, &then.clock())?;
    let results: Vec<_> = cases.iter().map(|case| (case, check(case, &settings, &policy, &then))).collect();
    let failed = results.iter().filter(|(_, result)| !result.ok).count();
    if *json {
        let cases: Vec<_> = results.iter().map(|(case, result)| as_json(case, result)).collect();
        out::json(&json!({ "cases": cases, "failed": failed }))?;
    } else {
        for (case, result) in results.iter().filter(|(_, result)| !result.ok) {
            let expected = match &case.reason {
                Some(reason) => format!("{} ({reason})", case.expect.as_str()),
                None => case.expect.as_str().to_owned(),
            };
            let (who, target) = (shown_str(&case.who), shown_str(&case.target));
            out::text(&format!("{}: {who} {target}: expected {expected}, is {}", case.place, result.told()))?;
        }
        out::text(&format!("{}, {failed} failed", load::count(results.len(), "case")))?;
    }
    Ok(if failed == 0 { Exit::Fine } else { Exit::Failed })
}

/// What came of a case.
struct Outcome {
    ok: bool,
    /// What is decided, and the code of the reason; or what is wrong with the case itself.
    decided: Result<(Effect, Option<&'static str>), String>,
    /// Where the rule stands that decides.
    by: Option<String>,
}

impl Outcome {
    fn told(&self) -> String {
        let by = self.by.as_ref().map_or_else(String::new, |place| format!(", by the rule at {}", shown_str(place)));
        match &self.decided {
            Ok((effect, Some(reason))) => format!("{} ({reason}){by}", effect.as_str()),
            Ok((effect, None)) => format!("{}{by}", effect.as_str()),
            Err(why) => format!("no question: {why}"),
        }
    }
}

/// Decides as if shadow mode were off: the table is about what will be refused.
fn check(case: &PolicyCase, settings: &Settings, policy: &Policy, then: &Then) -> Outcome {
    then.set(case.at);
    let asked = who::principal(settings, &case.who, case.groups.clone())
        .and_then(|principal| Ok((principal.scoped(&case.scopes), who::wanted(settings, &case.target)?)));
    let (principal, target) = match asked {
        Ok(asked) => asked,
        Err(why) => return Outcome { ok: false, decided: Err(why), by: None },
    };
    let (hidden, told) = match target {
        Wanted::Item(target) => {
            let (hidden, arguments) = who::overridden(settings, target, Some(case.arguments.as_bytes().to_vec()));
            (hidden, policy.explain(&principal, target, arguments.as_deref()))
        }
        Wanted::Capability(server, capability) => (false, policy.explain_capability(&principal, server, capability)),
    };
    let Some(told) = told else {
        return Outcome { ok: false, decided: Err("no such server".to_owned()), by: None };
    };
    let effect = if hidden || told.reason.is_some() { Effect::Deny } else { Effect::Allow };
    let reason = told.reason.map(crate::policy::Reason::code).or(hidden.then_some(who::HIDDEN));
    let ok = effect == case.expect && case.reason.as_deref().is_none_or(|wanted| reason == Some(wanted));
    let by = told.decided_by.first().map(|rule| policy.rule_place(*rule).to_owned());
    Outcome { ok, decided: Ok((effect, reason)), by }
}

fn as_json(case: &PolicyCase, outcome: &Outcome) -> Value {
    let mut value = json!({
        "line": case.place.line, "as": case.who, "target": case.target, "expect": case.expect.as_str(), "ok": outcome.ok,
        "by": outcome.by,
    });
    match &outcome.decided {
        Ok((effect, reason)) => {
            value["decision"] = effect.as_str().into();
            value["reason"] = (*reason).into();
        }
        Err(why) => value["error"] = why.as_str().into(),
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, LoadOptions, load};

    const SERVERS: &str =
        "[servers.files]\nurl = \"http://127.0.0.1:1/\"\n[servers.tickets]\nurl = \"http://127.0.0.1:1/\"\n";

    /// What stands between the fences of a text.
    fn blocks(text: &str) -> Vec<&str> {
        text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
    }

    #[test]
    fn every_situation_of_the_documents_decides_as_it_says() {
        let page = include_str!("../../docs/policy.md");
        let situations = page.split("## Ten situations").nth(1).unwrap().split("\n## ").next().unwrap();
        let mut count = 0;
        for situation in situations.split("\n### ").skip(1) {
            let title = situation.lines().next().unwrap();
            let [config, cases] = blocks(situation)[..] else { panic!("{title}: not two blocks") };
            let folder = tempfile::tempdir().unwrap();
            let (file, table) = (folder.path().join("c.toml"), folder.path().join("cases.toml"));
            std::fs::write(&file, format!("{SERVERS}{config}")).unwrap();
            std::fs::write(&table, cases).unwrap();
            let loaded = load(&options(folder.path(), file)).unwrap_or_else(|faults| panic!("{title}: {faults}"));
            let then = Then::default();
            let policy = Policy::compile(&loaded.settings, &then.clock()).unwrap();
            for case in policy_cases(&table).unwrap_or_else(|faults| panic!("{title}: {faults}")) {
                let outcome = check(&case, &loaded.settings, &policy, &then);
                assert!(outcome.ok, "{title}, line {:?}: {}", case.place.line, outcome.told());
            }
            count += 1;
        }
        assert_eq!(count, 10);
    }

    #[test]
    fn e20_a_case_is_decided_on_what_the_server_would_get() {
        let config = r#"[policy]
default = "deny"
[[policy.rule]]
effect = "allow"
target = ["files/*/*"]
where = [{ pointer = "/path", path_under = ["/srv"] }]
[[policy.rule]]
effect = "allow"
who = ["scope:use"]
target = ["tickets/tool/*"]
time = { hours = "08:00-18:00", zone = "+01:00" }
[[policy.rule]]
effect = "deny"
target = ["tickets/capability/sampling"]
[servers.files.override.read]
fixed = { path = "/srv/a" }
[servers.files.override.gone]
hide = true
fixed = { path = "/srv/a" }
"#;
        let cases = r#"[[case]]
target = "files/tool/read"
args = { path = "/etc" }
expect = "allow"
[[case]]
target = "files/tool/gone"
expect = "deny"
[[case]]
target = "files/tool/other"
expect = "deny"
[[case]]
target = "files/resource/x:1"
args = { path = "/srv/a" }
expect = "deny"
[[case]]
as = "user:42"
scopes = ["use"]
at = "2026-11-30T07:00:00Z"
target = "tickets/tool/x"
expect = "allow"
[[case]]
as = "user:42"
scopes = ["use"]
at = "2026-11-30T06:59:59Z"
target = "tickets/tool/x"
expect = "deny"
[[case]]
as = "user:42"
at = "2026-11-30T07:00:00Z"
target = "tickets/tool/x"
expect = "deny"
[[case]]
target = "tickets/capability/sampling"
expect = "deny"
reason = "capability-withheld"
[[case]]
target = "tickets/capability/roots"
expect = "allow"
"#;
        let folder = tempfile::tempdir().unwrap();
        let (file, table) = (folder.path().join("c.toml"), folder.path().join("cases.toml"));
        std::fs::write(&file, format!("{SERVERS}{config}")).unwrap();
        std::fs::write(&table, cases).unwrap();
        let loaded = load(&options(folder.path(), file)).unwrap();
        let then = Then::default();
        let policy = Policy::compile(&loaded.settings, &then.clock()).unwrap();
        for case in policy_cases(&table).unwrap() {
            let outcome = check(&case, &loaded.settings, &policy, &then);
            assert!(outcome.ok, "line {:?}: {}", case.place.line, outcome.told());
        }
    }

    /// Nothing but this file.
    fn options(folder: &std::path::Path, file: PathBuf) -> LoadOptions {
        LoadOptions {
            files: vec![file],
            environment: Environment::from_iter([("HOME", folder)]),
            cwd: folder.to_owned(),
            etc: folder.join("etc"),
            flags: Vec::new(),
        }
    }
}
