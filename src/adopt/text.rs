//! A text of a host's file with what it refers to, in one form for all hosts; written again in ours.
//!
//! Nothing is ever put in here: what a variable holds is known when a server is started, not when it is moved over.

use std::path::{MAIN_SEPARATOR, PathBuf};

use super::hosts::Variables;
use super::place::Platform;

/// A text, in pieces. Without `Debug`: it may be a secret (I-34).
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Text(pub Vec<Piece>);

/// A piece of a text.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// What stands there.
    Plain(String),
    /// A variable of the environment, and what stands for it where it is not set.
    Variable { name: String, default: Option<String> },
    /// The content of a file.
    File(String),
    /// What the host asks its user for, by its id there.
    Input(String),
    /// What the host keeps in confidence under this name.
    Kept(String),
    /// Something of the folder that the host has open.
    Workspace(String),
}

/// A text in our own form, and what has to be said of it.
pub(super) struct Own {
    pub text: String,
    /// Variables that stand for what the host asked for or kept: name there, name of ours.
    pub wanted: Vec<(String, String)>,
    /// Words of the host that nothing of ours stands for.
    pub lost: Vec<String>,
}

impl Text {
    /// A text without references.
    pub(super) fn plain(text: &str) -> Self {
        if text.is_empty() { Self::default() } else { Self(vec![Piece::Plain(text.to_owned())]) }
    }

    /// Finds the references of a host's form.
    pub(super) fn read(text: &str, variables: Variables) -> Self {
        let mut reader = Reader { variables, plain: String::new(), pieces: Vec::new() };
        reader.read(text);
        reader.end();
        Self(reader.pieces)
    }

    /// The text, when it holds no reference.
    pub(super) fn as_plain(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Piece::Plain(text)] => Some(text),
            _ => None,
        }
    }

    /// The plain text that it begins with.
    pub(super) fn beginning(&self) -> &str {
        match self.0.first() {
            Some(Piece::Plain(text)) => text,
            _ => "",
        }
    }

    /// In the form of our own files.
    pub(super) fn own(&self) -> Own {
        let mut own = Own { text: String::new(), wanted: Vec::new(), lost: Vec::new() };
        for piece in &self.0 {
            if !matches!(piece, Piece::Plain(_)) && own.text.ends_with('$') {
                // `$${` is a literal `${` with us; there is no way to say this.
                own.lost.push("`$` directly before a variable".to_owned());
            }
            match piece {
                Piece::Plain(text) => own.text.push_str(&text.replace("${", "$${")),
                Piece::Variable { name, default: None } => own.text.push_str(&format!("${{env:{name}}}")),
                Piece::Variable { name, default: Some(default) } => {
                    if default.contains('}') {
                        own.lost.push(format!("a default of `{name}` with `}}` in it"));
                    }
                    own.text.push_str(&format!("${{env:{name}:-{default}}}"));
                }
                Piece::File(path) => own.text.push_str(&format!("${{file:{path}}}")),
                Piece::Input(id) | Piece::Kept(id) => {
                    let name = variable_name(id);
                    own.text.push_str(&format!("${{env:{name}}}"));
                    own.wanted.push((id.clone(), name));
                }
                Piece::Workspace(word) => {
                    own.text.push_str(&format!("$${{{word}}}"));
                    own.lost.push(format!("`${{{word}}}`"));
                }
            }
        }
        own
    }
}

/// A name for a variable, made of what a host calls something.
pub(super) fn variable_name(text: &str) -> String {
    let name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("V_{name}") }
}

struct Reader {
    variables: Variables,
    plain: String,
    pieces: Vec<Piece>,
}

impl Reader {
    fn end(&mut self) {
        if !self.plain.is_empty() {
            self.pieces.push(Piece::Plain(std::mem::take(&mut self.plain)));
        }
    }

    fn push(&mut self, piece: Piece) {
        match piece {
            Piece::Plain(text) => self.plain.push_str(&text),
            piece @ (Piece::Variable { .. }
            | Piece::File(_)
            | Piece::Input(_)
            | Piece::Kept(_)
            | Piece::Workspace(_)) => {
                self.end();
                self.pieces.push(piece);
            }
        }
    }

