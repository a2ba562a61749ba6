//! What of arguments is written down: their shape, and the values that the operator named.
//!
//! A shape says which members there are and of which types, and no value; it is a fingerprint to find calls that look alike
//! by, not a proof. Pure. Bounded: arguments come from hosts.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::protocol::json;

/// Values that are looked at, at most; the rest is the mark of a cut.
const MAX_NODES: usize = 512;
/// Levels that are looked at: of arguments of a usual size, and of large ones.
const DEPTHS: (usize, usize) = (16, 2);
/// What is large: each level is walked anew.
const LARGE: usize = 256 << 10;
/// Members that are sorted without asking for memory.
const INLINE: usize = 16;

type Print = [u8; 16];

/// The shape of raw arguments, 32 hexadecimal digits.
pub fn shape(arguments: &[u8]) -> String {
    let most = if arguments.len() > LARGE { DEPTHS.1 } else { DEPTHS.0 };
    HEXLOWER.encode(&Walk { left: MAX_NODES }.print(arguments, most))
}

struct Walk {
    left: usize,
}

/// What stands for a value without members.
const fn mark(kind: u8) -> Print {
    let mut print = [0; 16];
    print[0] = kind;
    print
}

fn cut(hash: Sha256) -> Print {
    let mut print = [0; 16];
    print.copy_from_slice(&hash.finalize()[..16]);
    print
}

impl Walk {
    fn print(&mut self, value: &[u8], depth: usize) -> Print {
        if self.left == 0 || depth == 0 {
            return mark(b'.');
        }
        self.left -= 1;
        match value.first() {
            Some(b'{') => self.object(value, depth - 1),
            Some(b'[') => self.array(value, depth - 1),
            Some(b'"') => mark(b's'),
            Some(b't' | b'f') => mark(b'b'),
            Some(b'n') => mark(b'z'),
            _ => mark(b'n'),
        }
    }

    /// The order of members means nothing.
    fn object(&mut self, value: &[u8], depth: usize) -> Print {
        let mut few = [(&b""[..], mark(0)); INLINE];
        let mut many = Vec::new();
        let mut count = 0;
        for entry in json::members(value) {
            let member = (entry.key, self.print(entry.value, depth));
            match few.get_mut(count) {
                Some(place) => *place = member,
                None => many.push(member),
            }
            count += 1;
            if self.left == 0 {
                break;
            }
        }
        let all = if many.is_empty() {
            &mut few[..count]
        } else {
            many.extend_from_slice(&few);
            &mut many[..]
        };
        all.sort_unstable();
        let mut hash = Sha256::new_with_prefix(b"{");
        for (name, print) in all {
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
            hash.update(print);
        }
        cut(hash)
    }

    /// How many there are of a kind one after the other means nothing.
    fn array(&mut self, value: &[u8], depth: usize) -> Print {
        let mut hash = Sha256::new_with_prefix(b"[");
        let mut before = None;
        for element in json::elements(value) {
            let print = self.print(element, depth);
            if before != Some(print) {
                hash.update(print);
                before = Some(print);
            }
            if self.left == 0 {
                break;
            }
        }
        cut(hash)
    }
}

/// A place in arguments whose value is written down.
pub struct Named {
    pointer: Box<str>,
    /// The names on the way, escapes resolved.
    steps: Box<[Box<str>]>,
}

/// What stands at such a place.
pub(super) enum Found<'a> {
    Nothing,
    /// Two members of one name: which of them a server takes is not known.
    Twice,
    Value(&'a [u8]),
}

impl Named {
    /// The place of a JSON pointer (RFC 6901).
    pub fn new(pointer: &str) -> Self {
        let step = |step: &str| step.replace("~1", "/").replace("~0", "~").into();
        Self { pointer: pointer.into(), steps: pointer.split('/').skip(1).map(step).collect() }
    }

    pub(super) fn pointer(&self) -> &str {
        &self.pointer
    }

    pub(super) fn find<'a>(&self, arguments: &'a [u8]) -> Found<'a> {
        let mut value = arguments;
        for step in &self.steps {
            let next = if value.starts_with(b"[") {
                let plain = step.bytes().all(|b| b.is_ascii_digit()) && (step.len() == 1 || !step.starts_with('0'));
                step.parse().ok().filter(|_| plain).and_then(|at| json::elements(value).nth(at))
            } else {
                let mut found = json::members(value).filter(|entry| entry.is(step)).map(|entry| entry.value);
                let first = found.next();
                if found.next().is_some() {
                    return Found::Twice;
                }
                first
            };
            match next {
                Some(next) => value = next,
                None => return Found::Nothing,
            }
        }
        Found::Value(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r36_a_shape_tells_names_and_types_and_no_value() {
        let same = |texts: &[&str]| {
            let shapes: Vec<_> = texts.iter().map(|text| shape(text.as_bytes())).collect();
            assert!(shapes.windows(2).all(|two| two[0] == two[1]), "{texts:?} {shapes:?}");
            shapes[0].clone()
        };
        let kinds = [
            same(&["{}", "{ }"]),
            same(&[r#"{"a":1}"#, r#"{ "a" : -2.5e3 }"#]),
            same(&[r#"{"a":"x"}"#, r#"{"a":"a very secret text"}"#]),
            same(&[r#"{"a":true}"#, r#"{"a":false}"#]),
            same(&[r#"{"a":null}"#]),
            same(&[r#"{"b":"x"}"#]),
            same(&[r#"{"a":"x","b":1}"#, r#"{"b":2,"a":"y"}"#]),
            same(&[r#"{"a":[1,2,3]}"#, r#"{"a":[4]}"#]),
            same(&[r#"{"a":[]}"#]),
            same(&[r#"{"a":[1,"x"]}"#]),
            same(&[r#"{"a":{"b":1}}"#]),
            same(&[r#"{"a":[{"b":1}]}"#]),
        ];
        for (n, one) in kinds.iter().enumerate() {
            assert_eq!(one.len(), 32);
            assert!(!kinds[n + 1..].contains(one), "{n}");
        }
        let many = |count: usize| {
            let members: Vec<_> = (0..count).map(|n| format!("\"m{n}\":{n}")).collect();
            shape(format!("{{{}}}", members.join(",")).as_bytes())
        };
        assert_ne!(many(16), many(17));
        assert_eq!(many(1000), many(2000), "bounded");
        shape(format!("{}1{}", "[".repeat(120), "]".repeat(120)).as_bytes());
    }

    #[test]
    fn values_are_found_where_pointers_lead() {
        let value = |pointer: &str, text: &'static str| match Named::new(pointer).find(text.as_bytes()) {
            Found::Value(value) => std::str::from_utf8(value).unwrap().to_owned(),
            Found::Nothing => "nothing".to_owned(),
            Found::Twice => "twice".to_owned(),
        };
        let text = r#"{"a":{"b/c":[1,"x"]},"d":1,"d":2}"#;
        for (pointer, found) in [
            ("", text),
            ("/a/b~1c/1", "\"x\""),
            ("/a/b~1c/01", "nothing"),
            ("/a/b~1c/2", "nothing"),
            ("/d", "twice"),
            ("/e", "nothing"),
            ("/a/b~1c/0/x", "nothing"),
        ] {
            assert_eq!(value(pointer, text), found, "{pointer}");
        }
    }
}
