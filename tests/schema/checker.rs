//! Whether what the gateway emits is what the published JSON schemas describe: each message of each leg, in that leg's
//! revision, by the definition that its method has there.
//!
//! The schemas are no part of the product. Whoever has them names their folder in `ONEGATE_TEST_SCHEMAS` (files
//! `schema-<revision>.json` and `schema-ext-tasks.json`); without it nothing is looked at, and the tests are what they
//! were. The harnesses of all boundaries include this file and hand each message to a [`Leg`]: [`Leg::heard`] what the
//! test's peer says, [`Leg::said`] what the gateway says to it.
//!
//! **What counts as a violation of ours.** A gateway passes what others say, and the tests make them say odd things. The
//! rule is that *we break nothing that was whole*: peers' messages are held to the schema of their own leg too, and a
//! violation in a message of ours is excused only if a peer of the same test had the same one, which is the same keyword at
//! the same place of the same kind of message (index numbers and the keys of questions aside), in its own revision. So the
//! content that a server sent well formed must be well formed in the host's revision, whatever that asks for; and what is
//! ours alone is never excused: the envelope, `resultType`, `ttlMs`, `cacheScope`, the protocol's own keys in `_meta`, and
//! the answers to `initialize` and `server/discover`.
//!
//! Knows the protocol as far as it takes to find a definition: which method a result answers, which revision a message is
//! of. Its own tests are in `tests/schema.rs`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Value, json};

/// The folder of the schemas.
pub(crate) const FOLDER: &str = "ONEGATE_TEST_SCHEMAS";
/// The revisions that open with `initialize`, the newest last.
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const MODERN: &str = "2026-07-28";
/// The schema of the tasks extension, which belongs to modern legs.
const TASKS: &str = "ext-tasks";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// Members of a result that say something of the leg and not of the content.
const OF_LEG: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// All schemas, and what was compiled of them.
pub(crate) struct Schemas {
    files: BTreeMap<&'static str, Value>,
    compiled: Mutex<HashMap<(&'static str, String), Arc<Validator>>>,
}

/// Something that a schema does not allow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// `request`, `notification`, `result` or `error`, and of which method.
    kind: &'static str,
    method: String,
    /// Where, with `*` for each index.
    path: String,
    /// The keyword of the schema; with the member's name where one is missing.
    keyword: String,
}

/// A violation with words for people.
pub(crate) struct Finding {
    violation: Violation,
    text: String,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Schemas {
    /// Reads a folder; a file that is missing is a mistake of whoever named the folder.
    pub(crate) fn load(folder: &Path) -> Self {
        let read = |name: &'static str| {
            let path = folder.join(format!("schema-{name}.json"));
            let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{FOLDER}: {}: {error}", path.display()));
            (name, serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        };
        let names = LEGACY.into_iter().chain([MODERN, TASKS]);
        Self { files: names.map(read).collect(), compiled: Mutex::default() }
    }

    /// Those that the environment names.
    pub(crate) fn given() -> Option<&'static Self> {
        static GIVEN: OnceLock<Option<Schemas>> = OnceLock::new();
        GIVEN.get_or_init(|| std::env::var_os(FOLDER).map(|folder| Self::load(Path::new(&folder)))).as_ref()
    }

    fn definitions(&self, file: &str) -> &serde_json::Map<String, Value> {
        let file = &self.files[file];
        let definitions = file.get("$defs").or_else(|| file.get("definitions"));
        definitions.and_then(Value::as_object).expect("a schema has definitions")
    }

    fn has(&self, file: &str, definition: &str) -> bool {
        self.definitions(file).contains_key(definition)
    }

    /// The first that the schema has of these names.
    fn one_of(&self, file: &str, names: &[&str]) -> String {
        let found = names.iter().find(|name| self.has(file, name));
        (*found.unwrap_or_else(|| panic!("{file} has none of {names:?}"))).to_owned()
    }

