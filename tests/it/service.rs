//! `onegate serve` as a service: where it listens, what it tells the service manager, how it ends; and our units.
//!
//! What is said over HTTP is not looked at here: an answer, whichever, shows that somebody listens.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::host::{Host, PATIENCE, Setup, onegate};

const OPEN: &str = "[auth]\nmode = \"none\"";

/// The first line of whatever is answered there.
fn answer(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text.lines().next().unwrap_or_default().to_owned()
}

/// Where it says that it listens.
fn address(host: &Host) -> SocketAddr {
    host.wait_stderr("/mcp");
    let said = host.stderr();
    let line = said.lines().find(|line| line.contains("listening on http://")).unwrap();
    let (_, rest) = line.split_once("http://").unwrap();
    rest.split_once("/mcp").unwrap().0.parse().unwrap()
}

/// HTTP-2: and that is loopback.
#[test]
fn serve_tells_where_it_listens_and_ends_as_it_is_told_to() {
    for (signal, code) in [("TERM", 0), ("INT", 130)] {
        let setup = Setup::new().head(OPEN).server("a", json!({"tool_count": 1}));
        let mut host = setup.start_as(&["serve", "--listen", "127.0.0.1:0"]);
        let address = address(&host);
        assert!(address.port() != 0 && address.ip().is_loopback());
        assert!(answer(address).starts_with("HTTP/1.1 "), "{signal}");
        host.signal(signal);
        assert_eq!(host.wait_end(PATIENCE).code(), Some(code), "{signal}\n{}", host.stderr());
        host.all_gone(Duration::from_secs(5));
        assert!(TcpStream::connect(address).is_err(), "{signal}: somebody still listens");
    }
}

#[test]
fn every_line_of_stderr_is_json_where_that_is_configured() {
    let setup = Setup::new().head(OPEN).head("[telemetry]\nformat = \"json\"");
    let mut host = setup.start_as(&["serve", "--listen", "127.0.0.1:0"]);
    address(&host);
    host.signal("TERM");
    assert_eq!(host.wait_end(PATIENCE).code(), Some(0));
    let said = host.stderr();
    let lines: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["message"].as_str().is_some_and(|text| text.starts_with("listening on"))));
}

#[test]
fn an_address_that_is_taken_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let shown = Setup::new().head(OPEN).output(&["serve", "--listen", &address]);
    assert_eq!(shown.code, Some(1), "{}", shown.err);
    assert!(shown.err.contains(&format!("cannot listen on {address}")), "{}", shown.err);
}

/// A service manager: takes what it is told until something fits.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self(socket)
    }

    /// All that is told up to and with this.
    fn until(&self, wanted: &str, host: &Host) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        let mut told = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            if let Ok(length) = self.0.recv(&mut bytes) {
                told.extend(String::from_utf8_lossy(&bytes[..length]).lines().map(str::to_owned));
                if told.iter().any(|line| line == wanted) {
                    return told;
                }
            }
            assert!(Instant::now() < end, "{wanted} was not told, but {told:?}\n{}", host.stderr());
        }
    }
}

#[test]
fn a_service_manager_is_told_ready_alive_and_stopping() {
    let setup = Setup::new().head(OPEN).server("a", json!({"tool_count": 3}));
    let path = setup.path("notify");
    let manager = Manager::at(&path);
    let setup = setup.env("NOTIFY_SOCKET", path.to_str().unwrap()).env("WATCHDOG_USEC", "200000");
    let mut host = setup.start_as(&["serve", "--listen", "127.0.0.1:0"]);
    manager.until("READY=1", &host);
    assert_eq!(host.received_of("a", "tools/list").len(), 1, "ready before the first catalogue");
    for _ in 0..3 {
        manager.until("WATCHDOG=1", &host);
    }
    host.signal("TERM");
    let told = manager.until("STOPPING=1", &host);
    assert!(!told.iter().any(|line| line == "READY=1"), "ready is told once");
    assert_eq!(host.wait_end(PATIENCE).code(), Some(0), "{}", host.stderr());
    host.all_gone(Duration::from_secs(5));
}

#[test]
fn a_server_that_does_not_answer_delays_ready_by_the_list_deadline_at_most() {
    let setup = Setup::new().head(OPEN).raw(
        "[servers.silent]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"cat >/dev/null; :\"]\ntimeouts = { start = \"60s\" }\n",
    );
    let path = setup.path("notify");
    let manager = Manager::at(&path);
    let begun = Instant::now();
    let mut host = setup.env("NOTIFY_SOCKET", path.to_str().unwrap()).start_as(&["serve", "--listen", "127.0.0.1:0"]);
    manager.until("READY=1", &host);
    assert!(begun.elapsed() >= Duration::from_secs(4), "it was not waited for");
    host.signal("TERM");
    assert_eq!(host.wait_end(PATIENCE).code(), Some(0), "{}", host.stderr());
}

