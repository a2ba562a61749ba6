//! `${env:NAME}`, `${env:NAME:-default}`, `${file:/path}`, `$${`: found, and put in once (D023).
//!
//! What is put in is never looked at again. In imported files of hosts `${NAME}` and `${NAME:-default}` mean
//! the environment too; in our own shape they stay as they are, and are pointed out. Deliberately knows no
//! server and no key. Called by `launch`.

use std::io::Read as _;
use std::path::Path;

use super::environment::Environment;
use crate::shown::shown_str as shown;

/// Largest file that `${file:…}` puts in.
const LARGEST: u64 = 64 * 1024;

/// Whose rules a text follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Our own shape.
    Own,
    /// A host's file.
    Host,
}

/// Why a text cannot be expanded. Holds names, never values (I-34).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The text is wrong in itself: a fault of the file.
    Syntax { message: String, nearest: Option<&'static str> },
    /// What it asks for is not there: the server cannot be started.
    Missing(String),
}

/// An expanded text. Without `Debug`: it may be a secret.
pub(super) struct Expanded {
    pub text: String,
    /// Names in `${NAME}` that our own shape leaves as they are.
    pub bare: Vec<String>,
    /// What was put in: from the environment or a file, so perhaps in confidence.
    pub put_in: Vec<String>,
}

impl Expanded {
    fn put(&mut self, value: String) {
        self.text.push_str(&value);
        self.put_in.push(value);
    }
}

/// Puts in what `text` refers to; relative files are relative to `base`.
pub(super) fn expand(text: &str, style: Style, environment: &Environment, base: &Path) -> Result<Expanded, Trouble> {
    let mut out = Expanded { text: String::with_capacity(text.len()), bare: Vec::new(), put_in: Vec::new() };
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        out.text.push_str(before);
        if let Some(after) = from.strip_prefix("$${") {
            out.text.push_str("${");
            rest = after;
        } else if let Some(inner) = from.strip_prefix("${") {
            rest = one(inner, style, environment, base, &mut out)?;
        } else {
            out.text.push('$');
            rest = from.get(1..).unwrap_or_default();
        }
    }
    out.text.push_str(rest);
    if out.text.contains('\0') {
        return Err(Trouble::Missing("holds a NUL character, which no program can be given".to_owned()));
    }
    Ok(out)
}

/// Puts in one reference, whose text begins after `${`; gives what stands after it.
fn one<'t>(
    from: &'t str,
    style: Style,
    environment: &Environment,
    base: &Path,
    out: &mut Expanded,
) -> Result<&'t str, Trouble> {
    let Some((inner, rest)) = from.split_once('}') else {
        if from.starts_with("env:") || from.starts_with("file:") {
            return Err(syntax("a reference `${…` has no closing `}`"));
        }
        out.text.push_str("${");
        return Ok(from);
    };
    if let Some(variable) = inner.strip_prefix("env:") {
        let (name, default) = split_default(variable);
        if name.is_empty() || name.contains('=') {
            return Err(syntax("`${env:…}` needs the name of a variable"));
        }
        out.put(variable_text(name, default, environment)?);
    } else if let Some(path) = inner.strip_prefix("file:") {
        if path.is_empty() {
            return Err(syntax("`${file:…}` needs the path of a file"));
        }
        out.put(file_text(path, environment, base)?);
    } else if is_name(split_default(inner).0) {
        let (name, default) = split_default(inner);
        match style {
            Style::Host if name == "userHome" => {
                out.text.push_str(&variable_text("HOME", default, environment)?);
            }
            Style::Host => {
                out.put(variable_text(name, default, environment)?);
            }
            Style::Own => {
                out.bare.push(name.to_owned());
                literal(inner, &mut out.text);
            }
        }
    } else if let Some(word) = unknown_kind(inner) {
        let message = format!("`${{{word}:…}}` is not a reference that is known here");
        match style {
            Style::Own => {
                return Err(Trouble::Syntax {
                    message,
                    nearest: super::fault::nearest(word, ["env", "file"]).map(|near| match near {
                        "env" => "${env:…}",
                        _ => "${file:…}",
                    }),
                });
            }
            Style::Host => return Err(Trouble::Missing(message)),
        }
    } else {
        literal(inner, &mut out.text);
    }
    Ok(rest)
}

fn literal(inner: &str, out: &mut String) {
    out.push_str("${");
    out.push_str(inner);
    out.push('}');
}

fn syntax(message: &str) -> Trouble {
    Trouble::Syntax { message: message.to_owned(), nearest: None }
}

fn split_default(text: &str) -> (&str, Option<&str>) {
    match text.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (text, None),
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The word of `${word:…}`, unless this looks like a shell's own expansion (`${a:?b}`, `${a:1:2}`).
fn unknown_kind(inner: &str) -> Option<&str> {
    let (word, argument) = inner.split_once(':')?;
    let plain = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic());
    let argued = argument.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '/'));
    (plain && argued).then_some(word)
}

