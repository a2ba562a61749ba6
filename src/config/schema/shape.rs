//! The keys of a file as a table: what may stand at each.
//!
//! The other view of the types in `schema`; the test below holds the two equal.

use std::time::Duration;

use crate::config::check::{self, Shape, any, not_empty};
use crate::config::{address, keys, pins, rate, rules, size, tokens, window};

const fn period(min: Duration, max: Duration) -> Shape {
    Shape::Period { never: false, min, max }
}

const TICK: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The keys of a file.
pub(in crate::config) static SHAPE: Shape = Shape::Table(&[
    (
        "gateway",
        Shape::Table(&[
            ("instructions", Shape::Text(any)),
            ("name_budget", Shape::Count { min: 24, max: 128 }),
            ("pass_env", PATTERNS),
            ("state", Shape::Text(not_empty)),
            ("seal_key", Shape::Text(not_empty)),
            ("tokenizer", word(&["cl100k_base", "o200k_base"])),
            ("max_message", Shape::Text(size::message_problem)),
            ("list_deadline", period(TICK, Duration::from_secs(60))),
        ]),
    ),
    ("servers", Shape::Members { name: check::server_key_problem, each: &SERVER }),
    ("profiles", Shape::Members { name: check::profile_name_problem, each: &PROFILE }),
    ("policy", POLICY),
    ("search", Shape::Table(&[("model", Shape::Text(not_empty))])),
    (
        "pins",
        Shape::Table(&[
            ("mode", PIN_MODE),
            ("lock", Shape::Text(not_empty)),
            ("recheck", period(Duration::from_secs(1), DAY)),
        ]),
    ),
    (
        "http",
        Shape::Table(&[
            ("listen", Shape::Text(address::listen_problem)),
            ("allowed_hosts", Shape::Texts(address::host_problem)),
            ("allowed_origins", Shape::Texts(address::origin_problem)),
            ("sse", Shape::Bool),
            ("tls", Shape::Table(&[("cert", Shape::Text(not_empty)), ("key", Shape::Text(not_empty))])),
        ]),
    ),
    (
        "auth",
        Shape::Table(&[
            ("mode", word(&["keys", "jwt", "both", "none"])),
            ("keys", Shape::Tables(&KEY)),
            ("jwt", JWT),
            ("stdio", Shape::Tables(&STDIO_TOKEN)),
        ]),
    ),
    (
        "admin",
        Shape::Table(&[
            ("socket", Shape::Text(not_empty)),
            ("listen", Shape::Text(address::listen_problem)),
            ("attach", word(&["off", "auto"])),
        ]),
    ),
    (
        "telemetry",
        Shape::Table(&[
            ("log", Shape::Text(check::log_problem)),
            ("format", word(&["pretty", "json"])),
            (
                "audit",
                Shape::Table(&[
                    ("file", Shape::Text(not_empty)),
                    ("keep", period(Duration::from_secs(60), Duration::from_secs(3660 * 24 * 3600))),
                    ("values", Shape::Texts(rules::recorded_problem)),
                ]),
            ),
            ("otlp", Shape::Text(not_empty)),
            ("otlp_headers", Shape::Named(address::header_problem)),
        ]),
    ),
]);

const PATTERNS: Shape = Shape::Texts(check::pattern_problem);
const ITEMS: Shape = Shape::Table(&[("allow", PATTERNS), ("deny", PATTERNS)]);

const fn word(words: &'static [&'static str]) -> Shape {
    Shape::Word { words, later: &[] }
}

