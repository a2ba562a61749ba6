//! The commands: each loads the configuration, does its work, and ends with a documented exit code.
//!
//! Results go to stdout, everything else to stderr. What a command prints for people it also prints as JSON.

mod ask;
mod audit;
mod call;
mod check;
mod demo;
mod demo_server;
mod doctor;
mod edit;
mod exit;
mod explain;
mod import;
mod install;
mod key;
mod load;
mod named;
mod out;
mod own_file;
mod pins;
mod policy;
mod progress;
mod replay;
mod run;
mod serve;
mod status;
mod tools;
mod trust;
mod unused;
mod who;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::telemetry::audit::OpenError;
use exit::Exit;

/// One MCP server in front of many.
#[derive(Parser)]
#[command(name = "onegate", version, about, long_about = None, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What every command that reads the configuration takes.
#[derive(clap::Args, Default)]
struct Common {
    /// Configuration file; repeatable, later ones win. Replaces the search for one.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// What is logged on stderr: off, error, warn, info, debug, trace, or targets such as onegate=debug.
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a host on standard input and output: what goes into a host's configuration.
    Run(run::Args),
    /// Serve a team over HTTP, until told to stop.
    Serve(serve::Args),
    /// What runs: gateways, their servers, and what went wrong.
    Status(status::Args),
    /// The last lines that a server of a running gateway printed on stderr.
    Logs(status::LogArgs),
    /// Check the configuration without starting anything: all faults at once.
    Check(check::Args),
    /// Start the servers and show the tools as a host sees them, with their size.
    Tools(tools::Args),
    /// Call one tool through the whole pipeline.
    Call(call::Args),
    /// What policy decides about one item for one principal, and why.
    Explain(explain::Args),
    /// Test a configuration against expected decisions, or against those of the past.
    Policy(policy::Args),
    /// Verify, show and sum up the record of decisions.
    Audit(audit::Args),
    /// Write a starter file.
    Init(edit::Init),
    /// Add a server to the configuration.
    Add(edit::Add),
    /// Take a server out of the configuration.
    Remove(edit::Known),
    /// Switch a server on.
    Enable(edit::Known),
    /// Switch a server off.
    Disable(edit::Known),
    /// Put onegate into the configuration of a host.
    Install(install::Install),
    /// Take onegate out of the configuration of a host again.
    Uninstall(install::Uninstall),
    /// What is missing on this machine, with remedies.
    Doctor(doctor::Args),
    /// Read the servers of hosts' own files: show them, or take them over.
    Import(import::Args),
    /// Start servers and write what they are into the lock, for a review.
    Lock(pins::lock::Args),
    /// What is not as the lock says.
    Diff(pins::diff::Args),
    /// Put what was reviewed into the lock.
    Approve(pins::approve::Args),
    /// Say no to an entry: it is known, and never served.
    Block(pins::approve::Block),
    /// Whether lock and snapshots are whole, without starting anything.
    Verify(pins::verify::Args),
    /// Trust the onegate.toml of a folder, as it is now.
    Trust(trust::Args),
    /// Make keys for hosts of `serve`.
    Key(key::Args),
    /// See it work: two small built-in servers, their tools, a call.
    Demo(demo::Args),
    /// Print the JSON Schema of the configuration, for editors.
    Schema,
    /// Print the completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// One of the demo's servers.
    #[command(hide = true)]
    DemoServer(demo_server::Args),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are results, everything else is a fault of usage; clap knows which.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Fine.into() };
        }
    };
    let done = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Logs(args) => status::logs(&args),
        Command::Check(args) => check::run(&args),
        Command::Tools(args) => tools::run(&args),
        Command::Call(args) => call::run(args),
        Command::Explain(args) => explain::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Init(args) => edit::init(&args),
        Command::Add(args) => edit::add(&args),
        Command::Remove(args) => edit::remove(&args),
        Command::Enable(args) => edit::switch(&args, true),
        Command::Disable(args) => edit::switch(&args, false),
        Command::Install(args) => install::install(&args),
        Command::Uninstall(args) => install::uninstall(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Lock(args) => pins::lock::run(&args),
        Command::Diff(args) => pins::diff::run(&args),
        Command::Approve(args) => pins::approve::run(&args),
        Command::Block(args) => pins::approve::block(&args),
        Command::Verify(args) => pins::verify::run(&args),
        Command::Trust(args) => trust::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Schema => out::text(&crate::config::json_schema()).map(|()| Exit::Fine),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "onegate", &mut script);
            out::text(&String::from_utf8_lossy(&script)).map(|()| Exit::Fine)
        }
        Command::DemoServer(args) => demo_server::run(&args),
    };
    match done {
        Ok(exit) => exit.into(),
        // Whoever reads our output has had enough.
        Err(error) if out::is_broken_pipe(&error) => Exit::Fine.into(),
        Err(error) => error
            .downcast_ref::<Exit>()
            .copied()
            .unwrap_or_else(|| {
                out::say(&format!("onegate: {error:#}"));
                // Found out only where the file is to be opened, and a fault of the configuration all the same.
                if error.is::<OpenError>() { Exit::Usage } else { Exit::Failed }
            })
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
