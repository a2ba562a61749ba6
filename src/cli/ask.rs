//! The one question: may it be done? Asked of a person at a terminal only.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

/// Whether somebody could be asked.
pub(super) fn can() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks; an end of input is a no.
pub(super) fn yes(question: &str) -> io::Result<bool> {
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Whether to go on: without a terminal nobody is asked, and the command was the yes.
pub(super) fn agreed(question: &str, yes: bool) -> io::Result<bool> {
    if yes || !can() { Ok(true) } else { self::yes(question) }
}
