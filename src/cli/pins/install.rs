//! Packages of npm and `PyPI` are installed into the state folder, so that the lock binds their bytes (threat model §3.2).
//!
//! Asks no registry: npm, and uv or Python's pip, do, with the variables of the server that is meant. No script of a package
//! runs, and nothing is built: npm is told so, of `PyPI` only wheels are taken. Called by [`super::lock`]; what is started of
//! it is the gateway's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio_util::task::TaskTracker;

use crate::cli::{out, run};
use crate::config::settings::{Launch, Reach, ServerSettings, Settings};
use crate::gateway::Processes;
use crate::ident::Secret;
use crate::pins::artifact::{self, Artifact, ArtifactKind};
use crate::pins::facet::Hash;
use crate::pins::listed::{listed, pypi_line};
use crate::pins::lock::{self, snapshots};
use crate::pins::managed::kept::Turn;
use crate::pins::managed::{Plan, Site};
use crate::telemetry::mask::Mask;

/// The longest that a client may take for one step.
const STEP: Duration = Duration::from_secs(15 * 60);

/// What was installed.
pub(super) struct Installed {
    /// The list of packages.
    pub(super) list: Vec<u8>,
    /// As the lock has it.
    pub(super) artifact: Artifact,
}

/// What can be installed of a server; why nothing, else.
pub(super) fn plan(server: &ServerSettings) -> Result<(Plan, &Launch), String> {
    let launch = match &server.reach {
        Ok(Reach::Launch(launch)) => launch,
        Ok(Reach::Remote(_)) => return Err("it is no package but a URL".to_owned()),
        Err(fault) => return Err(fault.message.clone()),
    };
    let reference = artifact::reference(server.reach.as_ref().map_err(|fault| fault.message.clone())?);
    match reference.floating {
        Some(floating) => Err(floating.to_string()),
        None => Ok((Plan::of(launch)?, launch)),
    }
}

/// Whether a server is launched as a package of a registry that has lists of packages, installed or not.
pub(super) fn is_package(server: &ServerSettings) -> bool {
    let kind = server.reach.as_ref().ok().map(|reach| artifact::reference(reach).kind);
    matches!(kind, Some(ArtifactKind::Npm | ArtifactKind::Pypi))
}

/// Installs what a server runs: from the list of packages that the lock names, or from one that is made now. Nothing is done
/// where all of it is there.
pub(super) fn install(
    settings: &Settings,
    server: &ServerSettings,
    packages: Option<Hash>,
    turn: &Turn,
) -> anyhow::Result<Result<Installed, String>> {
    let (plan, launch) = match plan(server) {
        Ok(plan) => plan,
        Err(why) => return Ok(Err(why)),
    };
    let client = match Client::of(&plan, launch) {
        Ok(client) => client,
        Err(why) => return Ok(Err(why)),
    };
    out::say(&format!("onegate: {}: installing with {}", server.key, client.name));
    run::block_on(async {
        let tasks = TaskTracker::new();
        let steps = Steps { launch, client, processes: Processes::new(tasks.clone()) };
        let done = steps.install(settings, server, &plan, packages, turn).await;
        drop(steps);
        tasks.close();
        tasks.wait().await;
        done
    })?
}

/// A package client of this machine.
struct Client {
    name: &'static str,
    program: PathBuf,
}

impl Client {
    fn of(plan: &Plan, launch: &Launch) -> Result<Self, String> {
        let path = launch.env.get(std::ffi::OsStr::new("PATH")).map(Secret::reveal);
        let found = |name: &'static str| {
            let program = which::which_in(name, path, "/").ok()?;
            Some(Self { name, program })
        };
        if plan.kind == ArtifactKind::Npm {
            return found("npm").ok_or_else(|| "npm is not found in PATH".to_owned());
        }
        // Which Python it is only uv can choose.
        let python = || if plan.python.is_none() { found("python3") } else { None };
        found("uv")
            .or_else(python)
            .ok_or_else(|| "neither uv nor, for the Python that is there, python3 is found in PATH".to_owned())
    }
}

struct Steps<'a> {
    launch: &'a Launch,
    client: Client,
    processes: Processes,
}