static SERVER: Shape = Shape::Table(&[
    ("command", Shape::Text(not_empty)),
    ("args", Shape::Texts(any)),
    ("env", Shape::Named(check::variable_problem)),
    ("cwd", Shape::Text(not_empty)),
    ("url", Shape::Text(not_empty)),
    ("headers", Shape::Named(address::header_problem)),
    ("ca", Shape::Text(not_empty)),
    ("transport", word(&["http", "sse"])),
    ("enabled", Shape::Bool),
    ("start", word(&["lazy", "eager"])),
    ("era", word(&["auto", "modern", "legacy"])),
    ("prefix", Shape::Text(check::prefix_problem)),
    ("idle_stop", Shape::Period { never: true, min: TICK, max: Duration::from_secs(30 * 24 * 3600) }),
    (
        "timeouts",
        Shape::Table(&[
            ("start", period(TICK, HOUR)),
            ("probe", period(TICK, Duration::from_secs(300))),
            ("call", period(TICK, DAY)),
            ("call_max", period(TICK, DAY)),
            ("ping", period(TICK, HOUR)),
        ]),
    ),
    ("ping", Shape::Period { never: true, min: TICK, max: DAY }),
    (
        "restart",
        Shape::Table(&[
            ("first", period(TICK, HOUR)),
            ("longest", period(TICK, DAY)),
            ("failures", Shape::Count { min: 1, max: 1000 }),
            ("within", period(TICK, DAY)),
            ("pause", period(TICK, DAY)),
            ("stable", period(TICK, DAY)),
            ("per_minute", Shape::Count { min: 1, max: 1000 }),
        ]),
    ),
    ("stop", Shape::Table(&[("input", period(TICK, HOUR)), ("term", period(TICK, HOUR))])),
    ("required", Shape::Bool),
    ("sharing", word(&["auto", "shared", "session", "principal"])),
    (
        "limits",
        Shape::Table(&[
            ("rate", RATE),
            ("burst", BURST),
            ("concurrency", Shape::Count { min: 1, max: 10_000 }),
            ("queue", Shape::Count { min: 0, max: 100_000 }),
            ("max_result", Shape::Text(size::result_problem)),
            ("stderr", Shape::Text(size::result_problem)),
            ("definition", Shape::Text(size::definition_problem)),
            ("entries", Shape::Count { min: 1, max: 1_000_000 }),
            ("list", Shape::Text(size::list_problem)),
        ]),
    ),
    ("tools", Shape::Table(&[("allow", PATTERNS), ("deny", PATTERNS), ("always", PATTERNS)])),
    ("prompts", ITEMS),
    ("resources", ITEMS),
    ("templates", ITEMS),
    ("roots", ITEMS),
    ("pin", Shape::Either(&PIN_MODE, &PIN)),
    ("override", Shape::Members { name: not_empty, each: &OVERRIDE }),
]);

const PIN_MODE: Shape = word(&["off", "warn", "enforce"]);

static PIN: Shape = Shape::Table(&[
    ("mode", PIN_MODE),
    ("ignore", Shape::Texts(pins::pointer_problem)),
    ("tolerate", Shape::Texts(pins::facet_problem)),
    ("additions", word(&["hold", "allow-readonly-template", "allow"])),
    ("min_level", Shape::Count { min: 0, max: 3 }),
    ("strict_protocol", Shape::Bool),
]);

static OVERRIDE: Shape = Shape::Table(&[
    ("name", Shape::Text(rules::exposed_problem)),
    ("title", Shape::Text(not_empty)),
    ("description", Shape::Text(any)),
    ("hide", Shape::Bool),
    ("fixed", JSON_MEMBERS),
    ("defaults", JSON_MEMBERS),
    ("timeout", period(TICK, DAY)),
    ("retry_safe", Shape::Bool),
]);

const JSON_MEMBERS: Shape = Shape::Members { name: not_empty, each: &Shape::Json };
const RATE: Shape = Shape::Text(rate::problem);
const BURST: Shape = Shape::Count { min: 1, max: 1_000_000 };
const WHO: Shape = Shape::Texts(rules::who_problem);
const TARGET: Shape = Shape::Texts(rules::target_problem);

const POLICY: Shape = Shape::Table(&[
    ("default", word(&["allow", "deny"])),
    ("shadow", Shape::Bool),
    ("attempts", Shape::Table(&[("rate", RATE), ("burst", BURST)])),
    ("rule", Shape::Tables(&RULE)),
    ("limit", Shape::Tables(&LIMIT)),
]);

static RULE: Shape = Shape::Table(&[
    ("effect", word(&["allow", "deny"])),
    ("who", WHO),
    ("target", TARGET),
    ("where", Shape::Tables(&CONDITION)),
    (
        "annotations",
        Shape::Table(&[
            ("readOnly", Shape::Bool),
            ("destructive", Shape::Bool),
            ("idempotent", Shape::Bool),
            ("openWorld", Shape::Bool),
        ]),
    ),
    ("transport", word(&["stdio", "http"])),
    (
        "time",
        Shape::Table(&[
            ("days", Shape::Texts(window::days_problem)),
            ("hours", Shape::Text(window::hours_problem)),
            ("zone", Shape::Text(window::zone_problem)),
        ]),
    ),
    ("min_level", Shape::Count { min: 1, max: 3 }),
    ("locked", Shape::Bool),
]);

static CONDITION: Shape = Shape::Table(&[
    ("pointer", Shape::Text(rules::pointer_problem)),
    ("optional", Shape::Bool),
    ("equals", Shape::Scalar),
    ("one_of", Shape::Scalars),
    ("absent", Shape::Bool),
    ("type", word(&["string", "number", "integer", "boolean", "null", "object", "array"])),
    ("max_len", Shape::Count { min: 0, max: 1_000_000_000 }),
    ("range", Shape::Scalars),
    ("glob", Shape::Text(check::pattern_problem)),
    ("path_under", Shape::Texts(rules::folder_problem)),
    ("url_host", Shape::Texts(rules::host_problem)),
    ("no_extra", Shape::Texts(any)),
]);

