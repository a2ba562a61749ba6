//! One entry of a list: checked, and kept as the slice of the message that it came in.
//!
//! Notes where the members stand that are read or may be published otherwise; no other is looked at. Knows nothing
//! of names towards the host, rules, or other servers. Read by `part`, published by `render`.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::adjust::Given;
use super::render::Needs;
use super::schema::{MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES};
use super::uri::{self, MAX_URI, Template};
use super::{headers, meta};
use crate::ident::Kind;
use crate::pins::drift::Hold;
use crate::protocol::headers::HeaderParam;
use crate::protocol::json::{self, Span};

/// One entry as listed.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// The definition, a slice of the message that it came in.
    pub(super) definition: Bytes,
    /// Where in it that stands which is unique about it, with its quotes: the name, URI or template.
    pub(super) subject: Span,
    /// The text of that.
    pub(super) native: Arc<str>,
    /// What must be changed before some host can be shown it.
    pub(super) needs: Needs,
    /// The members that this is about, and the subject, in the order of the text; empty when nothing must.
    pub(super) special: Box<[Special]>,
    /// What its server lists.
    pub(super) whole: Bytes,
    /// Hash of the definition.
    pub(super) digest: [u8; 16],
    /// The resources that show a tool (APP-2).
    pub(super) links: Box<[Box<str>]>,
    /// A tool that apps alone may call (APP-5).
    pub(super) app_only: bool,
    /// The valid header annotations of a tool.
    pub(super) mirror: Option<Arc<[HeaderParam]>>,
    /// A template, taken apart.
    pub(super) template: Option<Arc<Template>>,
    /// A tool that can be called as a task only (TSK-7).
    pub(super) task: bool,
    /// What hosts call it, where the operator says so; behind the prefix.
    pub(super) renamed: Option<Box<str>>,
    /// Whether the operator hides it.
    pub(super) hide: bool,
    /// Why it is not served, where it is not as it was reviewed.
    pub(super) hold: Option<Arc<Hold>>,
    /// What the operator changes about its calls.
    pub(super) given: Option<Arc<Given>>,
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not a JSON object.
    #[error("it is not an object")]
    NotAnObject,
    /// No `name`, or one that is no text (another kind of value, a lone surrogate), or an empty one.
    #[error("it has no usable name")]
    NoName,
    /// The same of the URI or template of a resource.
    #[error("it has no usable URI")]
    NoUri,
    /// A URI without a scheme, too long or with control characters (RES-5).
    #[error("its URI has no scheme, more than {MAX_URI} bytes or a control character")]
    BadUri,
    /// A template that is none, or too long or with control characters.
    #[error(
        "its uriTemplate has braces that do not pair, too many of them, more than {MAX_URI} bytes or a control character"
    )]
    BadTemplate,
    /// An earlier entry has that name.
    #[error("an earlier entry has the same name")]
    DuplicateName,
    /// An earlier entry has that URI or template.
    #[error("an earlier entry has the same URI")]
    DuplicateUri,
    /// A member twice: readers would disagree on which counts.
    #[error("it has the member \"{}\" twice", crate::shown::shown_str(.0))]
    DuplicateMember(String),
    /// No `inputSchema`.
    #[error("it has no inputSchema")]
    NoInputSchema,
    /// An `inputSchema` that is not an object.
    #[error("its inputSchema is not an object")]
    InputSchemaNotAnObject,
    /// An `inputSchema` for something else than an object.
    #[error("its inputSchema is not of type \"object\"")]
    InputSchemaType,
    /// Larger than may be.
    #[error("its definition has {0} bytes, the limit is {1}")]
    TooLarge(usize, usize),
    /// A schema deeper than [`MAX_SCHEMA_DEPTH`].
    #[error("a schema of it is nested {0} levels deep, the limit is {MAX_SCHEMA_DEPTH}")]
    TooDeep(usize),
    /// A schema with more than [`MAX_SCHEMA_NODES`] values.
    #[error("a schema of it has {0} values, the limit is {MAX_SCHEMA_NODES}")]
    TooManyNodes(usize),
}

/// A member of a definition that may be published otherwise than it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Special {
    /// Which one.
    pub(super) member: Member,
    /// How many members stand before it.
    pub(super) ordinal: u32,
    /// Where the member before it ends: what follows is space, a comma and its key.
    pub(super) lead: u32,
    /// Its value.
    pub(super) value: Span,
    /// Where the key of the next member begins; the end of its value, if it is the last.
    pub(super) next: u32,
}

/// Which member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    /// What is unique about it.
    Subject,
    /// The name of something that a URI identifies.
    Label,
    InputSchema,
    OutputSchema,
    Icons,
    Execution,
    Meta,
}