impl Steps<'_> {
    async fn install(
        &self,
        settings: &Settings,
        server: &ServerSettings,
        plan: &Plan,
        packages: Option<Hash>,
        turn: &Turn,
    ) -> anyhow::Result<Result<Installed, String>> {
        let state = &settings.gateway.state;
        let list = match packages {
            Some(hash) => match lock::packages(&snapshots(&settings.pins.lock), &hash, &server.key) {
                Ok((list, _)) => list,
                Err(fault) => return Ok(Err(fault.to_string())),
            },
            None => {
                let scratch = turn.scratch(&server.key)?;
                let list = self.resolve(plan, &scratch).await;
                std::fs::remove_dir_all(&scratch)?;
                match list {
                    Ok(list) => list,
                    Err(why) => return Ok(Err(why)),
                }
            }
        };
        if let Err(why) = listed(plan, &list) {
            return Ok(Err(why));
        }
        let site = Site::of(state, plan, Hash::of(&list));
        turn.keep(&site)?;
        if !site.is_whole(plan) {
            site.open()?;
            if let Err(why) = self.fill(plan, &list, site.folder()).await {
                return Ok(Err(why));
            }
            if let Err(error) = site.close(plan, &list) {
                return Ok(Err(error.to_string()));
            }
        }
        let reference = server.reach.as_ref().ok().map(artifact::reference);
        let artifact = reference.and_then(|reference| site.measure(plan, &reference));
        Ok(artifact.map(|artifact| Installed { list, artifact }).ok_or_else(|| "it was not installed".to_owned()))
    }

    /// Makes the list of all packages that are needed, each with its integrity value.
    async fn resolve(&self, plan: &Plan, folder: &Path) -> Result<Vec<u8>, String> {
        let is_npm = plan.kind == ArtifactKind::Npm;
        let (wanted, made) =
            if is_npm { ("package.json", "package-lock.json") } else { ("requirements.in", "requirements.txt") };
        write(&folder.join(wanted), plan.wanted().as_bytes())?;
        if is_npm {
            let npm = ["install", "--package-lock-only", "--ignore-scripts", "--omit-lockfile-registry-resolved"];
            self.step(folder, &[&npm[..], &QUIET_NPM].concat()).await?;
        } else if self.client.name == "uv" {
            let uv = ["pip", "compile", "--universal", "--generate-hashes", "--no-header", "--no-annotate"];
            let mut uv: Vec<_> = uv.into_iter().chain(["--quiet", "--only-binary", ":all:"]).collect();
            uv.extend(plan.python.iter().flat_map(|python| ["--python", python]));
            uv.extend(["--output-file", made, wanted]);
            self.step(folder, &uv).await?;
        } else {
            self.step(folder, &["-m", "venv", "venv"]).await?;
            let pip = ["-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report"];
            let rest = ["report.json", "-r", wanted];
            self.step_of(&folder.join("venv/bin/python"), folder, &[&pip[..], &QUIET_PIP, &rest].concat()).await?;
            let report = std::fs::read(folder.join("report.json")).map_err(|error| error.to_string())?;
            write(&folder.join(made), requirements(&report)?.as_bytes())?;
        }
        std::fs::read(folder.join(made)).map_err(|error| format!("{} made no {made}: {error}", self.client.name))
    }

    /// Installs all packages of a list; what does not have its integrity value ends it.
    async fn fill(&self, plan: &Plan, list: &[u8], folder: &Path) -> Result<(), String> {
        if plan.kind == ArtifactKind::Npm {
            write(&folder.join("package.json"), plan.wanted().as_bytes())?;
            write(&folder.join("package-lock.json"), list)?;
            return self.step(folder, &[&["ci", "--ignore-scripts"][..], &QUIET_NPM].concat()).await;
        }
        write(&folder.join("requirements.txt"), list)?;
        let all = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", "requirements.txt"];
        if self.client.name == "uv" {
            let mut venv = vec!["venv", "--quiet", "venv"];
            venv.extend(plan.python.iter().flat_map(|python| ["--python", python]));
            self.step(folder, &venv).await?;
            // What Python would write at the first start is there already, and compared.
            let uv = ["pip", "install", "--quiet", "--compile-bytecode", "--python", "venv/bin/python"];
            return self.step(folder, &[&uv[..], &all].concat()).await;
        }
        self.step(folder, &["-m", "venv", "venv"]).await?;
        let pip = ["-m", "pip", "install"];
        self.step_of(&folder.join("venv/bin/python"), folder, &[&pip[..], &QUIET_PIP, &all].concat()).await
    }

    async fn step(&self, folder: &Path, args: &[&str]) -> Result<(), String> {
        self.step_of(&self.client.program, folder, args).await
    }

    async fn step_of(&self, program: &Path, folder: &Path, args: &[&str]) -> Result<(), String> {
        let launch = Launch {
            program: program.to_owned(),
            command: program.to_string_lossy().into_owned(),
            args: args.iter().copied().map(Secret::new).collect(),
            cwd: Some(folder.to_owned()),
            ..self.launch.clone()
        };
        let ended = self.processes.to_end(&launch, STEP).await?;
        if ended.fine {
            return Ok(());
        }
        Err(failed(self.client.name, args[0], &ended.said, &self.launch.secrets))
    }
}