/// A variable; the default also stands for an empty one, as in a shell.
fn variable_text(name: &str, default: Option<&str>, environment: &Environment) -> Result<String, Trouble> {
    match (environment.get(name), default) {
        (None, None) => Err(Trouble::Missing(format!("the variable `{}` is not set", shown(name)))),
        (None, Some(default)) => Ok(default.to_owned()),
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => value
            .to_str()
            .map(str::to_owned)
            .ok_or_else(|| Trouble::Missing(format!("the variable `{}` is not UTF-8", shown(name)))),
    }
}

/// The content of a file without its last line end.
fn file_text(path: &str, environment: &Environment, base: &Path) -> Result<String, Trouble> {
    let trouble = |why: String| Trouble::Missing(format!("the file `{}` {why}", shown(path)));
    let full = environment.path(path, base);
    // Looked at before it is opened: opening a pipe would wait for its writer.
    let kind = std::fs::metadata(&full).map_err(|error| trouble(format!("cannot be read: {error}")))?;
    if !kind.is_file() {
        return Err(trouble("is not a regular file".to_owned()));
    }
    let mut text = String::new();
    std::fs::File::open(&full)
        .and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text))
        .map_err(|error| trouble(format!("cannot be read: {error}")))?;
    if text.len() as u64 > LARGEST {
        return Err(trouble(format!("is larger than {} KiB", LARGEST / 1024)));
    }
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn environment() -> Environment {
        Environment::from_iter([("A", "one"), ("EMPTY", ""), ("NESTED", "${env:A}$${x}${A}"), ("HOME", "/home/me")])
    }

    fn check(style: Style, text: &str, expected: Result<&str, &str>) {
        let got = expand(text, style, &environment(), Path::new("/base"));
        match (got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got.text, expected, "{text}"),
            (Err(Trouble::Syntax { message, .. } | Trouble::Missing(message)), Err(part)) => {
                assert!(message.contains(part), "{text}: {message}");
            }
            (Ok(got), Err(part)) => panic!("{text}: {} instead of {part}", got.text),
            (Err(got), Ok(_)) => panic!("{text}: {got:?}"),
        }
    }

    #[test]
    fn references_are_put_in_once_d023() {
        for style in [Style::Own, Style::Host] {
            check(style, "x${env:A}y${env:A}", Ok("xoneyone"));
            check(style, "${env:NESTED}", Ok("${env:A}$${x}${A}"));
            check(style, "${env:NONE:-d:-e}", Ok("d:-e"));
            check(style, "${env:NONE:-}", Ok(""));
            check(style, "${env:EMPTY:-d}", Ok("d"));
            check(style, "${env:EMPTY}", Ok(""));
            check(style, "$${env:A} $${A}", Ok("${env:A} ${A}"));
            check(style, "$A $$ $ 100% $(x) é", Ok("$A $$ $ 100% $(x) é"));
            check(style, "a$", Ok("a$"));
            check(style, "${ a } ${1} ${", Ok("${ a } ${1} ${"));
            check(style, "${env:NONE}", Err("variable `NONE` is not set"));
            check(style, "${env:A", Err("no closing"));
            check(style, "${env:}", Err("needs the name"));
            check(style, "${file:}", Err("needs the path"));
            check(style, "${file:none.txt}", Err("file `none.txt` cannot be read"));
            check(style, "${file:/dev/zero}", Err("not a regular file"));
            check(style, "${input:token}", Err("`${input:…}` is not a reference"));
            check(style, "a\0b", Err("NUL"));
        }
    }

    #[test]
    fn bare_names_are_the_hosts_way_only_d023() {
        check(Style::Host, "${A} ${NONE:-d}", Ok("one d"));
        check(Style::Host, "${NONE}", Err("variable `NONE`"));
        check(Style::Host, "${userHome}/x", Ok("/home/me/x"));
        check(Style::Own, "${A} ${NONE:-d}", Ok("${A} ${NONE:-d}"));
        let got = expand("${A}", Style::Own, &environment(), Path::new("/")).ok();
        assert_eq!(got.map(|got| got.bare), Some(vec!["A".to_owned()]));
    }

    #[test]
    fn files_lose_their_last_line_end() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t"), "se cret\n\n").unwrap();
        let got = expand("<${file:t}>", Style::Own, &environment(), folder.path());
        assert_eq!(got.ok().map(|got| got.text), Some("<se cret\n>".into()));
        std::fs::write(folder.path().join("big"), vec![b'x'; 70_000]).unwrap();
        let got = expand("${file:big}", Style::Own, &environment(), folder.path());
        assert!(matches!(got, Err(Trouble::Missing(m)) if m.contains("larger")));
    }

    #[test]
    fn a_mistyped_kind_is_named() {
        let got = expand("${evn:A}", Style::Own, &environment(), Path::new("/"));
        assert!(matches!(got, Err(Trouble::Syntax { nearest: Some("${env:…}"), .. })));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[${}:envfile/ABé -]{0,30}") {
            let _ = expand(&text, Style::Host, &environment(), Path::new("/nowhere"));
        }

        #[test]
        fn a_text_without_dollar_is_unchanged(text in "[^$\\x00]{0,30}") {
            let got = expand(&text, Style::Own, &environment(), Path::new("/"));
            prop_assert_eq!(got.ok().map(|got| got.text), Some(text));
        }
    }
}