    /// The definition whose `method` is this.
    fn of_method(&self, file: &str, method: &str) -> Option<&str> {
        let is_it = |schema: &Value| schema["properties"]["method"]["const"] == method;
        self.definitions(file).iter().find(|(_, schema)| is_it(schema)).map(|(name, _)| name.as_str())
    }

    /// The definition of the result that answers this method.
    fn of_result(&self, file: &str, method: &str) -> String {
        let request = self.of_method(file, method).and_then(|name| name.strip_suffix("Request"));
        let result = request.map(|name| format!("{name}Result")).filter(|name| self.has(file, name));
        result.unwrap_or_else(|| if request.is_some() { "EmptyResult" } else { "Result" }.to_owned())
    }

    /// A definition and all that it leads to: the whole takes much longer to compile.
    fn reached(&self, file: &str, definition: &str) -> Value {
        let definitions = self.definitions(file);
        let mut reached = serde_json::Map::new();
        let mut open = vec![definition.to_owned()];
        while let Some(name) = open.pop() {
            if reached.contains_key(&name) {
                continue;
            }
            let schema = definitions.get(&name).unwrap_or_else(|| panic!("{file} has no {name}"));
            let text = schema.to_string();
            let named = text.split("\"$ref\":\"#/").skip(1).filter_map(|rest| rest.split('"').next());
            open.extend(named.filter_map(|path| path.split('/').nth(1)).map(str::to_owned));
            reached.insert(name, schema.clone());
        }
        Value::Object(reached)
    }

    fn validator(&self, file: &'static str, definition: &str) -> Arc<Validator> {
        let key = (file, definition.to_owned());
        let mut compiled = lock(&self.compiled);
        let make = || {
            let whole = &self.files[file];
            let word = if whole.get("$defs").is_some() { "$defs" } else { "definitions" };
            let mut schema = json!({"$ref": format!("#/{word}/{definition}"), word: self.reached(file, definition)});
            if let Some(dialect) = whole.get("$schema") {
                schema["$schema"] = dialect.clone();
            }
            let options = jsonschema::options().should_validate_formats(true);
            Arc::new(options.build(&schema).unwrap_or_else(|error| panic!("{file}, {definition}: {error}")))
        };
        Arc::clone(compiled.entry(key).or_insert_with(make))
    }

    /// What this value violates of a definition; it stands at `place` of the message.
    fn look(&self, of: &Of<'_>, definition: &str, place: &str, value: &Value, found: &mut Vec<Finding>) {
        let validator = self.validator(of.file, definition);
        if validator.is_valid(value) {
            return;
        }
        for error in validator.iter_errors(value) {
            let steps = error.instance_path().to_string();
            let steps = steps.split('/').skip(1).map(|step| if step.parse::<usize>().is_ok() { "*" } else { step });
            let path = steps.fold(place.to_owned(), |path, step| path + "/" + step);
            let keyword = if let ValidationErrorKind::Required { property } = error.kind() {
                format!("required {property}")
            } else {
                error.kind().keyword().to_owned()
            };
            let text = format!("{} {definition}: {path}: {keyword}: {:.300}", of.file, error.to_string());
            let violation = Violation { kind: of.kind, method: of.method.to_owned(), path, keyword };
            found.push(Finding { violation, text });
        }
    }
}

/// Of what a value is a part.
struct Of<'a> {
    file: &'static str,
    kind: &'static str,
    method: &'a str,
}

impl Violation {
    /// Whether the gateway alone can have made it.
    fn is_ours(&self) -> bool {
        let named = |name: &str| OF_LEG.contains(&name) || name == "jsonrpc" || name == "id" || name == "method";
        let mut steps = self.path.split('/').skip(1);
        let (first, second) = (steps.next().unwrap_or_default(), steps.next().unwrap_or_default());
        let lacking = self.keyword.strip_prefix("required ").map(|name| name.trim_matches('"'));
        let at_top = second.is_empty();
        let key_of_protocol = second == "_meta" && steps.next().is_some_and(|key| key.starts_with("io.modelcontext"));
        named(first)
            || (first == "result" && OF_LEG.contains(&second))
            || key_of_protocol
            || (at_top && lacking.is_some_and(|name| named(name) || name == "_meta"))
            || (second == "_meta" && lacking.is_some())
            || (self.kind == "result" && ["initialize", "server/discover"].contains(&self.method.as_str()))
    }
}

