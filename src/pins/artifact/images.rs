//! Images of containers, as `docker run` and its like are told of them.
//!
//! Knows words only: neither what is pulled nor what a registry has. Called by [`super::programs`].

use super::{ArtifactKind, Floating, Reference};
use crate::shown::shown_str;

/// Options of `run` that take no value.
const SWITCHES: [&str; 20] = [
    "--detach",
    "--disable-content-trust",
    "--env-host",
    "--no-hostname",
    "--unsetenv-all",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--rm",
    "--sig-proxy",
    "--tty",
    "--replace",
    "--rmi",
    "--no-hosts",
    "--tls-verify",
];
/// The same of one letter.
const LETTERS: &str = "itdPq";

/// Options before `run` that take a value.
pub(super) const VALUES: [&str; 14] = [
    "-H",
    "--host",
    "-c",
    "--context",
    "--config",
    "-l",
    "--log-level",
    "--root",
    "--runroot",
    "--connection",
    "--url",
    "-n",
    "--namespace",
    "--storage-driver",
];

/// The image of a run, from the arguments without `run`; nothing where none is named.
pub(super) fn container(args: &[&str]) -> Option<Reference> {
    let mut args = args.iter();
    let image = loop {
        let arg = *args.next()?;
        if arg == "--" {
            break *args.next()?;
        }
        if let Some(long) = arg.strip_prefix("--") {
            if !SWITCHES.contains(&arg) && !long.contains('=') && long != "debug" && long != "tls" {
                args.next();
            }
        } else if let Some(letters) = arg.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            // Of letters together the first that takes a value takes what is left, or the next argument.
            let valued = letters.find(|c| !LETTERS.contains(c));
            if valued.is_some_and(|at| at + 1 == letters.len()) {
                args.next();
            }
        } else {
            break arg;
        }
    };
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to a port.
    let colon = named.rfind(':').filter(|colon| named.rfind('/').is_none_or(|slash| slash < *colon));
    let (name, tag) = colon.map_or((named, None), |colon| (&named[..colon], Some(&named[colon + 1..])));
    let mut reference = Reference::new(ArtifactKind::Oci, name, 2);
    reference.version = tag.map(str::to_owned);
    let hex = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match digest.filter(|digest| digest.strip_prefix("sha256:").is_some_and(hex)) {
        Some(digest) => reference.digest = Some(digest.to_owned()),
        None => {
            let name = shown_str(image);
            reference.floating = Some(Floating::new(
                format!("the image `{name}` is named without its digest"),
                format!("write `{name}@sha256:…`"),
            ));
        }
    }
    Some(reference)
}

#[cfg(test)]
mod tests {
    use crate::pins::artifact::tests::{check, launch};
    use crate::pins::artifact::{ArtifactKind, of_launch};

    #[test]
    fn e_09_an_image_is_exact_by_its_digest() {
        use ArtifactKind::Oci;
        let digest = format!("sha256:{}", "a1".repeat(32));
        for (words, name, tag, exact) in [
            ("docker run -i --rm acme/x", "acme/x", None, false),
            ("docker run -i --rm acme/x:latest", "acme/x", Some("latest"), false),
            (&*format!("docker run -i --rm acme/x@{digest}"), "acme/x", None, true),
            (
                &*format!("docker run --rm -it -e A=1 --mount type=bind -v/a:/b r.invalid:5000/x:1@{digest} arg"),
                "r.invalid:5000/x",
                Some("1"),
                true,
            ),
            (
                &*format!("podman --log-level=info run --network none -ie TOKEN --pull=never x@{digest}"),
                "x",
                None,
                true,
            ),
            ("docker run x@sha256:short", "x", None, false),
        ] {
            check(words, Oci, name, tag, !exact);
            let artifact = of_launch(&launch(words)).measure().unwrap();
            assert_eq!(artifact.integrity.as_deref(), exact.then_some(&*digest), "{words}");
            assert_eq!(artifact.level, if exact { 2 } else { 0 });
        }
    }
}