static LIMIT: Shape = Shape::Table(&[
    ("who", WHO),
    ("target", TARGET),
    ("per", word(&["principal", "server", "tool", "principal+tool", "everyone"])),
    ("rate", RATE),
    ("burst", BURST),
    ("quota", RATE),
    ("concurrency", Shape::Count { min: 1, max: 100_000 }),
    ("max_result", Shape::Text(size::result_problem)),
]);

static PROFILE: Shape = Shape::Table(&[
    ("servers", Shape::Texts(any)),
    (
        "tools",
        Shape::Table(&[
            ("allow", Shape::Texts(check::target_problem)),
            ("deny", Shape::Texts(check::target_problem)),
            ("always", Shape::Texts(check::target_problem)),
        ]),
    ),
    ("surface", word(&["list", "search", "auto"])),
    ("max_tokens", Shape::Count { min: 500, max: 10_000_000 }),
    ("recent", period(Duration::from_secs(60), Duration::from_secs(366 * 24 * 3600))),
    (
        "trim",
        Shape::Table(&[
            ("description", Shape::Count { min: 40, max: 100_000 }),
            ("output_schema", Shape::Bool),
            ("examples", Shape::Bool),
            ("dialect", Shape::Bool),
        ]),
    ),
    ("list_servers", Shape::Bool),
    ("name_budget", Shape::Count { min: 24, max: 128 }),
]);

static KEY: Shape = Shape::Table(&[
    ("name", Shape::Text(keys::name_problem)),
    ("hash", Shape::Text(keys::hash_problem)),
    ("groups", Shape::Texts(keys::name_problem)),
    ("expires", Shape::Text(check::moment_problem)),
]);

const JWT: Shape = Shape::Table(&[
    ("issuer", Shape::Text(tokens::issuer_problem)),
    ("audience", Shape::Text(tokens::audience_problem)),
    ("resource", Shape::Text(tokens::resource_problem)),
    ("jwks", Shape::Text(tokens::keys_problem)),
    ("groups_claim", Shape::Text(tokens::claim_problem)),
    ("scopes", Shape::Texts(tokens::scope_problem)),
]);

static STDIO_TOKEN: Shape = Shape::Table(&[
    ("name", Shape::Text(keys::name_problem)),
    ("hash", Shape::Text(keys::hash_problem)),
    ("groups", Shape::Texts(keys::name_problem)),
]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema::json_schema;
    use serde_json::Value;

    /// Walks the schema and the table together.
    fn compare(schema: &Value, root: &Value, shape: &Shape, path: &str) {
        // What may be absent is this or null.
        let schema = schema.get("anyOf").map_or(schema, |either| &either[0]);
        let schema = match schema.get("$ref").and_then(Value::as_str) {
            Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
            None => schema,
        };
        match shape {
            Shape::Table(keys) => {
                let mut described: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
                let mut tabled: Vec<_> = keys.iter().map(|(name, _)| (*name).to_owned()).collect();
                described.sort();
                tabled.sort();
                assert_eq!(described, tabled, "{path}");
                assert_eq!(schema["additionalProperties"], false, "{path}");
                for (name, shape) in *keys {
                    let member = &schema["properties"][*name];
                    compare(member, root, shape, &format!("{path}.{name}"));
                }
            }
            Shape::Members { each, .. } => {
                compare(&schema["additionalProperties"], root, each, &format!("{path}.*"));
            }
            Shape::Tables(each) => {
                compare(&schema["items"], root, each, &format!("{path}[]"));
            }
            Shape::Word { words, .. } => {
                let text = schema.to_string();
                for word in *words {
                    assert!(text.contains(&format!("\"{word}\"")), "{path}: {word}");
                }
            }
            Shape::Count { min, max } => {
                assert_eq!(schema["minimum"], *min, "{path}");
                assert_eq!(schema["maximum"], *max, "{path}");
            }
            Shape::Either(word, table) => {
                compare(&schema["anyOf"][0], root, word, path);
                compare(&schema["anyOf"][1], root, table, path);
            }
            Shape::Text(_)
            | Shape::Bool
            | Shape::Scalar
            | Shape::Scalars
            | Shape::Json
            | Shape::Period { .. }
            | Shape::Texts(_)
            | Shape::Named(_) => {}
        }
    }

    #[test]
    fn the_table_of_shapes_is_the_schema() {
        let root: Value = serde_json::from_str(&json_schema()).unwrap();
        compare(&root, &root, &SHAPE, "");
    }
}