/// What the peers of a test said that no schema allows.
#[derive(Default)]
pub(crate) struct Peers(BTreeSet<Violation>);

impl Peers {
    /// The findings that no peer had before.
    pub(crate) fn left<'a>(&self, found: &'a [Finding]) -> Vec<&'a str> {
        let excused = |found: &Finding| !found.violation.is_ours() && self.0.contains(&found.violation);
        found.iter().filter(|found| !excused(found)).map(|found| found.text.as_str()).collect()
    }
}

thread_local! {
    /// Those of the test on this thread: each test has a thread of its own.
    static PEERS: RefCell<Peers> = RefCell::default();
    /// The legs of sessions that are not one connection each, by their name or address.
    static NAMED: RefCell<HashMap<String, Leg>> = RefCell::default();
}

/// One leg: a connection of a peer with the gateway, or what stands for it. Clones are the same leg.
#[derive(Clone, Default)]
pub(crate) struct Leg(Arc<Mutex<State>>);

/// What a leg has to be known of to judge its messages.
#[derive(Default)]
struct State {
    /// What `initialize` agreed on.
    revision: Option<&'static str>,
    /// Whether there was a modern request.
    modern: bool,
    /// Requests without an answer, by who asked (the gateway or not) and the raw id: their method and revision. Several have
    /// an id when a peer uses one twice.
    asked: HashMap<(bool, String), Vec<(String, &'static str)>>,
}

impl Leg {
    /// The leg of a session; this one becomes it where none has that name yet.
    pub(crate) fn named(&self, name: &str) -> Self {
        NAMED.with_borrow_mut(|named| named.entry(name.to_owned()).or_insert_with(|| self.clone()).clone())
    }

    /// The peer says this: a line, or a body.
    pub(crate) fn heard(&self, message: &[u8]) {
        if let Some(schemas) = Schemas::given() {
            PEERS.with_borrow_mut(|peers| self.note(schemas, message, peers));
        }
    }

    /// The gateway says this; fails the test for what is wrong with it.
    pub(crate) fn said(&self, message: &[u8]) {
        if let Some(schemas) = Schemas::given() {
            let found = self.judge(schemas, message);
            let left: Vec<String> =
                PEERS.with_borrow(|peers| peers.left(&found).into_iter().map(str::to_owned).collect());
            assert!(left.is_empty(), "{left:#?}\nin {:.2000}", String::from_utf8_lossy(message));
        }
    }

    /// What a peer's message violates is kept.
    pub(crate) fn note(&self, schemas: &Schemas, message: &[u8], peers: &mut Peers) {
        let found = lock(&self.0).look(schemas, message, false);
        peers.0.extend(found.into_iter().map(|found| found.violation));
    }

    /// What a message of the gateway violates.
    pub(crate) fn judge(&self, schemas: &Schemas, message: &[u8]) -> Vec<Finding> {
        lock(&self.0).look(schemas, message, true)
    }
}

/// Reads a message. Half surrogates, which JSON allows and this library does not, are replaced.
fn read(message: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(message).ok()?;
    serde_json::from_str(text).ok().or_else(|| {
        let mut whole = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("\\u") {
            let code = rest.get(at + 2..at + 6)?;
            let is_half = matches!(u32::from_str_radix(code, 16).ok()?, 0xD800..=0xDFFF);
            whole.push_str(&rest[..at]);
            whole.push_str(if is_half { "?" } else { &rest[at..at + 6] });
            rest = &rest[at + 6..];
        }
        serde_json::from_str(&(whole + rest)).ok()
    })
}

/// A violation that no schema states.
fn other(text: &'static str, kind: &'static str) -> Finding {
    let violation = Violation { kind, method: String::new(), path: String::new(), keyword: text.to_owned() };
    Finding { violation, text: text.to_owned() }
}

impl State {
    fn session(&self) -> &'static str {
        self.revision.unwrap_or(LEGACY[3])
    }

