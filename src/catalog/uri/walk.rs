//! The places of a result where URIs of its server stand, and no other (§10.3).
//!
//! Text, `structuredContent` and members that we do not know are never looked into (CALL-1). Knows no server and
//! no spelling: what becomes of a URI, and what is learned of it, is the caller's. Called by `gateway` for results
//! of servers that have resources.

use super::edits::Edits;
use crate::catalog::meta;
use crate::protocol::json;
use crate::protocol::method::Method;

/// Answers what hosts shall see instead of a URI, if that is something else.
pub type Expose<'e> = &'e mut dyn FnMut(&str) -> Option<String>;

/// A result with other URIs; `None` when none changes. `expose` is asked for each URI in it, in the order of the
/// text. `result` is the raw object, validated before; results of methods that hold no URIs are not looked at.
pub fn rewrite_result(result: &[u8], method: Method, expose: Expose<'_>) -> Option<Vec<u8>> {
    let list = if method == Method::ToolsCall {
        "content"
    } else if method == Method::PromptsGet {
        "messages"
    } else if method == Method::ResourcesRead {
        "contents"
    } else {
        return None;
    };
    let mut edits = Edits::new(result);
    for entry in json::members(result) {
        if entry.is("_meta") {
            meta::links(&mut edits, entry.value, expose);
        }
        if !entry.is(list) {
            continue;
        }
        for element in json::elements(entry.value) {
            match list {
                "content" => block(&mut edits, element, expose),
                "messages" => message(&mut edits, element, expose),
                _ => uri(&mut edits, element, expose),
            }
        }
    }
    edits.apply()
}

/// The same for the raw params of what a server asks. Where a model is asked, the messages may hold results of tools,
/// and these link to resources of the server; no other question has a place for URIs of servers.
pub fn rewrite_question(params: &[u8], method: Method, expose: Expose<'_>) -> Option<Vec<u8>> {
    if method != Method::Sample {
        return None;
    }
    let mut edits = Edits::new(params);
    for messages in json::members(params).filter(|entry| entry.is("messages")) {
        for message in json::elements(messages.value) {
            for content in json::members(message).filter(|entry| entry.is("content")) {
                if content.value.first() == Some(&b'[') {
                    json::elements(content.value).for_each(|element| told(&mut edits, element, expose));
                } else {
                    told(&mut edits, content.value, expose);
                }
            }
        }
    }
    edits.apply()
}

/// A block that a model is told: that of a tool's result holds blocks itself.
fn told<'a>(edits: &mut Edits<'a>, element: &'a [u8], expose: Expose<'_>) {
    let kinds = json::members(element).filter(|entry| entry.is("type"));
    if kinds.last().and_then(|entry| json::text_of(entry.value)).as_deref() != Some("tool_result") {
        return block(edits, element, expose);
    }
    for content in json::members(element).filter(|entry| entry.is("content")) {
        json::elements(content.value).for_each(|element| block(edits, element, expose));
    }
}

/// A message of a prompt: one block; several, where a server writes them so.
fn message<'a>(edits: &mut Edits<'a>, message: &'a [u8], expose: Expose<'_>) {
    for content in json::members(message).filter(|entry| entry.is("content")) {
        if content.value.first() == Some(&b'[') {
            json::elements(content.value).for_each(|element| block(edits, element, expose));
        } else {
            block(edits, content.value, expose);
        }
    }
}

/// A block: a link, or a resource that is embedded.
fn block<'a>(edits: &mut Edits<'a>, block: &'a [u8], expose: Expose<'_>) {
    let kind =
        json::members(block).filter(|entry| entry.is("type")).last().and_then(|entry| json::text_of(entry.value));
    match kind.as_deref() {
        Some("resource_link") => uri(edits, block, expose),
        Some("resource") => json::members(block)
            .filter(|entry| entry.is("resource"))
            .for_each(|resource| uri(edits, resource.value, expose)),
        _ => {}
    }
}

