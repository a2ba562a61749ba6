//! What a host can do for servers, as far as it is bridged, and how it is told to a server (§9.3, CAP-6, CAP-7).
//!
//! Read from the raw object of a modern request or of `initialize`; what is not bridged is not kept, so it cannot
//! be passed on by mistake.

use bytes::Bytes;

use super::json;
use super::version::{Era, Revision};

/// The extension of MCP Apps.
pub const UI: &str = "io.modelcontextprotocol/ui";

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
    /// It opens URLs.
    pub elicitation_url: bool,
    /// Its settings of [`UI`], raw, when it shows apps.
    pub ui: Option<Bytes>,
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
            } else if entry.is("extensions") {
                let ui = json::members(entry.value).find(|inner| inner.is(UI) && is_object(inner.value));
                read.ui = ui.map(|ui| Bytes::copy_from_slice(ui.value));
            }
        }
        read
    }

    /// Whether it can do nothing for servers.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
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
        if let Some(ui) = &self.ui {
            out.extend_from_slice(format!(r#""extensions":{{"{UI}":"#).as_bytes());
            out.extend_from_slice(ui);
            out.extend_from_slice(b"},");
        }
        if out.len() > open + 1 {
            out.pop();
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
