//! What a host can do for servers, as far as it is bridged, and how it is told to a server (§9.3, CAP-6, CAP-7).
//!
//! Read from the raw object of a modern request or of `initialize`; what is not bridged is not kept, so it cannot
//! be passed on by mistake.

use bytes::Bytes;

use super::code;
use super::form;
use super::json;
use super::method::Method;
use super::version::{Era, Revision};

/// The extension of MCP Apps.
pub const UI: &str = "io.modelcontextprotocol/ui";
/// The extension of tasks, of the modern era.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The capabilities of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// It has roots.
    pub roots: bool,
    /// It tells when they change (legacy).
    pub roots_list_changed: bool,
    /// It samples.
    pub sampling: bool,
    /// It samples with tools.
    pub sampling_tools: bool,
    /// It shows forms.
    pub elicitation_form: bool,
    /// Also such as seem to ask for secrets; no host says otherwise, policy does (URL-6).
    pub elicitation_secrets: bool,
    /// It opens URLs.
    pub elicitation_url: bool,
    /// Its settings of [`UI`], raw, when it shows apps.
    pub ui: Option<Bytes>,
    /// It takes tasks in place of results ([`TASKS`]).
    pub tasks: bool,
}

impl Capabilities {
    /// Reads the raw object. A member of another kind than it should be counts as absent.
    pub fn read(raw: &[u8]) -> Self {
        let mut read = Self::default();
        let is_object = |value: &[u8]| value.starts_with(b"{");
        for entry in json::members(raw).filter(|entry| is_object(entry.value)) {
            let has = |name| json::members(entry.value).any(|inner| inner.is(name) && is_object(inner.value));
            if entry.is("roots") {
                read.roots = true;
                read.roots_list_changed =
                    json::members(entry.value).any(|inner| inner.is("listChanged") && inner.value == b"true");
            } else if entry.is("sampling") {
                read.sampling = true;
                read.sampling_tools = has("tools");
            } else if entry.is("elicitation") {
                read.elicitation_url = has("url");
                // Without a mode it is the one that came first.
                read.elicitation_form = has("form") || !read.elicitation_url;
                read.elicitation_secrets = read.elicitation_form;
            } else if entry.is("extensions") {
                let ui = json::members(entry.value).find(|inner| inner.is(UI) && is_object(inner.value));
                read.ui = ui.map(|ui| Bytes::copy_from_slice(ui.value));
                read.tasks = has(TASKS);
            }
        }
        read
    }

    /// Whether it can do nothing for servers.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it can do no more than `other`.
    pub fn is_within(&self, other: &Self) -> bool {
        let at_most = |mine: bool, theirs: bool| !mine || theirs;
        at_most(self.roots, other.roots)
            && at_most(self.roots_list_changed, other.roots_list_changed)
            && at_most(self.sampling, other.sampling)
            && at_most(self.sampling_tools, other.sampling_tools)
            && at_most(self.elicitation_form, other.elicitation_form)
            && at_most(self.elicitation_secrets, other.elicitation_secrets)
            && at_most(self.elicitation_url, other.elicitation_url)
            && (self.ui.is_none() || self.ui == other.ui)
            && at_most(self.tasks, other.tasks)
    }

    /// Whether a server may ask anything at all.
    pub fn may_be_asked(&self) -> bool {
        self.roots || self.sampling || self.elicitation_form || self.elicitation_url
    }

    /// Whether a server may ask this, and the code of the refusal when it may not (MLB-1).
    pub fn permit(&self, method: Method, params: Option<&[u8]>) -> Result<(), i64> {
        let has = |name| json::members(params.unwrap_or_default()).any(|entry| entry.is(name));
        let declared = if method == Method::Elicit {
            match (self.elicitation_form, self.elicitation_url) {
                (false, false) => None,
                (_, url) if is_url(params) => Some(url),
                (form, _) => Some(form && (self.elicitation_secrets || form::secret(params).is_none())),
            }
        } else if method == Method::Sample {
            self.sampling.then(|| self.sampling_tools || !(has("tools") || has("toolChoice")))
        } else {
            (method == Method::Roots && self.roots).then_some(true)
        };
        match declared {
            Some(true) => Ok(()),
            Some(false) => Err(code::INVALID_PARAMS),
            None => Err(code::METHOD_NOT_FOUND),
        }
    }