/// The `uri` of an object.
fn uri<'a>(edits: &mut Edits<'a>, object: &'a [u8], expose: Expose<'_>) {
    for entry in json::members(object).filter(|entry| entry.is("uri")) {
        if let Some(new) = json::text_of(entry.value).and_then(|uri| expose(&uri)) {
            edits.replace_string(entry.value, &new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What becomes of a result when `x:` becomes `y:`, and which URIs were seen.
    fn walk(result: &str, method: Method) -> (String, Vec<String>) {
        let mut seen = Vec::new();
        let new = rewrite_result(result.as_bytes(), method, &mut |uri| {
            seen.push(uri.to_owned());
            uri.strip_prefix("x:").map(|rest| format!("y:{rest}"))
        });
        (new.map_or_else(|| result.to_owned(), |new| String::from_utf8(new).unwrap()), seen)
    }

    #[test]
    fn d039_links_and_embedded_resources_of_tools() {
        let result = r#" { "content" : [ {"type":"text","text":"x:text"}, {"uri":"x:\u0061", "type":"resource_link","name":"x:n"},
            {"type":"resource","resource":{"uri":"x:b","text":"x:c"},"uri":"x:d"},{"type":"re\u0073ource_link","uri":"other:e"}],
            "structuredContent":{"uri":"x:f","content":[{"type":"resource_link","uri":"x:g"}]},"uri":"x:h",
            "_meta":{"ui":{"resourceUri":"x:i","csp":"x:j"},"ui/resourceUri":"x:k","x:l":"x:m"} } "#;
        let (new, seen) = walk(result, Method::ToolsCall);
        assert_eq!(seen, ["x:a", "x:b", "other:e", "x:i", "x:k"]);
        let expected = result.replace(r#""x:\u0061""#, r#""y:a""#);
        let expected = ["b", "i", "k"]
            .iter()
            .fold(expected, |text, uri| text.replace(&format!(r#""x:{uri}""#), &format!(r#""y:{uri}""#)));
        assert_eq!(new, expected);
    }

    /// PRM-1.
    #[test]
    fn prm_1_messages_of_prompts() {
        let result = r#"{"description":"x:d","messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"x:a"}}},
            {"role":"user","content":[{"type":"resource_link","uri":"x:b"}]},{"content":"x:c"},7],"content":[{"type":"resource_link","uri":"x:e"}]}"#;
        let (new, seen) = walk(result, Method::PromptsGet);
        assert_eq!(seen, ["x:a", "x:b"]);
        assert_eq!(new, result.replace("x:a", "y:a").replace("x:b", "y:b"));
    }

    #[test]
    fn res_2_each_item_of_a_read() {
        let result = r#"{"contents":[{"uri":"x:a","text":"{\"uri\":\"x:t\"}"},{"uri":"x:b/c","_meta":{"ui":{"domain":"x:d"}}}]}"#;
        let (new, seen) = walk(result, Method::ResourcesRead);
        assert_eq!(seen, ["x:a", "x:b/c"]);
        assert_eq!(new, result.replace(r#":"x:a""#, r#":"y:a""#).replace("x:b", "y:b"));
        assert_eq!(walk(result, Method::ToolsList).1, [""; 0]);
    }

    #[test]
    fn mrt4_results_of_tools_that_a_model_is_told() {
        let params = r#"{"maxTokens":9,"messages":[
            {"role":"user","content":{"type":"tool_result","toolUseId":"x:u","structuredContent":{"uri":"x:s"},"content":[{"type":"text","text":"x:t"},{"type":"resource_link","name":"n","uri":"x:a"}]}},
            {"role":"user","content":[{"type":"text","text":"x:t"},{"content":[{"type":"resource","resource":{"uri":"x:b","text":"x:c"}}],"type":"tool_result"},{"type":"tool_use","input":{"type":"resource_link","uri":"x:i"}}]},7],
            "tools":[{"name":"x:n"}],"systemPrompt":"x:p","uri":"x:d","content":[{"type":"resource_link","uri":"x:e"}]}"#;
        let mut seen = Vec::new();
        let mut expose = |uri: &str| {
            seen.push(uri.to_owned());
            Some(uri.replacen("x:", "y:", 1))
        };
        let new = rewrite_question(params.as_bytes(), Method::Sample, &mut expose).unwrap();
        assert_eq!(String::from_utf8(new).unwrap(), params.replace("x:a", "y:a").replace("x:b", "y:b"));
        assert_eq!(rewrite_question(params.as_bytes(), Method::Elicit, &mut expose), None);
        assert_eq!(seen, ["x:a", "x:b"]);
    }

    #[test]
    fn odd_results_are_left_alone() {
        for odd in [
            "null",
            "[]",
            "{}",
            r#"{"content":null}"#,
            r#"{"content":{"uri":"x:a"}}"#,
            r#"{"content":[[],"x:a",null]}"#,
            r#"{"content":[{"type":"resource","resource":"x:a"}]}"#,
            r#"{"content":[{"type":"resource_link","uri":["x:a"]}]}"#,
            r#"{"content":[{"type":"resource_link","uri":"x:\ud800"}],"_meta":[]}"#,
        ] {
            assert_eq!(walk(odd, Method::ToolsCall), (odd.to_owned(), vec![]));
        }
    }

    proptest! {
        /// Whatever stands around, nothing but the URIs changes.
        #[test]
        fn the_rest_stays_byte_for_byte(
            blocks in prop::collection::vec((prop::sample::select(vec!["text", "resource_link", "resource", "odd"]), "[xz]:[a-z]{0,3}", "[\\[\\]{},:\" x]{0,6}"), 0..6),
            pretty in any::<bool>(),
        ) {
            let build = |change: bool| {
                let content: Vec<_> = blocks.iter().map(|(kind, uri, text)| {
                    let new = if change && uri.starts_with('x') { uri.replacen('x', "y", 1) } else { uri.clone() };
                    match *kind {
                        "resource_link" => serde_json::json!({ "type": kind, "uri": new, "text": text }),
                        "resource" => serde_json::json!({ "resource": { "text": text, "uri": new }, "type": kind, "uri": uri }),
                        _ => serde_json::json!({ "text": text, "type": kind, "uri": uri, "resource": { "uri": uri } }),
                    }
                }).collect();
                let result = serde_json::json!({ "content": content, "structuredContent": { "content": blocks.len() } });
                if pretty { serde_json::to_string_pretty(&result) } else { serde_json::to_string(&result) }.unwrap()
            };
            prop_assert_eq!(walk(&build(false), Method::ToolsCall).0, build(true));
        }
    }
}
