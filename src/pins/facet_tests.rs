//! What makes a difference to a hash and what does not (threat model §4.3).

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn of(kind: Kind, text: &str) -> Hashes {
    Hashes::of(kind, &canonical::read(text.as_bytes()).unwrap(), &[]).unwrap()
}

/// A tool that has something of everything.
fn tool() -> Value {
    json!({
        "name": "t", "title": "T", "description": "does it",
        "inputSchema": {
            "type": "object", "required": ["b", "a"],
            "properties": {
                "a": { "type": ["string", "null"], "description": "nested", "enum": ["x", "y"], "default": "x" },
                "required": { "type": "string" },
                "b": { "anyOf": [{ "type": "object", "required": ["q", "p"] }], "examples": [["s", "r"]] },
            },
        },
        "outputSchema": { "type": "object" },
        "annotations": { "readOnlyHint": true, "title": "A" },
        "icons": [{ "src": "https://x.invalid/i.png" }],
        "_meta": { "acme/x": 1, "progressToken": 5 },
        "execution": { "taskSupport": "optional" },
        "acme": "y",
    })
}

fn differing(change: impl FnOnce(&mut Value)) -> Vec<Facet> {
    let before = Hashes::of(Kind::Tool, &tool(), &[]).unwrap();
    let mut changed = tool();
    change(&mut changed);
    let after = Hashes::of(Kind::Tool, &changed, &[]).unwrap();
    let differences = after.differences(&before.facets);
    assert_eq!(differences.is_empty(), after.entry == before.entry);
    differences
}

#[test]
fn t_01_each_part_of_a_tool_is_a_facet() {
    for (pointer, facet) in [
        ("/name", Facet::Name),
        ("/title", Facet::Text),
        ("/description", Facet::Text),
        ("/inputSchema/properties/a/description", Facet::Input),
        ("/inputSchema/properties/a/enum/1", Facet::Input),
        ("/inputSchema/properties/a/default", Facet::Input),
        ("/inputSchema/properties/b/examples/0/0", Facet::Input),
        ("/inputSchema/required/0", Facet::Input),
        ("/outputSchema/type", Facet::Output),
        ("/annotations/title", Facet::Annotations),
        ("/annotations/readOnlyHint", Facet::Annotations),
        ("/icons/0/src", Facet::Icons),
        ("/_meta/acme~1x", Facet::Meta),
        ("/execution/taskSupport", Facet::Other),
        ("/acme", Facet::Other),
    ] {
        assert_eq!(differing(|tool| *tool.pointer_mut(pointer).unwrap() = json!("changed")), [facet], "{pointer}");
    }
    let gone = |name: &'static str| differing(move |tool| drop(tool.as_object_mut().unwrap().remove(name)));
    assert_eq!(gone("outputSchema"), [Facet::Output]);
    assert_eq!(gone("icons"), [Facet::Icons]);
    assert_eq!(differing(|tool| tool["future"] = json!(null)), [Facet::Other]);
}

#[test]
fn d099_what_means_the_same_is_no_difference() {
    assert_eq!(differing(|tool| tool["inputSchema"]["required"] = json!(["a", "b"])), []);
    assert_eq!(differing(|tool| tool["inputSchema"]["properties"]["a"]["type"] = json!(["null", "string"])), []);
    let inner = "/inputSchema/properties/b/anyOf/0/required";
    assert_eq!(differing(|tool| *tool.pointer_mut(inner).unwrap() = json!(["p", "q"])), []);
    assert_eq!(differing(|tool| tool["annotations"]["openWorldHint"] = json!(true)), []);
    assert_eq!(differing(|tool| tool["_meta"]["traceparent"] = json!("00-1")), []);
    let bare = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
    for same in [
        r#"{ "inputSchema" : {"type" : "\u006fbject"} , "n\u0061me":"t" }"#,
        r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{}}"#,
        r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}}"#,
        r#"{"name":"t","inputSchema":{"type":"object"},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"}}}"#,
    ] {
        assert_eq!(of(Kind::Tool, same), of(Kind::Tool, bare), "{same}");
    }
}