/// A configuration that wants a key, listening there.
fn keyed(listen: &str) -> Setup {
    let hash = "0".repeat(64);
    Setup::new()
        .head("[policy]\ndefault = \"allow\"")
        .head(&format!("[http]\nlisten = \"{listen}\""))
        .head(&format!("[auth]\nkeys = [{{ name = \"a\", hash = \"sha256:{hash}\" }}]"))
}

#[test]
fn a_listener_that_was_handed_over_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The configuration names an address that no machine has: only the socket can be served.
    let mut host = keyed("192.0.2.1:1").serve_on(listener);
    // The listener is open all the time: whoever comes early waits.
    let answered = answer(address);
    assert!(answered.starts_with("HTTP/1.1 "), "{answered}\n{}", host.stderr());
    host.signal("TERM");
    assert_eq!(host.wait_end(PATIENCE).code(), Some(0), "{}", host.stderr());
    host.wait_stderr(&format!("listening on http://{address}/mcp"));
}

/// HTTP-2: whom the socket lets in decides, not what the configuration names.
#[test]
fn a_reload_opens_no_socket_that_others_reach() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
    let setup = keyed("127.0.0.1:1");
    let config = setup.path("onegate.toml");
    let mut host = setup.serve_on(listener);
    host.wait_stderr("listening on");
    let written = std::fs::read_to_string(&config).unwrap();
    let (open, _) = written.split_once("keys = ").unwrap();
    std::fs::write(&config, format!("{open}mode = \"none\"\n")).unwrap();
    host.signal("HUP");
    host.wait_stderr("the new configuration is not in force");
    let answered = answer(address);
    assert!(answered.starts_with("HTTP/1.1 401"), "{answered}\n{}", host.stderr());
    host.signal("TERM");
    assert_eq!(host.wait_end(PATIENCE).code(), Some(0), "{}", host.stderr());
}

/// The version of systemd, where it is installed.
#[expect(clippy::disallowed_methods, reason = "asks systemd, starts no child of the product")]
fn systemd() -> Option<u32> {
    let said = Command::new("systemd-analyze").arg("--version").output().ok()?.stdout;
    String::from_utf8_lossy(&said).split_whitespace().nth(1)?.parse().ok()
}

/// The units as they are installed, with the program under test in the place of the installed one.
#[test]
#[expect(clippy::disallowed_methods, reason = "asks systemd, starts no child of the product")]
fn the_units_are_sound() {
    let verify = |folder: &Path| {
        let units = ["onegate.service", "onegate.socket"].map(|unit| folder.join(unit));
        Command::new("systemd-analyze").args(["verify", "--man=no"]).args(units).output()
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    for drop_in in ["remote-only.conf", "stdio-children.conf"] {
        let folder = tempfile::tempdir().unwrap();
        let service = std::fs::read_to_string(here.join("onegate.service")).unwrap();
        assert!(service.contains("ExecStart=/usr/local/bin/onegate serve "));
        assert!(service.contains("\nType=notify-reload\n"));
        let mut service = service.replace("/usr/local/bin/onegate", onegate().to_str().unwrap());
        if systemd().is_some_and(|version| version < 253) {
            println!("this systemd is older than notify-reload: all else of the unit is checked");
            service = service.replace("Type=notify-reload", "Type=notify");
        }
        std::fs::write(folder.path().join("onegate.service"), service).unwrap();
        std::fs::copy(here.join("onegate.socket"), folder.path().join("onegate.socket")).unwrap();
        let beside = folder.path().join("onegate.service.d");
        std::fs::create_dir(&beside).unwrap();
        std::fs::copy(here.join(drop_in), beside.join(drop_in)).unwrap();
        let Ok(done) = verify(folder.path()) else {
            println!("skipped: systemd-analyze is not installed, so the units were not checked");
            return;
        };
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() && said.is_empty(), "{drop_in}: {said}");
        // The check sees what it should: a key that does not exist, in the drop-in.
        let mut text = std::fs::read_to_string(here.join(drop_in)).unwrap();
        text.push_str("NoSuchKey=yes\n");
        std::fs::write(beside.join(drop_in), text).unwrap();
        let said = verify(folder.path()).unwrap().stderr;
        assert!(String::from_utf8_lossy(&said).contains("NoSuchKey"), "the drop-in was not read");
    }
}
