//! The tools of our own: the two of the search surface, and the one that tells of servers.
//!
//! Their key is reserved, so no server has one of these names but one without a prefix, whose tool then gives way. What
//! they do is `gateway`'s.

use bytes::Bytes;

use super::meta;
use crate::protocol::json;

/// The key that our own tools stand under.
pub const KEY: &str = "onegate";
/// Finds tools.
pub const SEARCH: &str = "onegate__search_tools";
/// Calls one that was found.
pub const CALL: &str = "onegate__call_tool";
/// Lists servers.
pub const SERVERS: &str = "onegate__servers";

/// How many bytes of server keys are told.
const MAX_KEYS: usize = 300;

/// Whether a name is one of ours.
pub fn is_own(name: &str) -> bool {
    [SEARCH, CALL, SERVERS].contains(&name)
}

/// What stands in a definition of ours beside apps: they may not call what calls everything (APP-5).
fn beside(apps: bool) -> String {
    if apps { format!(",{}", meta::restricted()) } else { String::new() }
}

/// The two of the search surface, for a catalogue of these servers, beside `apps` or not.
pub(super) fn of_search<'a>(servers: impl Iterator<Item = &'a str>, apps: bool) -> [Bytes; 2] {
    let mut described =
        "Finds tools by what you want to do. Most tools here are not in the tool list and are found with \
                         this one; say the task in a few words, then call what fits with onegate__call_tool."
            .to_owned();
    let (mut told, mut more) = (String::new(), 0);
    for key in servers {
        if told.len() + key.len() > MAX_KEYS {
            more += 1;
            continue;
        }
        told.push_str(if told.is_empty() { "" } else { ", " });
        told.push_str(key);
    }
    if !told.is_empty() {
        described.push_str(&format!(" Servers: {told}"));
        described.push_str(&if more > 0 { format!(" and {more} more.") } else { ".".to_owned() });
    }
    let mut search = format!(r#"{{"name":"{SEARCH}","title":"Search tools","description":"#).into_bytes();
    json::push_string(&mut search, &described);
    search.extend_from_slice(
        br#","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"What you want to do, in a few words"},"server":{"type":"string","description":"Only tools of this server"},"limit":{"type":"integer","minimum":1,"maximum":50,"description":"How many tools at most; default 8"},"detail":{"type":"string","enum":["names","brief","full"],"description":"brief (default): parameters in short; full: whole description and inputSchema"}},"required":["query"]},"annotations":{"readOnlyHint":true,"openWorldHint":false}"#,
    );
    search.extend_from_slice(format!("{}}}", beside(apps)).as_bytes());
    let call = format!(
        r#"{{"name":"{CALL}","title":"Call a found tool","description":"Calls a tool that onegate__search_tools found, with the arguments that its parameters ask for.","inputSchema":{{"type":"object","properties":{{"name":{{"type":"string","description":"The tool's name, as it was found"}},"arguments":{{"type":"object","description":"The tool's own arguments"}}}},"required":["name"]}}{}}}"#,
        beside(apps)
    );
    [search.into(), call.into()]
}

/// The one that tells of servers.
pub(super) fn of_servers(apps: bool) -> Bytes {
    format!(
        r#"{{"name":"{SERVERS}","title":"List servers","description":"Lists the servers behind this gateway: what each is for and how many tools it has.","inputSchema":{{"type":"object"}},"annotations":{{"readOnlyHint":true,"openWorldHint":false}}{}}}"#,
        beside(apps)
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::tokens::Counter;

    #[test]
    fn they_fit_the_smallest_ceiling_whatever_the_servers() {
        let keys: Vec<String> = (0..500).map(|n| format!("a-server-key-{n:03}")).collect();
        let [search, call] = of_search(keys.iter().map(String::as_str), true);
        for raw in [&search, &call, &of_servers(true)] {
            assert!(serde_json::from_slice::<serde_json::Value>(raw).is_ok(), "{raw:?}");
        }
        assert!(String::from_utf8_lossy(&search).contains(" and 484 more."), "{search:?}");
        let all: usize = [&search, &call, &of_servers(true)].iter().map(|raw| Counter::default().listed(raw)).sum();
        assert!(all < 499, "{all}");
    }
}
