//! What a query speaks of by how it is written: an address, a file, a commit, keys.
//!
//! Part of reading a query, for `index`; knows no tool.

/// Endings of files that people name.
const ENDINGS: &[&str] = &[
    "bash", "bat", "c", "cfg", "conf", "cpp", "cs", "css", "csv", "doc", "docx", "env", "epub", "gif", "go", "gz", "h",
    "html", "ini", "ipynb", "java", "jpeg", "jpg", "js", "json", "jsx", "kt", "lock", "log", "lua", "md", "mdx", "mov",
    "mp3", "mp4", "odt", "parquet", "pdf", "php", "png", "ppt", "pptx", "py", "rb", "rs", "rst", "scss", "sh", "sql",
    "svg", "swift", "tar", "tex", "toml", "ts", "tsx", "txt", "vue", "wav", "webp", "xls", "xlsx", "xml", "yaml",
    "yml", "zip",
];

/// Words of tools that such a query may mean, by what was seen in it.
pub(super) fn hints(query: &str) -> Vec<&'static [&'static str]> {
    let mut found: Vec<&'static [&'static str]> = Vec::new();
    let mut add = |hint: &'static [&'static str]| {
        if !found.contains(&hint) {
            found.push(hint);
        }
    };
    if is_sum(query) {
        add(&["calculate", "expression"]);
    }
    for word in query.split_whitespace() {
        let word = word.trim_matches(|c: char| !(c.is_alphanumeric() || c == '/' || c == '~'));
        let lower = word.to_ascii_lowercase();
        if lower.contains("://") || lower.starts_with("www.") || has_domain(&lower) {
            add(&["url", "page", "link"]);
        } else if is_file(&lower) || lower.starts_with(['/', '~']) && lower.len() > 2 {
            add(&["file", "path"]);
        } else if is_commit(&lower) {
            add(&["commit", "revision"]);
        } else if is_keys(&lower) {
            add(&["key", "keyboard", "press"]);
        } else if is_time(&lower) {
            add(&["time"]);
        } else if is_size(&lower) {
            add(&["size", "bytes"]);
        }
    }
    found
}

/// Two numbers with a sign between.
fn is_sum(query: &str) -> bool {
    let dense: String = query.chars().filter(|c| !c.is_whitespace()).collect();
    let mut signs = dense.match_indices(['*', '+', '^', '÷', '×', '/']);
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    signs.any(|(at, sign)| digit(dense[..at].chars().next_back()) && digit(dense[at + sign.len()..].chars().next()))
}

fn has_domain(word: &str) -> bool {
    let host = word.split('/').next().unwrap_or_default();
    let end = host.rsplit_once('.').map(|(_, end)| end);
    end.is_some_and(|end| ["com", "org", "net", "io", "dev", "edu", "gov", "de", "uk", "app"].contains(&end))
}

fn is_file(word: &str) -> bool {
    let Some((name, end)) = word.rsplit_once('.') else { return false };
    // `.env` is one; `e.g.` is none.
    (name.is_empty() || name.chars().any(char::is_alphanumeric)) && ENDINGS.binary_search(&end).is_ok()
}

fn is_commit(word: &str) -> bool {
    (6..=40).contains(&word.len())
        && word.bytes().all(|b| b.is_ascii_hexdigit())
        && word.bytes().any(|b| b.is_ascii_digit())
        && word.bytes().any(|b| b.is_ascii_alphabetic())
}

fn is_keys(word: &str) -> bool {
    let mut keys = word.split(['+', '-']);
    let first = keys.next().unwrap_or_default();
    ["ctrl", "control", "cmd", "command", "alt", "shift", "meta"].contains(&first) && keys.next().is_some()
}

fn is_time(word: &str) -> bool {
    let parts: Vec<&str> = word.split(':').collect();
    parts.len() >= 2
        && parts.iter().all(|part| (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()))
}

fn is_size(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    unit.len() < word.len() && ["b", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "bytes"].contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_tell_what_is_spoken_of() {
        assert!(ENDINGS.is_sorted());
        for (query, first) in [
            ("read https://example.org/a", "url"),
            ("what is on example.com/x?", "url"),
            ("open \"Cargo.toml\".", "file"),
            ("what is in /etc/hosts", "file"),
            ("show 3fa9c1", "commit"),
            ("press Ctrl+A", "key"),
            ("is 9:30 fine", "time"),
            ("over 50MB", "size"),
            ("how much is 17 * 23", "calculate"),
        ] {
            assert_eq!(hints(query).first().map(|hint| hint[0]), Some(first), "{query}");
        }
        for plain in ["e.g. this", "decade of facades", "1:1:1:a", "end.", "a / b"] {
            assert!(hints(plain).is_empty(), "{plain}: {:?}", hints(plain));
        }
    }
}
