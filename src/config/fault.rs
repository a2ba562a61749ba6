//! What is wrong with a configuration, said so that a person can put it right.
//!
//! Deliberately knows no file format. No message ever holds an expanded value (I-34): the makers put in
//! what is written in the file, or only the name of it.

use crate::shown::shown_str as shown;
use std::fmt;
use std::path::Path;

use serde::Serialize;

/// Where something was said: a line of a file, a variable of the environment, or a flag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file, as people know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The variable of the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The flag of the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
    /// The line, from 1; unknown in YAML past its syntax.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column in characters, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

impl Place {
    pub(super) fn file(path: &Path) -> Self {
        Self { file: Some(shown(&path.to_string_lossy())), ..Self::default() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(variable) = &self.variable {
            return write!(f, "${variable}");
        }
        if let Some(flag) = &self.flag {
            return f.write_str(flag);
        }
        f.write_str(self.file.as_deref().unwrap_or("configuration"))?;
        match self.line {
            Some(line) => write!(f, ":{line}"),
            None => Ok(()),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Where it is.
    #[serde(flatten)]
    pub place: Place,
    /// The key that it is about, for example `servers.files.command`; empty when it is the whole file.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// The known word that is nearest to an unknown one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

/// All that is wrong, in the order of the files and their lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Something that people should know, though it stops nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Where it is.
    #[serde(flatten)]
    pub place: Place,
    /// What it is.
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// The one of `known` that was probably meant by `word`, if any is near enough.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: String = word.to_ascii_lowercase().replace('-', "_");
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= allowed && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_reads_as_file_line_key_reason() {
        let fault = Fault {
            place: Place { line: Some(12), column: Some(1), ..Place::file(Path::new("onegate.toml")) },
            key: "servers.files.comand".into(),
            message: "unknown key".into(),
            nearest: Some("command".into()),
        };
        assert_eq!(fault.to_string(), "onegate.toml:12: servers.files.comand: unknown key; did you mean `command`?");
        let json = serde_json::to_value(Faults(vec![fault])).unwrap();
        assert_eq!(json[0]["line"], 12);
        assert_eq!(json[0]["file"], "onegate.toml");
        assert_eq!(json[0]["nearest"], "command");
        assert!(json[0].get("variable").is_none());
    }

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["command", "args", "env", "era"];
        assert_eq!(nearest("comand", known), Some("command"));
        assert_eq!(nearest("Command", known), Some("command"));
        assert_eq!(nearest("arg", known), Some("args"));
        assert_eq!(nearest("xyzzy", known), None);
        assert_eq!(nearest("a", known), None);
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown("a\u{1b}[31mb"), "a\\u{1b}[31mb");
    }
}