    /// What is wrong with a message; `ours`: the gateway said it.
    fn look(&mut self, schemas: &Schemas, message: &[u8], ours: bool) -> Vec<Finding> {
        match read(message) {
            None => vec![other("it cannot be read", "unreadable")],
            Some(Value::Array(batch)) => {
                let mut found = Vec::new();
                if self.session() != "2025-03-26" {
                    found.push(other("this revision has no batches", "batch"));
                }
                for message in &batch {
                    found.extend(self.one(schemas, message, ours));
                }
                found
            }
            Some(message) => self.one(schemas, &message, ours),
        }
    }

    fn one(&mut self, schemas: &Schemas, message: &Value, ours: bool) -> Vec<Finding> {
        let id = message.get("id").map(Value::to_string);
        match (message["method"].as_str(), id) {
            (Some(method), Some(id)) => self.request(schemas, message, method, id, ours),
            (Some(method), None) => self.notification(schemas, message, method),
            (None, id) => self.answer(schemas, message, id.as_deref().unwrap_or_default(), ours),
        }
    }

    fn request(&mut self, schemas: &Schemas, message: &Value, method: &str, id: String, ours: bool) -> Vec<Finding> {
        let params = &message["params"];
        let is_modern = params["_meta"].get(VERSION).is_some()
            || ["server/discover", "subscriptions/listen", "tasks/update"].contains(&method);
        let file = if is_modern {
            self.modern = true;
            MODERN
        } else if method == "initialize" {
            let named = LEGACY.into_iter().find(|revision| params["protocolVersion"] == *revision);
            named.unwrap_or(LEGACY[3])
        } else {
            self.session()
        };
        self.asked.entry((ours, id)).or_default().push((method.to_owned(), file));
        let of = Of { file, kind: "request", method };
        let mut found = Vec::new();
        schemas.look(&of, "JSONRPCRequest", "", message, &mut found);
        let mut message = message.clone();
        // Each answer to a question is one of its own kind, as it is where it is a message.
        let answers = message.pointer_mut("/params/inputResponses").and_then(Value::as_object_mut).map(std::mem::take);
        for answer in answers.iter().flat_map(serde_json::Map::values) {
            let method = match answer {
                answer if answer.get("action").is_some() => "elicitation/create",
                answer if answer.get("roots").is_some() => "roots/list",
                _ => "sampling/createMessage",
            };
            schemas.look(
                &Of { file, kind: "result", method },
                &schemas.of_result(file, method),
                "/result",
                answer,
                &mut found,
            );
        }
        match (schemas.of_method(file, method), of_tasks(method).filter(|_| is_modern)) {
            (Some(definition), _) => schemas.look(&of, definition, "", &message, &mut found),
            (None, Some(name)) => {
                schemas.look(&Of { file: TASKS, ..of }, &format!("{name}Request"), "", &message, &mut found)
            }
            (None, None) => {}
        }
        found
    }

    fn notification(&self, schemas: &Schemas, message: &Value, method: &str) -> Vec<Finding> {
        let in_file = |file| {
            let of = Of { file, kind: "notification", method };
            let mut found = Vec::new();
            schemas.look(&of, "JSONRPCNotification", "", message, &mut found);
            if method == "notifications/tasks" && file == MODERN {
                schemas.look(&Of { file: TASKS, ..of }, "TaskStatusNotification", "", message, &mut found);
            } else if let Some(definition) = schemas.of_method(file, method) {
                schemas.look(&of, definition, "", message, &mut found);
            }
            found
        };
        if message["params"]["_meta"].get(SUBSCRIPTION).is_some() || (self.modern && self.revision.is_none()) {
            return in_file(MODERN);
        }
        let found = in_file(self.session());
        // On a leg of both eras it cannot be seen which one a notification is of.
        if !found.is_empty() && self.modern && in_file(MODERN).is_empty() { Vec::new() } else { found }
    }