#[test]
fn what_only_looks_like_a_set_keeps_its_order() {
    for (pointer, value) in [
        ("/inputSchema/properties/a/enum", json!(["y", "x"])),
        ("/inputSchema/properties/b/examples", json!([["r", "s"]])),
    ] {
        assert_eq!(differing(|tool| *tool.pointer_mut(pointer).unwrap() = value), [Facet::Input], "{pointer}");
    }
    // Neither a property of that name, nor values.
    for place in ["default", "const", "enum", "examples", "x-acme"] {
        let at = |order: &str| of(Kind::Tool, &format!(r#"{{"name":"t","inputSchema":{{"{place}":{order}}}}}"#));
        assert_ne!(at(r#"[{"required":["a","b"]}]"#), at(r#"[{"required":["b","a"]}]"#), "{place}");
    }
    let property = |order: &str| {
        let schema = format!(r#"{{"properties":{{"required":{{"enum":{order}}},"type":{{"const":{order}}}}}}}"#);
        of(Kind::Tool, &format!(r#"{{"name":"t","inputSchema":{schema}}}"#))
    };
    assert_ne!(property(r#"["a","b"]"#), property(r#"["b","a"]"#));
}

fn ordered(schema: &Value) -> Value {
    let mut schema = schema.clone();
    normalise(&mut schema);
    schema
}

/// What is taken for ordered is as it would be ordered.
#[test]
fn a_schema_that_is_in_order_already_is_taken_as_it_is() {
    for (text, in_order) in [
        (r#"{"required":["a","b"],"type":["null","string"],"items":[{"required":[]}]}"#, true),
        (r#"{"properties":{"required":{"type":"string"},"type":{"enum":["b","a"]}}}"#, true),
        (r#"{"required":["b","a"]}"#, false),
        (r#"{"allOf":[{"properties":{"x":{"type":["string","null"]}}}]}"#, false),
        (r#"{"required":["b",1,{"required":["b","a"]}]}"#, false),
        (r#"{"type":[[1],{"x":2}]}"#, true),
        (r#"["b","a"]"#, true),
    ] {
        let schema: Value = serde_json::from_str(text).unwrap();
        assert_eq!(is_normal(&schema), in_order, "{text}");
        assert!(!in_order || ordered(&schema) == schema, "{text}");
    }
}

#[test]
fn the_form_is_fixed() {
    // Another value here is another form: it needs another name, and every lock must be written anew.
    let hashes = of(Kind::Tool, r#"{"name":"t","inputSchema":{"type":"object"}}"#);
    let facet = Hash::of(b"mcp-pin/1\0tool\0input\0{\"type\":\"object\"}");
    assert_eq!(hashes.facets[&Facet::Input], facet);
    assert!(!hashes.facets.contains_key(&Facet::Text));
    let absent = |facet: &str| Hash::of(format!("mcp-pin/1\0tool\0{facet}\0-").as_bytes()).hex();
    let annotations = r#"{"destructiveHint":true,"idempotentHint":false,"openWorldHint":true,"readOnlyHint":false}"#;
    let all = format!(
        r#"{{"annotations":"{}","icons":"{}","input":"{}","meta":"{}","name":"{}","other":"{}","output":"{}","text":"{}"}}"#,
        Hash::of(format!("mcp-pin/1\0tool\0annotations\0{annotations}").as_bytes()).hex(),
        absent("icons"),
        facet.hex(),
        absent("meta"),
        Hash::of(b"mcp-pin/1\0tool\0name\0\"t\"").hex(),
        absent("other"),
        absent("output"),
        absent("text"),
    );
    assert_eq!(hashes.entry, Hash::of(format!("mcp-pin/1\0tool\0entry\0{all}").as_bytes()));
    assert_eq!(instructions_hash(""), Hash::of(b"mcp-pin/1\0server\0instructions\0\"\""));
    let text = hashes.entry.to_string();
    assert_eq!(Hash::parse(&text), Some(hashes.entry));
    for odd in
        [&text[7..], "sha256:", &text.to_uppercase(), &text[..70], &format!("sha256:{}", text[7..].to_uppercase())]
    {
        assert_eq!(Hash::parse(odd), None, "{odd}");
    }
}

#[test]
fn prompts_templates_and_resources_have_their_own() {
    let prompt = |text: &str| of(Kind::Prompt, text);
    let base = r#"{"name":"p","arguments":[{"name":"a","description":"x","required":true}]}"#;
    for (other, facet) in [
        (base.replace("\"x\"", "\"y\""), Facet::Input),
        (base.replace("true", "false"), Facet::Input),
        (base.replace("\"p\",", "\"p\",\"title\":\"P\","), Facet::Text),
        (base.replace("\"p\",", "\"p\",\"annotations\":{},"), Facet::Other),
    ] {
        assert_eq!(prompt(&other).differences(&prompt(base).facets), [facet], "{other}");
    }
    let template = |text: &str| of(Kind::Template, text);
    let base = r#"{"uriTemplate":"f:///{p}","name":"n","mimeType":"text/plain"}"#;
    for (other, facet) in [
        (base.replace("{p}", "{q}"), Facet::Name),
        (base.replace("\"n\"", "\"m\""), Facet::Text),
        (base.replace("plain", "html"), Facet::MimeType),
        (base.replace("\"n\",", "\"n\",\"annotations\":{\"priority\":1},"), Facet::Annotations),
    ] {
        assert_eq!(template(&other).differences(&template(base).facets), [facet], "{other}");
    }
    let same = r#"{"name":"x"}"#;
    assert_ne!(of(Kind::Tool, same).entry, of(Kind::Prompt, same).entry);
    assert_ne!(of(Kind::Tool, same).facets[&Facet::Name], of(Kind::Prompt, same).facets[&Facet::Name]);
}

#[test]
fn what_is_ignored_does_not_count_and_nothing_else_is() {
    let ignore = ["/description".to_owned(), "/inputSchema/properties/a/enum".to_owned()];
    let hash = |value: &Value| Hashes::of(Kind::Tool, value, &ignore).unwrap().entry;
    let mut changed = tool();
    changed["description"] = json!("today");
    changed["inputSchema"]["properties"]["a"]["enum"] = json!(["z"]);
    assert_eq!(hash(&changed), hash(&tool()));
    changed["title"] = json!("other");
    assert_ne!(hash(&changed), hash(&tool()));
    let mut odd = json!({ "a~/b": [1, 2, 3] });
    leave_out(&mut odd, "/a~0~1b/1");
    assert_eq!(odd, json!({ "a~/b": [1, null, 3] }));
    leave_out(&mut odd, "/none/x");
    leave_out(&mut odd, "");
    leave_out(&mut odd, "/a~0~1b");
    assert_eq!(odd, json!({}));
    assert!(pointer_problem(Kind::Tool, "/name").is_some() && pointer_problem(Kind::Tool, "").is_some());
    assert!(
        pointer_problem(Kind::Tool, "/description").is_none() && pointer_problem(Kind::Template, "/name").is_none()
    );
}

/// Any JSON, small.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-cA-C\u{e9}\u{1f600}/\"\\\\ -]{0,5}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c\u{e9}\u{1f600}]{1,3}|required|type|properties", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The same value, written with other spaces, another order and other escapes.
fn rewritten(value: &Value, out: &mut String, turn: &mut u32) {
    *turn = turn.wrapping_mul(1_103_515_245).wrapping_add(12_345);
    let space = ["", " ", "\n\t", "\r\n "][(*turn >> 16) as usize % 4];
    let text = |text: &str, out: &mut String, all: bool| {
        out.push('"');
        for unit in text.encode_utf16() {
            match char::from_u32(u32::from(unit)).filter(|c| !all && !c.is_control() && *c != '"' && *c != '\\') {
                Some(c) => out.push(c),
                None => out.push_str(&format!("\\u{unit:04x}")),
            }
        }
        out.push('"');
    };
    match value {
        Value::Object(members) => {
            out.push('{');
            let mut members: Vec<_> = members.iter().collect();
            if *turn & (1 << 20) != 0 {
                members.reverse();
            }
            for (n, (key, value)) in members.into_iter().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                out.push_str(space);
                text(key, out, *turn & (1 << 21) != 0);
                out.push_str(space);
                out.push(':');
                rewritten(value, out, turn);
            }
            out.push_str(space);
            out.push('}');
        }
        Value::Array(elements) => {
            out.push('[');
            for (n, element) in elements.iter().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                rewritten(element, out, turn);
                out.push_str(space);
            }
            out.push(']');
        }
        Value::String(value) => text(value, out, *turn & (1 << 22) != 0),
        Value::Number(number) if *turn & (1 << 23) != 0 => out.push_str(&format!("{number}.0")),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

fn place_anywhere(definition: &mut Value, place: usize, value: Value) {
    match place {
        0 => definition["description"] = value,
        1 => definition["inputSchema"] = value,
        2 => definition["annotations"] = value,
        3 => definition["_meta"] = json!({ "acme/x": value }),
        _ => definition["future"] = value,
    }
}

proptest! {
    #[test]
    fn order_space_and_escapes_never_matter(value in any_json(), place in 0usize..5, mut turn in any::<u32>()) {
        let mut definition = json!({ "name": "n" });
        place_anywhere(&mut definition, place, value);
        let mut text = String::new();
        rewritten(&definition, &mut text, &mut turn);
        prop_assert_eq!(of(Kind::Tool, &text), Hashes::of(Kind::Tool, &definition, &[]).unwrap());
    }

    /// Values that differ in canonical text differ in hash, but for what §4.2 and §4.3 call the same; and only the facet
    /// that the place belongs to differs.
    #[test]
    fn any_other_difference_matters(one in any_json(), two in any_json(), place in 0usize..5) {
        let with = |value: &Value| {
            let mut definition = json!({ "name": "n" });
            place_anywhere(&mut definition, place, value.clone());
            definition
        };
        let (a, b) = (with(&one), with(&two));
        let same = match place {
            1 => ordered(&one) == ordered(&two),
            2 => filled(Some(one.clone())) == filled(Some(two.clone())),
            _ => one == two,
        };
        let (a, b) = (Hashes::of(Kind::Tool, &a, &[]).unwrap(), Hashes::of(Kind::Tool, &b, &[]).unwrap());
        prop_assert_eq!(a.entry == b.entry, same);
        let facet = [Facet::Text, Facet::Input, Facet::Annotations, Facet::Meta, Facet::Other][place];
        prop_assert_eq!(a.differences(&b.facets), if same { vec![] } else { vec![facet] });
    }

    /// No name, whatever is in it, makes one pair of kind and name look like another.
    #[test]
    fn no_name_imitates_another(one in "[a\u{0}\"/:,{}-]{1,6}", two in "[a\u{0}\"/:,{}-]{1,6}") {
        let hash = |kind, name: &str| Hashes::of(kind, &json!({ "name": name }), &[]).unwrap().entry;
        prop_assert_eq!(hash(Kind::Tool, &one) == hash(Kind::Tool, &two), one == two);
        prop_assert_ne!(hash(Kind::Tool, &one), hash(Kind::Prompt, &two));
    }
}
