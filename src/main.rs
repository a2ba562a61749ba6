//! The program: flags → cli → exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The guard is this program too, and must stay as small as a process can be.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == onegate::downstream::guard::ARGUMENT) {
        onegate::downstream::guard::main();
        return ExitCode::SUCCESS;
    }
    onegate::cli::main()
}