    /// An answer is to the newest request of its id that it fits.
    fn answer(&mut self, schemas: &Schemas, message: &Value, id: &str, ours: bool) -> Vec<Finding> {
        let asked = self.asked.remove(&(!ours, id.to_owned())).unwrap_or_default();
        let mut first = None;
        for (at, (method, file)) in asked.iter().enumerate().rev() {
            let found = self.answer_to(schemas, message, Some((method.as_str(), *file)));
            if found.is_empty() || at == 0 {
                let mut rest = asked.clone();
                rest.remove(at);
                self.asked.insert((!ours, id.to_owned()), rest);
                return if found.is_empty() { found } else { first.unwrap_or(found) };
            }
            first.get_or_insert(found);
        }
        self.answer_to(schemas, message, None)
    }

    fn answer_to(&mut self, schemas: &Schemas, message: &Value, asked: Option<(&str, &'static str)>) -> Vec<Finding> {
        let known = asked.is_some();
        let otherwise = if self.modern && self.revision.is_none() { MODERN } else { self.session() };
        let (method, mut file) = asked.unwrap_or(("", otherwise));
        let mut found = Vec::new();
        let Some(result) = message.get("result") else {
            let of = Of { file, kind: "error", method };
            let definition = schemas.one_of(file, &["JSONRPCErrorResponse", "JSONRPCError"]);
            schemas.look(&of, &definition, "", message, &mut found);
            return found;
        };
        if method == "initialize"
            && let Some(agreed) = LEGACY.into_iter().find(|revision| result["protocolVersion"] == *revision)
        {
            self.revision = Some(agreed);
            file = agreed;
        }
        let of = Of { file, kind: "result", method };
        let definition = schemas.one_of(file, &["JSONRPCResultResponse", "JSONRPCResponse"]);
        schemas.look(&of, &definition, "", message, &mut found);
        if !known {
            return found;
        }
        let mut result = result.clone();
        let of_task = of_tasks(method).filter(|_| file == MODERN);
        match (result["resultType"].as_str(), of_task) {
            (Some("input_required"), _) if file == MODERN => {
                let questions = result.get_mut("inputRequests").and_then(Value::as_object_mut).map(std::mem::take);
                for question in questions.iter().flat_map(serde_json::Map::values) {
                    let method = question["method"].as_str().unwrap_or_default();
                    let of = Of { file, kind: "request", method };
                    let allowed = ["elicitation/create", "sampling/createMessage", "roots/list"].contains(&method);
                    match schemas.of_method(file, method).filter(|_| allowed) {
                        Some(definition) => schemas.look(&of, definition, "", question, &mut found),
                        None => found.push(other("this is no question", "request")),
                    }
                }
                schemas.look(&of, "InputRequiredResult", "/result", &result, &mut found);
            }
            (Some("task"), _) if file == MODERN => {
                schemas.look(&Of { file: TASKS, ..of }, "CreateTaskResult", "/result", &result, &mut found);
            }
            (_, Some(name)) => {
                schemas.look(&Of { file: TASKS, ..of }, &format!("{name}Result"), "/result", &result, &mut found);
            }
            _ => schemas.look(&of, &schemas.of_result(file, method), "/result", &result, &mut found),
        }
        found
    }
}

/// The name that a request of the tasks extension has in its schema.
fn of_tasks(method: &str) -> Option<&'static str> {
    match method {
        "tasks/get" => Some("GetTask"),
        "tasks/update" => Some("UpdateTask"),
        "tasks/cancel" => Some("CancelTask"),
        _ => None,
    }
}
