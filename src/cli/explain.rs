//! `onegate explain`: what policy decides about one item for one principal, and why. Starts nothing.

use serde_json::{Value, json};

use super::exit::Exit;
use super::who::{self, As, Wanted};
use super::{Common, call, load, out};
use crate::ident::Principal;
use crate::policy::{Clock, Explanation, RuleNote};
use crate::shown::shown_str;

/// Flags of `explain`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// What is asked for: <server>/<kind>/<native name>, for example files/tool/read_file or files/capability/sampling.
    target: String,
    /// The arguments of the call, a JSON object.
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    who: As,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let settings = load::load(&args.common, args.json)?.settings;
    let usage = |why: String| {
        out::say(&format!("onegate: {why}"));
        Ok(Exit::Usage)
    };
    let who = args.who.principal(&settings)?;
    let target = match who::wanted(&settings, &args.target) {
        Ok(target) => target,
        Err(why) => return usage(why),
    };
    let arguments = match args.args.as_deref().map(|text| call::request("x", text)) {
        None => None,
        Some(Ok(call)) => Some(call.arguments().unwrap_or(b"{}").to_vec()),
        Some(Err(why)) => return usage(why),
    };
    let policy = load::policy(&settings, &Clock::wall())?;
    let pin = match &target {
        Wanted::Item((server, kind, native)) => super::pins::pin_of(&settings, *server, *kind, native),
        Wanted::Capability(..) => serde_json::Value::Null,
    };
    let (hidden, told) = match target {
        Wanted::Item(target) => {
            let (hidden, arguments) = who::overridden(&settings, target, arguments);
            (hidden, policy.explain(&who, target, arguments.as_deref()))
        }
        Wanted::Capability(server, capability) => (false, policy.explain_capability(&who, server, capability)),
    };
    let Some(told) = told else {
        return usage("no such server".to_owned());
    };
    if args.json {
        let mut value = as_json(&told, hidden);
        value["pin"] = pin;
        out::json(&value)?;
    } else {
        let mut text = as_text(&told, &who, &args.target, hidden);
        if let Some(state) = pin["state"].as_str() {
            text.push_str(&format!("   pin ({}): {state}\n", pin["mode"].as_str().unwrap_or_default()));
        }
        out::text(&text)?;
    }
    let refused = hidden || told.reason.is_some() && !told.shadowed;
    Ok(if refused { Exit::Failed } else { Exit::Fine })
}

/// The word for what is decided.
fn decision(told: &Explanation, hidden: bool) -> &'static str {
    match told.reason {
        _ if hidden => "deny",
        Some(_) if told.shadowed => "allow",
        Some(_) => "deny",
        None if told.needs_arguments => "depends",
        None => "allow",
    }
}

fn as_json(told: &Explanation, hidden: bool) -> Value {
    let rules: Vec<_> = told
        .rules
        .iter()
        .map(|rule| {
            json!({
                "id": rule.id, "place": rule.place, "effect": rule.effect, "matches": matches(rule), "who": rule.who,
                "target": rule.target, "annotations": rule.annotations, "misfit": rule.misfit, "time": rule.time,
                "transport": rule.transport, "level": rule.level,
                "overruled": rule.overruled, "decided": told.decided_by.contains(&rule.id),
            })
        })
        .collect();
    let limits: Vec<_> = told
        .limits
        .iter()
        .map(|limit| {
            json!({
                "place": limit.place, "per": limit.per, "rate_left": limit.rate_left, "quota_left": limit.quota_left,
                "concurrency_left": limit.concurrency_left, "max_result": limit.max_result,
            })
        })
        .collect();
    let mut value = json!({
        "decision": decision(told, hidden), "visible": told.visible && !hidden, "shadowed": told.shadowed,
        "rules": rules, "limits": limits,
    });
    if let Some(reason) = told.reason {
        value["reason"] = reason.code().into();
    } else if hidden {
        value["reason"] = who::HIDDEN.into();
    }
    value
}

fn matches(rule: &RuleNote) -> bool {
    let conditions = [rule.annotations, rule.level, rule.time, rule.transport];
    rule.who && rule.target && !conditions.contains(&Some(false)) && !rule.overruled
}

fn as_text(told: &Explanation, who: &Principal, target: &str, hidden: bool) -> String {
    let verdict = match (told.reason, decision(told, hidden)) {
        (Some(reason), "allow") => format!("allowed; would be refused ({reason}) without policy.shadow"),
        (Some(reason), _) if !told.visible => format!("refused and hidden ({reason})"),
        (Some(reason), _) => format!("refused ({reason})"),
        (None, "deny") => "hidden by an override of its server".to_owned(),
        (None, "depends") => "allowed for some arguments; --args tells for which".to_owned(),
        (None, _) => "allowed".to_owned(),
    };
    let mut text = format!("{} for {}: {verdict}\n", shown_str(target), shown_str(who.as_str()));
    if told.hidden_by_server {
        text.push_str("  the lists of its server hide it, which no rule can change\n");
    } else if told.closed {
        text.push_str("  its URI climbs out of what it names, or there are too many different callers\n");
    } else if told.decided_by.is_empty() {
        text.push_str("  no rule decides, so policy.default does\n");
    }
    for rule in told.rules.iter().filter(|rule| rule.who && rule.target || told.decided_by.contains(&rule.id)) {
        let mark = if told.decided_by.contains(&rule.id) { "=>" } else { "  " };
        let mut why = Vec::new();
        if rule.overruled {
            why.push("counts for nothing here: an upper layer has locked it".to_owned());
        }
        if rule.annotations == Some(false) {
            why.push("its annotations are not approved".to_owned());
        }
        if rule.level == Some(false) {
            why.push("its level is not verified".to_owned());
        }
        if rule.time == Some(false) {
            why.push("it is not its time".to_owned());
        }
        if rule.transport == Some(false) {
            why.push("who is asked for comes another way".to_owned());
        }
        match &rule.misfit {
            Some(pointer) => why.push(format!("the value at {pointer:?} does not fit")),
            None if rule.conditional => why.push("where the arguments fit".to_owned()),
            None => {}
        }
        let why = if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) };
        text.push_str(&format!("{mark} {} at {}{why}\n", rule.effect, shown_str(&rule.place)));
    }
    let others = told.rules.iter().filter(|rule| !(rule.who && rule.target)).count();
    if others > 0 {
        text.push_str(&format!("   {} not about this\n", load::count(others, "rule")));
    }
    for limit in &told.limits {
        let mut left = Vec::new();
        left.extend(limit.rate_left.map(|left| format!("{left} of its rate left")));
        left.extend(limit.quota_left.map(|left| format!("{left} of its quota left")));
        left.extend(limit.concurrency_left.map(|left| format!("{left} more at a time")));
        left.extend(limit.max_result.map(|most| format!("results up to {most} bytes")));
        text.push_str(&format!("   limit at {}, per {}: {}\n", shown_str(&limit.place), limit.per, left.join(", ")));
    }
    text
}