impl Member {
    fn of(kind: Kind, key: &str) -> Option<Self> {
        Some(match (kind, key) {
            (Kind::Tool | Kind::Prompt, "name") | (Kind::Resource, "uri") | (Kind::Template, "uriTemplate") => {
                Self::Subject
            }
            (Kind::Resource | Kind::Template, "name") => Self::Label,
            (Kind::Tool, "inputSchema") => Self::InputSchema,
            (Kind::Tool, "outputSchema") => Self::OutputSchema,
            (Kind::Tool, "execution") => Self::Execution,
            (_, "icons") => Self::Icons,
            (_, "_meta") => Self::Meta,
            _ => return None,
        })
    }
}

impl Item {
    /// Checks one definition, of so many bytes at most; a fault comes with the name or URI, where there is one.
    pub(super) fn read(kind: Kind, page: &Bytes, raw: &[u8], most: usize) -> Result<Self, (Option<String>, Fault)> {
        if raw.first() != Some(&b'{') {
            return Err((None, Fault::NotAnObject));
        }
        let mut special: Vec<Special> = Vec::with_capacity(4);
        let mut keys = Vec::with_capacity(16);
        let mut lead = 1;
        for entry in json::members(raw) {
            let start = raw[lead..].iter().position(|&b| b == b'"').map_or(lead, |quote| lead + quote);
            let ordinal = keys.len() as u32;
            if let Some(last) = special.last_mut().filter(|last| last.ordinal + 1 == ordinal) {
                last.next = start as u32;
            }
            let key = match entry.name() {
                Some(Cow::Owned(resolved)) => Cow::Owned(resolved),
                Some(Cow::Borrowed(_)) | None => String::from_utf8_lossy(entry.key),
            };
            let end = entry.at + entry.value.len();
            if let Some(member) = Member::of(kind, &key) {
                let value = Span { start: entry.at as u32, end: end as u32 };
                special.push(Special { member, ordinal, lead: lead as u32, value, next: end as u32 });
            }
            keys.push(key);
            lead = end;
        }
        let span = |member| special.iter().rfind(|found| found.member == member).map(|found| found.value);
        let value = |member| span(member).map(|span| span.of(raw));
        let subject = span(Member::Subject).and_then(|span| Some((span, json::text_of(span.of(raw))?)));
        let Some((subject, native)) = subject.filter(|(_, native)| !native.is_empty()) else {
            let named = matches!(kind, Kind::Tool | Kind::Prompt);
            return Err((None, if named { Fault::NoName } else { Fault::NoUri }));
        };
        let fail = |fault| (Some(native.clone().into_owned()), fault);
        if raw.len() > most {
            return Err(fail(Fault::TooLarge(raw.len(), most)));
        }
        keys.sort_unstable();
        if let Some(twin) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(fail(Fault::DuplicateMember(twin[0].clone().into_owned())));
        }
        let needs = Needs::of(kind, value).map_err(fail)?;
        let template = match kind {
            Kind::Tool | Kind::Prompt => None,
            Kind::Resource if uri::is_uri(&native) => None,
            Kind::Resource => return Err(fail(Fault::BadUri)),
            Kind::Template if !uri::is_short_and_clean(&native) => return Err(fail(Fault::BadTemplate)),
            Kind::Template => Some(Arc::new(Template::parse(&native).ok_or_else(|| fail(Fault::BadTemplate))?)),
        };
        let mut links: Box<[_]> = value(Member::Meta).into_iter().flat_map(meta::linked).collect();
        if kind != Kind::Tool {
            links = Box::default();
        }
        let mirror = value(Member::InputSchema).filter(|_| needs.has(Needs::HEADERS)).map(headers::valid);
        let is_required = |entry: json::Entry<'_>| entry.is("taskSupport") && entry.value == b"\"required\"";
        let task = value(Member::Execution).is_some_and(|execution| json::members(execution).any(is_required));
        let app_only = value(Member::Meta).is_some_and(meta::is_for_apps_alone);
        if needs == Needs::default() {
            special.clear();
        }
        Ok(Self {
            definition: page.slice_ref(raw),
            whole: page.slice_ref(raw),
            subject,
            native: native.into(),
            needs,
            special: special.into(),
            digest: digest(raw),
            links,
            app_only,
            mirror: mirror.filter(|params| !params.is_empty()).map(Into::into),
            template,
            task,
            renamed: None,
            hide: false,
            hold: None,
            given: None,
        })
    }

    /// What its name towards hosts is made of.
    pub(super) fn called(&self) -> &str {
        self.renamed.as_deref().unwrap_or(&self.native)
    }

    /// Whether an annotation for a header is invalid.
    pub(super) fn is_badly_annotated(&self) -> bool {
        self.needs.has(Needs::BAD_HEADER)
    }

    /// The subject as the server wrote it, a JSON string.
    pub(super) fn literal(&self) -> Bytes {
        self.definition.slice(self.subject.range())
    }
}

fn digest(raw: &[u8]) -> [u8; 16] {
    let full = Sha256::digest(raw);
    let mut half = [0; 16];
    half.copy_from_slice(&full[..16]);
    half
}