    fn read(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let at = rest.find(['$', '{', '%']).unwrap_or(rest.len());
            let (before, from) = rest.split_at(at);
            self.plain.push_str(before);
            match self.one(from) {
                Some((piece, after)) => {
                    self.push(piece);
                    rest = after;
                }
                None => {
                    let length = from.chars().next().map_or(0, char::len_utf8);
                    self.plain.push_str(&from[..length]);
                    rest = &from[length..];
                }
            }
        }
    }

    /// The reference at the beginning of `from`, in this host's form, and what stands after it.
    fn one<'t>(&self, from: &'t str) -> Option<(Piece, &'t str)> {
        match self.variables {
            Variables::None => None,
            Variables::Braces => braces(from),
            Variables::Code => code(from),
            Variables::Dollar => braces(from).or_else(|| dollar(from)).or_else(|| {
                // Elsewhere `%` means nothing to it.
                if Platform::of_process() == Platform::Windows { percent(from) } else { None }
            }),
            Variables::Plain => {
                let (inner, after) = from.strip_prefix('{')?.split_once('}')?;
                if let Some(name) = inner.strip_prefix("env:").filter(|name| is_name(name)) {
                    return Some((variable(name, None), after));
                }
                let path = inner.strip_prefix("file:").filter(|path| !path.is_empty())?;
                Some((Piece::File(path.to_owned()), after))
            }
            Variables::Secrets => secret(from),
            Variables::Ours => match from.strip_prefix("$${") {
                Some(after) => Some((Piece::Plain("${".to_owned()), after)),
                None if from.starts_with("${env:") || from.starts_with("${file:") => code(from),
                None => None,
            },
            Variables::Any => secret(from).or_else(|| code(from)).or_else(|| braces(from)),
        }
    }
}

fn variable(name: &str, default: Option<&str>) -> Piece {
    Piece::Variable { name: name.to_owned(), default: default.map(str::to_owned) }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// `${NAME}`, `${NAME:-default}`.
fn braces(from: &str) -> Option<(Piece, &str)> {
    let (inner, after) = from.strip_prefix("${")?.split_once('}')?;
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    is_name(name).then(|| (variable(name, default), after))
}

/// `$NAME`.
fn dollar(from: &str) -> Option<(Piece, &str)> {
    let rest = from.strip_prefix('$')?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    is_name(name).then(|| (variable(name, None), after))
}

/// `%NAME%`.
fn percent(from: &str) -> Option<(Piece, &str)> {
    let (name, after) = from.strip_prefix('%')?.split_once('%')?;
    is_name(name).then(|| (variable(name, None), after))
}

/// `${{ secrets.NAME }}`.
fn secret(from: &str) -> Option<(Piece, &str)> {
    let (inner, after) = from.strip_prefix("${{")?.split_once("}}")?;
    let inner = inner.trim();
    let name = inner.strip_prefix("secrets.").or_else(|| inner.strip_prefix("inputs."))?;
    (!name.is_empty()).then(|| (Piece::Kept(name.to_owned()), after))
}

/// What VS Code and its kin know.
fn code(from: &str) -> Option<(Piece, &str)> {
    let (inner, after) = from.strip_prefix("${")?.split_once('}')?;
    let piece = match inner.split_once(':') {
        Some(("env", name)) => {
            let (name, default) = match name.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (name, None),
            };
            if name.is_empty() || name.contains('=') {
                return None;
            }
            variable(name, default)
        }
        Some(("file", path)) if !path.is_empty() => Piece::File(path.to_owned()),
        Some(("input", id)) if !id.is_empty() => Piece::Input(id.to_owned()),
        Some(("config" | "command" | "workspaceFolder", _)) => Piece::Workspace(inner.to_owned()),
        Some(_) => return None,
        None => match inner {
            "userHome" => variable("HOME", None),
            "pathSeparator" | "/" => Piece::Plain(MAIN_SEPARATOR.to_string()),
            word if word.starts_with("workspace")
                || word.starts_with("file")
                || word.starts_with("relativeFile")
                || matches!(word, "cwd" | "execPath" | "lineNumber" | "selectedText" | "defaultBuildTask") =>
            {
                Piece::Workspace(word.to_owned())
            }
            _ => return None,
        },
    };
    Some((piece, after))
}

