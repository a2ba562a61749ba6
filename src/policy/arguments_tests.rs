//! What fits and what does not, shape by shape.

use super::*;
use crate::config::settings::Check as Wanted;
use proptest::prelude::*;

fn condition(pointer: &str, optional: bool, checks: Vec<Wanted>) -> Condition {
    Condition::compile(&settings::Condition { pointer: pointer.into(), optional, checks }).unwrap()
}

#[track_caller]
fn check(pointer: &str, wanted: Wanted, good: &[&str], bad: &[&str]) {
    let condition = condition(pointer, false, vec![wanted]);
    for (texts, expected) in [(good, true), (bad, false)] {
        for text in texts {
            let mut index = json::Index::new();
            index.read(text.as_bytes()).unwrap();
            assert_eq!(condition.fits(text.as_bytes(), Extent::Whole), expected, "{pointer} {text}");
        }
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn e23_values_are_compared_by_type_and_value() {
    let text = |text: &str| Scalar::Text(text.into());
    check(
        "/a",
        Wanted::Equals(text("x")),
        &[r#"{"a":"x"}"#, r#"{ "\u0061" : "\u0078" }"#],
        &[
            r#"{"a":"X"}"#,
            r#"{"a":["x"]}"#,
            "{}",
            r#"{"a":null}"#,
            r#"{"a":"x","a":"y"}"#,
            r#"{"a":"y","a":"x"}"#,
            r#"{"a":"x","\u0061":"x"}"#,
            r#"{"A":"x"}"#,
        ],
    );
    check(
        "/a",
        Wanted::Equals(Scalar::Integer(5)),
        &[r#"{"a":5}"#, r#"{"a":5.0}"#, r#"{"a":50e-1}"#],
        &[r#"{"a":"5"}"#, r#"{"a":6}"#, r#"{"a":true}"#],
    );
    check(
        "/a",
        Wanted::Equals(Scalar::Integer(9_007_199_254_740_992)),
        &[r#"{"a":9007199254740992}"#],
        &[r#"{"a":9007199254740993}"#],
    );
    check("/a", Wanted::Equals(Scalar::Bool(false)), &[r#"{"a":false}"#], &[r#"{"a":true}"#, r#"{"a":0}"#, "{}"]);
    check(
        "/a",
        Wanted::OneOf(vec![text("x"), Scalar::Integer(1)]),
        &[r#"{"a":"x"}"#, r#"{"a":1}"#],
        &[r#"{"a":"1"}"#, r#"{"a":2}"#],
    );
    check("/a", Wanted::Absent, &["{}", r#"{"b":1}"#], &[r#"{"a":null}"#, r#"{"\u0061":1}"#]);
    check(
        "/a/b",
        Wanted::Absent,
        &["{}", r#"{"a":{}}"#, r#"{"a":1}"#, r#"{"a":null}"#],
        &[r#"{"a":{"b":1}}"#, r#"{"a":[{"b":1}]}"#, r#"{"a":"{\"b\":1}"}"#, r#"{"a":{"B":1}}"#],
    );
}

/// E-23: decoders that do not look at case take the last of several, and one alone.
#[test]
fn e23_a_name_in_other_letters_is_no_way_round() {
    let under = || Wanted::PathUnder(vec!["/srv".into()]);
    check(
        "/path",
        under(),
        &[r#"{"path":"/srv/a"}"#, r#"{"path":"/srv/a","paths":"/etc"}"#],
        &[r#"{"path":"/srv/a","Path":"/etc"}"#, r#"{"PATH":"/etc","path":"/srv/a"}"#, r#"{"Path":"/srv/a"}"#],
    );
    let optional = condition("/task", true, vec![Wanted::Equals(Scalar::Text("x".into()))]);
    for (text, fits) in [
        ("{}", true),
        (r#"{"task":"x"}"#, true),
        (r#"{"tas\u212a":"y"}"#, false),
        (r#"{"ta\u017fk":"y"}"#, false),
        (r#"{"TASK":"x"}"#, false),
    ] {
        assert_eq!(optional.fits(text.as_bytes(), Extent::Whole), fits, "{text}");
    }
    let nested = condition("/opts/path", true, vec![under()]);
    for (text, fits) in [
        ("{}", true),
        (r#"{"opts":{}}"#, true),
        (r#"{"opts":[{"path":"/etc"}]}"#, false),
        (r#"{"opts":"{\"path\":\"/etc\"}"}"#, false),
        (r#"{"opts":null}"#, false),
    ] {
        assert_eq!(nested.fits(text.as_bytes(), Extent::Whole), fits, "{text}");
    }
}

#[test]
fn types_lengths_and_ranges() {
    use JsonType as T;
    for (wanted, good, bad) in [
        (T::String, r#""x""#, "1"),
        (T::Number, "1.5", r#""1""#),
        (T::Integer, "10", "1.5"),
        (T::Boolean, "true", r#""true""#),
        (T::Null, "null", "false"),
        (T::Object, "{}", "[]"),
        (T::Array, "[]", "{}"),
    ] {
        check("/a", Wanted::Type(wanted), &[&format!(r#"{{"a":{good}}}"#)], &[&format!(r#"{{"a":{bad}}}"#), "{}"]);
    }
    check(
        "/a",
        Wanted::MaxLen(2),
        &[r#"{"a":"öü"}"#, r#"{"a":[1,2]}"#, r#"{"a":"\u0061b"}"#],
        &[r#"{"a":"abc"}"#, r#"{"a":[1,2,3]}"#, r#"{"a":1}"#],
    );
    check(
        "/a",
        Wanted::Range(0.0, 10.0),
        &[r#"{"a":0}"#, r#"{"a":10}"#, r#"{"a":1e1}"#],
        &[r#"{"a":10.5}"#, r#"{"a":-1}"#, r#"{"a":"5"}"#, r#"{"a":1e400}"#],
    );
    check("/a", Wanted::Glob("rel-*".into()), &[r#"{"a":"rel-1"}"#], &[r#"{"a":"xrel-1"}"#, r#"{"a":1}"#]);
    check("", Wanted::NoExtra(texts(&["a", "b"])), &["{}", r#"{"a":1,"b":2}"#], &[r#"{"a":1,"c":2}"#]);
}

#[test]
fn pointers_go_through_arrays_and_escapes() {
    let one = || Wanted::Equals(Scalar::Integer(1));
    check(
        "/a/*/b",
        one(),
        &[r#"{"a":[{"b":1},{"b":1}]}"#, r#"{"a":[]}"#],
        &[r#"{"a":[{"b":1},{"b":2}]}"#, r#"{"a":[{"b":1},{}]}"#, r#"{"a":{"*":{"b":1}}}"#, r#"{"a":1}"#],
    );
    check("/a~1b/~0", one(), &[r#"{"a/b":{"~":1}}"#], &[r#"{"a":{"b":1}}"#]);
    check("/a/1", one(), &[r#"{"a":[0,1]}"#, r#"{"a":{"1":1}}"#], &[r#"{"a":[1]}"#]);
    check("/a/01", one(), &[], &[r#"{"a":[0,1]}"#]);
    let optional = condition("/a", true, vec![one()]);
    assert!(optional.fits(b"{}", Extent::Whole) && !optional.fits(br#"{"a":2}"#, Extent::Whole));
    let whole = condition("/a", false, vec![one()]);
    assert!(whole.fits(b"{}", Extent::Partial) && !whole.fits(br#"{"a":2}"#, Extent::Partial));
}

#[test]
fn e23_paths_are_below_their_folder_whatever_way_they_go() {
    let as_json = |path: &str| format!(r#"{{"path":{}}}"#, serde_json::to_string(path).unwrap());
    let under = condition("/path", false, vec![Wanted::PathUnder(texts(&["/srv/docs", "/tmp/"]))]);
    for good in
        ["/srv/docs", "/srv/docs/", "/srv/docs/a/../b", "/srv//docs/./x", "/x/../srv/docs/y", "/tmp/a", "/../tmp/a"]
    {
        assert!(under.fits(as_json(good).as_bytes(), Extent::Whole), "{good}");
    }
    for bad in [
        "/srv/docs/../secret",
        "/srv/docsX",
        "/srv",
        "/",
        "",
        "srv/docs/x",
        "./srv/docs",
        "~/srv/docs",
        "/srv/docs/../../etc",
        "/srv/docs\\..\\..\\etc",
        "/srv/docs/\0",
        "C:/srv/docs",
        "C:\\srv\\docs",
        "//host/share",
        "file:///srv/docs/x",
        "/SRV/docs",
        "/srv/docs/a/../../x",
        " /srv/docs/x",
        "\u{ff0f}srv/docs",
        "/srv/d\u{043e}cs/x",
    ] {
        assert!(!under.fits(as_json(bad).as_bytes(), Extent::Whole), "{bad}");
    }
    assert!(!under.fits(br#"{"path":["/srv/docs/x"]}"#, Extent::Whole));
    assert!(!under.fits(br#"{"path":"/srv/docs/\ud800"}"#, Extent::Whole), "no Unicode text");
    let root = condition("/path", false, vec![Wanted::PathUnder(texts(&["/"]))]);
    assert!(root.fits(as_json("/etc").as_bytes(), Extent::Whole));
}

#[test]
fn e23_hosts_are_those_that_are_reached() {
    let as_json = |url: &str| format!(r#"{{"u":{}}}"#, serde_json::to_string(url).unwrap());
    let hosts = texts(&["docs.example", "*.cdn.example", "api.example:8443", "10.0.0.1"]);
    let at = condition("/u", false, vec![Wanted::UrlHost(hosts)]);
    for good in [
        "https://docs.example",
        "https://docs.example/x?y#z",
        "HTTPS://DOCS.example:443/",
        "https://a.cdn.example/",
        "https://a.b.cdn.example",
        "https://api.example:8443/",
        "https://10.0.0.1/",
        "https://docs.example/@x",
    ] {
        assert!(at.fits(as_json(good).as_bytes(), Extent::Whole), "{good}");
    }
    for bad in [
        "http://docs.example",
        "https://docs.example.evil.example",
        "https://evil.example/docs.example",
        "docs.example",
        "https://user@docs.example",
        "https://docs.example@evil.example",
        "https://docs.example:444",
        "https://cdn.example",
        "https://xcdn.example",
        "https://.cdn.example",
        "https://docs.example.",
        "https:\\\\docs.example",
        "https:docs.example",
        "https://evil.example\\@docs.example",
        "https://docs.example\t",
        " https://docs.example",
        "https://api.example",
        "javascript:alert(1)",
        "https://@docs.example",
        "https://docs\u{3002}evil.example",
        "https://10.0.0.1.cdn.example:80",
    ] {
        assert!(!at.fits(as_json(bad).as_bytes(), Extent::Whole), "{bad}");
    }
}

proptest! {
    /// E-23: whatever a path looks like, one that fits lies below the folder for a system that walks it, too.
    #[test]
    fn e23_what_fits_lies_below(parts in prop::collection::vec("(\\.\\.|\\.|srv|docs|x|)", 0..8)) {
        let path = format!("/{}", parts.join("/"));
        let mut walked: Vec<&str> = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(walked.pop()),
                name => walked.push(name),
            }
        }
        let under = condition("/p", false, vec![Wanted::PathUnder(texts(&["/srv/docs"]))]);
        let fits = under.fits(format!(r#"{{"p":"{path}"}}"#).as_bytes(), Extent::Whole);
        prop_assert_eq!(fits, walked.starts_with(&["srv", "docs"]));
    }
}
