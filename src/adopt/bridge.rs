//! `npx mcp-remote URL` is a program that only stands between a host without HTTP and a server with it: what it
//! reaches is reached directly.
//!
//! Only where the header that proves who we are is given: without one the program signs in by itself, with a browser,
//! and that nobody else can do for it. Called by `read`.

use super::hosts::Variables;
use super::server::Server;
use super::text::{Piece, Text};

/// Makes a server behind the bridge a server behind its URL.
pub(super) fn unwrap(server: &mut Server) {
    let Some((url, sse, headers)) = behind(server) else { return };
    server.command = None;
    server.args.clear();
    server.env.clear();
    server.cwd = None;
    server.url = Some(url);
    server.sse = sse;
    server.headers = headers;
    server.remarks.push("was reached through `mcp-remote`, is now reached directly".to_owned());
}

type Behind = (Text, bool, Vec<(String, Text)>);

fn behind(server: &Server) -> Option<Behind> {
    let plain: Vec<&str> = server.args.iter().map(|arg| arg.beginning()).collect();
    let at = plain.iter().position(|arg| *arg == "mcp-remote" || arg.starts_with("mcp-remote@"))?;
    let url = server.args.get(at + 1).filter(|url| url.beginning().starts_with("http"))?;
    let mut headers: Vec<(String, Text)> = Vec::new();
    let mut sse = false;
    let mut rest = server.args.iter().skip(at + 2);
    while let Some(arg) = rest.next() {
        match arg.as_plain()? {
            "--header" => headers.push(header(rest.next()?, server)?),
            "--transport" => match rest.next()?.as_plain()? {
                "sse-only" => sse = true,
                "http-only" | "http-first" => {}
                _ => return None,
            },
            "--allow-http" | "--debug" | "--silent" => {}
            // Something of its own that we would lose.
            _ => return None,
        }
    }
    (!headers.is_empty()).then(|| (url.clone(), sse, headers))
}

/// `Name: value`; it puts in `${NAME}` of its own environment itself.
fn header(text: &Text, server: &Server) -> Option<(String, Text)> {
    let (name, value) = text.beginning().split_once(':')?;
    let mut pieces = Vec::new();
    for piece in Text::read(value.trim_start(), Variables::Braces).0.into_iter().chain(text.0.iter().skip(1).cloned()) {
        match &piece {
            Piece::Variable { name, .. } => match server.env.iter().find(|(known, _)| known == name) {
                Some((_, value)) => pieces.extend(value.0.iter().cloned()),
                None => pieces.push(piece),
            },
            Piece::Plain(_) | Piece::File(_) | Piece::Input(_) | Piece::Kept(_) | Piece::Workspace(_) => {
                pieces.push(piece);
            }
        }
    }
    Some((name.trim().to_owned(), Text(joined(pieces))))
}

/// Neighbouring plain pieces are one.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if let (Some(Piece::Plain(before)), Piece::Plain(text)) = (joined.last_mut(), &piece) {
            before.push_str(text);
        } else {
            joined.push(piece);
        }
    }
    joined
}