/// The text of our own form with the contents of our own secret files put in, for comparing: `read` gives the content
/// of those that are ours.
pub(super) fn compared(text: &str, read: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${file:") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let known = from["${file:".len()..].split_once('}');
        match known.filter(|_| !before.ends_with('$')).and_then(|(path, after)| Some((read(path)?, after))) {
            Some((content, after)) => {
                out.push_str(&content.replace("${", "$${"));
                rest = after;
            }
            None => {
                out.push_str("${file:");
                rest = &from["${file:".len()..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Where secrets that were taken out of a host's file are kept, beside the configuration.
pub(super) const SECRETS: &str = "secrets";

/// What [`compared`] asks for: the content of a file below our own folder of secrets.
pub(super) fn kept_beside(base: PathBuf) -> impl Fn(&str) -> Option<String> {
    move |path| {
        let name = path.strip_prefix(SECRETS)?.strip_prefix('/').filter(|name| !name.contains('/'))?;
        let content = std::fs::read_to_string(base.join(SECRETS).join(name)).ok()?;
        Some(content.strip_suffix('\n').unwrap_or(&content).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_host_s_form_becomes_ours() {
        use Variables::{Any, Braces, Code, Dollar, None, Plain, Secrets};
        for (form, text, own) in [
            (None, "a ${X} $Y {env:Z}", "a $${X} $Y {env:Z}"),
            (Braces, "a ${X} ${Y:-d} $Z ${env:Q}", "a ${env:X} ${env:Y:-d} $Z $${env:Q}"),
            (Code, "${env:X}/${userHome}/${file:/a/b} ${X}", "${env:X}/${env:HOME}/${file:/a/b} $${X}"),
            (Code, "Bearer ${input:github-token}", "Bearer ${env:GITHUB_TOKEN}"),
            (Code, "a${pathSeparator}b${/}c", "a/b/c"),
            (Dollar, "$X-${Y} %Z% 100% $", "${env:X}-${env:Y} %Z% 100% $"),
            (Plain, "x{env:X}{file:~/k} ${Y} {", "x${env:X}${file:~/k} $${Y} {"),
            (Secrets, "Bearer ${{ secrets.A_KEY }}", "Bearer ${env:A_KEY}"),
            (Any, "${X} ${env:Y} ${{ secrets.Z }} ${nope:1}", "${env:X} ${env:Y} ${env:Z} $${nope:1}"),
            (Code, "ünï ${env:É} ${", "ünï ${env:É} $${"),
        ] {
            let got = Text::read(text, form).own();
            assert_eq!(got.text, own, "{form:?}: {text}");
            assert!(got.lost.is_empty(), "{form:?}: {text}");
        }
    }

    #[test]
    fn what_nothing_stands_for_is_told() {
        let own = Text::read("--root=${workspaceFolder}/x ${input:my key}", Variables::Code).own();
        assert_eq!(own.text, "--root=$${workspaceFolder}/x ${env:MY_KEY}");
        assert_eq!(own.lost, ["`${workspaceFolder}`"]);
        assert_eq!(own.wanted, [("my key".to_owned(), "MY_KEY".to_owned())]);
        assert_eq!(Text::read("$${env:X}", Variables::Code).own().lost.len(), 1);
        assert_eq!(variable_name("1x"), "V_1X");
    }

    #[test]
    fn our_own_secret_files_are_compared_by_content() {
        let read = |path: &str| (path == "secrets/a").then(|| "s${3".to_owned());
        assert_eq!(
            compared("Bearer ${file:secrets/a} ${file:/b} $${file:secrets/a}", &read),
            "Bearer s$${3 ${file:/b} $${file:secrets/a}"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics_and_plain_texts_stay(text in "[${}%:a-zé /.-]{0,30}") {
            for form in [Variables::None, Variables::Braces, Variables::Code, Variables::Dollar, Variables::Plain, Variables::Secrets, Variables::Any] {
                let _ = Text::read(&text, form).own();
            }
            let read = Text::read(&text, Variables::None);
            prop_assert_eq!(read.as_plain(), Some(text.as_str()));
        }
    }
}