    /// Appends the object as a server of this revision is told. Never more than the host declared; what its
    /// revision has no word for is left out.
    pub fn push(&self, out: &mut Vec<u8>, to: Revision) {
        let modern = to.era() == Era::Modern;
        let open = out.len();
        out.push(b'{');
        if self.roots {
            let changes = self.roots_list_changed && !modern;
            out.extend_from_slice(if changes { br#""roots":{"listChanged":true},"# } else { br#""roots":{},"# });
        }
        if self.sampling {
            let tools = self.sampling_tools && to >= Revision::V2025_11_25;
            out.extend_from_slice(if tools { br#""sampling":{"tools":{}},"# } else { br#""sampling":{},"# });
        }
        if to >= Revision::V2025_11_25 && self.elicitation_url {
            let form = if self.elicitation_form { br#""form":{},"#.as_slice() } else { b"" };
            out.extend_from_slice(br#""elicitation":{"#);
            out.extend_from_slice(form);
            out.extend_from_slice(br#""url":{}},"#);
        } else if to >= Revision::V2025_06_18 && self.elicitation_form {
            out.extend_from_slice(br#""elicitation":{},"#);
        }
        // Other extensions are not bridged, so they are not offered (EXT-2).
        let tasks = self.tasks && modern;
        if self.ui.is_some() || tasks {
            out.extend_from_slice(br#""extensions":{"#);
            if let Some(ui) = &self.ui {
                out.extend_from_slice(format!(r#""{UI}":"#).as_bytes());
                out.extend_from_slice(ui);
                out.push(b',');
            }
            if tasks {
                out.extend_from_slice(format!(r#""{TASKS}":{{}},"#).as_bytes());
            }
            out.pop();
            out.extend_from_slice(b"},");
        }
        if out.len() > open + 1 {
            out.pop();
        }
        out.push(b'}');
    }
}

/// Whether the raw params of an elicitation are for a URL.
pub fn is_url(params: Option<&[u8]>) -> bool {
    json::members(params.unwrap_or_default()).any(|entry| entry.is("mode") && entry.value == b"\"url\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mlb1_what_was_not_declared_is_refused_with_the_code_of_its_kind() {
        let (url, form) = (r#"{"mode":"url"}"#, r#"{"mode":"form"}"#);
        for (declared, method, params, permitted) in [
            ("{}", Method::Roots, "{}", Err(-32601)),
            (r#"{"roots":{}}"#, Method::Roots, "{}", Ok(())),
            ("{}", Method::Elicit, form, Err(-32601)),
            (r#"{"elicitation":{}}"#, Method::Elicit, "{}", Ok(())),
            (r#"{"elicitation":{}}"#, Method::Elicit, url, Err(-32602)),
            (r#"{"elicitation":{"url":{}}}"#, Method::Elicit, form, Err(-32602)),
            (r#"{"elicitation":{"url":{}}}"#, Method::Elicit, url, Ok(())),
            ("{}", Method::Sample, "{}", Err(-32601)),
            (r#"{"sampling":{}}"#, Method::Sample, r#"{"tools":[]}"#, Err(-32602)),
            (r#"{"sampling":{}}"#, Method::Sample, r#"{"toolChoice":{}}"#, Err(-32602)),
            (r#"{"sampling":{"tools":{}}}"#, Method::Sample, r#"{"tools":[]}"#, Ok(())),
            (r#"{"roots":{}}"#, Method::ToolsCall, "{}", Err(-32601)),
        ] {
            let read = Capabilities::read(declared.as_bytes());
            assert_eq!(read.permit(method, Some(params.as_bytes())), permitted, "{declared} {method:?} {params}");
        }
    }

    #[test]
    fn con4_a_profile_is_within_another_when_it_declares_nothing_else() {
        let read = |raw: &str| Capabilities::read(raw.as_bytes());
        let wide = read(r#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}"#);
        for raw in ["{}", r#"{"roots":{}}"#, r#"{"elicitation":{},"sampling":{}}"#] {
            assert!(read(raw).is_within(&wide), "{raw}");
        }
        assert!(!wide.is_within(&read(r#"{"roots":{}}"#)));
        assert!(!read(r#"{"roots":{"listChanged":true}}"#).is_within(&wide));
    }

    fn told(raw: &str, to: Revision) -> String {
        let mut out = Vec::new();
        Capabilities::read(raw.as_bytes()).push(&mut out, to);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cap6_a_server_is_told_what_the_host_declared_and_no_more() {
        let modern = |raw| told(raw, Revision::V2026_07_28);
        assert_eq!(modern("{}"), "{}");
        assert_eq!(modern(r#"{"roots":{"listChanged":true}}"#), r#"{"roots":{}}"#);
        assert_eq!(modern(r#"{"elicitation":{}}"#), r#"{"elicitation":{}}"#);
        assert_eq!(modern(r#"{"elicitation":{"url":{}}}"#), r#"{"elicitation":{"url":{}}}"#);
        assert_eq!(modern(r#"{"elicitation":{"form":{},"url":{}}}"#), r#"{"elicitation":{"form":{},"url":{}}}"#);
        assert_eq!(modern(r#"{"sampling":null,"experimental":{"x":{}},"tasks":{},"extensions":{"acme/x":{}}}"#), "{}");
        assert_eq!(
            modern(r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#),
            r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#
        );
    }

    #[test]
    fn tsk3_tsk10_ext2_tasks_are_declared_to_modern_servers_alone_and_no_other_extension_is() {
        let raw = r#"{"tasks":{"requests":{}},"extensions":{"io.modelcontextprotocol/tasks":{"x":1},"acme/x":{},"io.modelcontextprotocol/ui":{}}}"#;
        assert_eq!(
            told(raw, Revision::V2026_07_28),
            r#"{"extensions":{"io.modelcontextprotocol/ui":{},"io.modelcontextprotocol/tasks":{}}}"#
        );
        assert_eq!(told(raw, Revision::V2025_11_25), r#"{"extensions":{"io.modelcontextprotocol/ui":{}}}"#);
        let alone = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
        assert_eq!(told(alone, Revision::V2026_07_28), alone);
        assert_eq!(told(alone, Revision::V2025_11_25), "{}");
        assert_eq!(told(r#"{"extensions":{"io.modelcontextprotocol/tasks":null}}"#, Revision::V2026_07_28), "{}");
    }

    #[test]
    fn cap7_the_context_of_other_servers_is_never_offered() {
        assert_eq!(
            told(r#"{"sampling":{"tools":{},"context":{}}}"#, Revision::V2026_07_28),
            r#"{"sampling":{"tools":{}}}"#
        );
    }

    #[test]
    fn an_older_server_is_told_what_its_revision_has_words_for() {
        let raw = r#"{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}"#;
        assert_eq!(
            told(raw, Revision::V2025_06_18),
            r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}"#
        );
        assert_eq!(told(raw, Revision::V2025_03_26), r#"{"roots":{"listChanged":true},"sampling":{}}"#);
        assert_eq!(told(r#"{"elicitation":{"url":{}}}"#, Revision::V2025_06_18), "{}");
    }
}