/// Why a step failed, in the client's own words: a value of the configuration may be among them.
fn failed(client: &str, step: &str, said: &[String], secrets: &[Secret]) -> String {
    let mask = Mask::new(secrets);
    let said: Vec<_> = said.iter().map(|line| mask.shown(line)).collect();
    format!("`{client} {step}` failed: {}", said.join(" / "))
}

const QUIET_NPM: [&str; 3] = ["--no-audit", "--no-fund", "--loglevel=error"];
const QUIET_PIP: [&str; 3] = ["--quiet", "--disable-pip-version-check", "--no-input"];

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    std::fs::write(path, content).map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// A list of packages out of what pip would install.
fn requirements(report: &[u8]) -> Result<String, String> {
    let report: Value = serde_json::from_slice(report).map_err(|error| format!("pip's report: {error}"))?;
    let all = report.get("install").and_then(Value::as_array).ok_or("pip's report names no packages")?;
    let line = |package: &Value| {
        let text = |pointer: &str| package.pointer(pointer).and_then(Value::as_str);
        let (name, version) = (text("/metadata/name")?, text("/metadata/version")?);
        // The words of a package itself: they may be anything.
        pypi_line(name, version, text("/download_info/archive_info/hashes/sha256")?)
    };
    let mut lines: Vec<_> = all
        .iter()
        .map(line)
        .collect::<Option<_>>()
        .ok_or("a package has no name, exact version or sha256 in pip's report")?;
    lines.sort();
    Ok(lines.concat())
}

#[cfg(test)]
mod tests {
    use crate::ident::Secret;

    #[test]
    fn i_34_a_secret_is_hidden_before_a_line_is_escaped_and_cut() {
        let secrets = ["tok\u{200b}en-1", "tok\u{200b}en-1-and-more", "ab"].map(Secret::new);
        let said =
            ["bad tok\u{200b}en-1-and-more for ab".to_owned(), format!("{}tok\u{200b}en-1-and-more", "x".repeat(490))];
        let told = super::failed("npm", "ci", &said, &secrets);
        assert_eq!(told, format!("`npm ci` failed: bad [secret] for ab / {}[secret]", "x".repeat(490)));
    }

    #[test]
    fn what_pip_would_install_becomes_a_list_with_hashes() {
        let package = |name: &str, hashes: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}","version":"1.0"}},"download_info":{{"archive_info":{{"hashes":{hashes}}}}}}}"#
            )
        };
        let report = |packages: &[String]| format!(r#"{{"install":[{}]}}"#, packages.join(","));
        let both = report(&[package("b", r#"{"sha256":"bb"}"#), package("a", r#"{"sha256":"aa"}"#)]);
        let list = super::requirements(both.as_bytes()).unwrap();
        assert_eq!(list, "a==1.0 --hash=sha256:aa\nb==1.0 --hash=sha256:bb\n");
        assert!(super::requirements(report(&[package("a", "{}")]).as_bytes()).is_err());
        let evil = package("a==1 --hash=sha256:aa\\n--index-url=https://h.invalid/?", r#"{"sha256":"bb"}"#);
        assert!(super::requirements(report(&[evil]).as_bytes()).is_err());
        assert!(super::requirements(b"{").is_err());
    }
}
