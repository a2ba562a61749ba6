//! Tokens of identity providers and keys over HTTP: who gets in, as whom, for how long, and what the others are told.
//!
//! Long, and one thing: one issuer of tokens, and all that may be wrong with what it issues.

use std::time::{Duration, SystemTime};

use onegate::config::settings::{
    ApiKey, AuthSettings, Effect, HttpSettings, JwtSettings, KeySource, PolicySettings, RuleSettings,
};
use onegate::upstream::http::{KeyPace, Limits};
use serde_json::{Value, json};

use super::client::{Head, call, request};
use super::end::{End, modern, names, text, text_of};
use super::front::{Front, Setup, key, run};
use super::idp::{AUDIENCE, Idp, Served, Signer, from_now, quick};

const METADATA: &str = "/.well-known/oauth-protected-resource";

fn setup(jwt: JwtSettings) -> Setup {
    let limits = Limits { keys: quick(), look: Duration::from_millis(20), ..Limits::default() };
    Setup { limits, jwt: Some(jwt), shared: true, ..Setup::default() }
}

async fn front(jwt: JwtSettings) -> (Front, End) {
    Front::with(setup(jwt)).await
}

/// A modern list with this proof of who asks.
async fn list(front: &Front, bearer: &str) -> (Head, Value) {
    let headers = [("Authorization", bearer), ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list")];
    front.ask("/mcp", &headers, &request(1, "tools/list", modern(json!({})))).await
}

async fn status(front: &Front, bearer: &str) -> u16 {
    list(front, bearer).await.0.status
}

/// An allow rule for these.
fn allow(who: &str, target: &str) -> RuleSettings {
    RuleSettings::new(Effect::Allow, [who], [target], "")
}

#[test]
fn aut4_tokens_let_in_in_both_eras_and_nothing_else_does() {
    run(async {
        let (signer, other) = (Signer::new("one"), Signer::new("one"));
        let idp = Idp::with(&[&signer]).await;
        let (front, mut a) = front(idp.settings()).await;
        let ann = signer.bearer(&idp.claims("ann", json!({})));
        let (head, listed) = list(&front, &ann).await;
        assert_eq!((head.status, names(&listed)), (200, vec!["a__t".to_owned()]));
        let session = front.open_with("2025-11-25", &[("Authorization", &ann)], json!({})).await;
        let headers = [("Authorization", ann.as_str()), ("Mcp-Session-Id", session.as_str())];
        let calling = async {
            let called = a.expect("tools/call").await;
            a.result(&called, text("fine")).await;
        };
        let ((_, answer), ()) = tokio::join!(async { front.ask("/mcp", &headers, &call(1, "a__t")).await }, calling);
        assert_eq!(text_of(&answer), "fine");
        assert_eq!(idp.asked("/jwks"), 1, "once for all");

        // Nothing was brought: where to get it, and no more.
        let (head, _) = front.ask("/mcp", &[], &call(1, "a__t")).await;
        let place = format!("resource_metadata=\"https://gateway.example{METADATA}/mcp\"");
        assert_eq!((head.status, head.get("www-authenticate")), (401, format!("Bearer {place}").as_str()));
        // A token in an address is none (AUT-4).
        let token = ann.strip_prefix("Bearer ").unwrap();
        for path in [format!("/mcp?access_token={token}"), format!("/mcp?token={token}")] {
            assert_eq!(front.ask(&path, &[], &call(1, "a__t")).await.0.status, 401);
        }
        let twice = [("Authorization", ann.as_str()), ("Authorization", ann.as_str())];
        assert_eq!(front.ask("/mcp", &twice, &call(1, "a__t")).await.0.status, 401);
        let claims = |changes| idp.claims("ann", changes);
        let mut bad = vec![
            signer.bearer(&claims(json!({"aud": "https://other.example"}))),
            signer.bearer(&claims(json!({"iss": "https://other.example"}))),
            signer.bearer(&claims(json!({"exp": from_now(-31)}))),
            signer.bearer(&claims(json!({"nbf": from_now(60)}))),
            signer.bearer(&claims(json!({"sub": "a b"}))),
            other.bearer(&claims(json!({}))),
            format!("Bearer {}", signer.sign(&json!({"alg": "none"}), &claims(json!({})))),
            format!("Bearer {}", signer.sign(&json!({"alg": "HS256", "kid": "one"}), &claims(json!({})))),
            "Bearer x".to_owned(),
        ];
        bad.push(format!("{}x", ann));
        for bearer in &bad {
            let (head, body) = list(&front, bearer).await;
            let told = head.get("www-authenticate");
            assert_eq!((head.status, body), (401, Value::Null), "{bearer}");
            assert!(told.starts_with("Bearer error=\"invalid_token\"") && told.ends_with(&place), "{told}");
        }
        assert_eq!(status(&front, &ann).await, 200);
        front.end().await;
    });
}

/// AUT-3: one audience, whatever is behind us and by whichever profile.
#[test]
fn aut2_aut7_metadata_is_for_everybody_who_names_us() {
    run(async {
        let idp = Idp::with(&[&Signer::new("one")]).await;
        let (front, _a) = front(idp.settings()).await;
        for path in ["", "/mcp", "/mcp/default"] {
            let mut client = front.client().await;
            client.send("GET", &format!("{METADATA}{path}"), &[], b"").await;
            let head = client.head().await;
            let body: Value = serde_json::from_slice(&client.body(&head).await).unwrap();
            assert_eq!((head.status, head.get("content-type")), (200, "application/json"));
            let expected = json!({"resource": AUDIENCE, "authorization_servers": [idp.url("")],
                "bearer_methods_supported": ["header"]});
            assert_eq!(body, expected);
        }
        for (method, path, host, expected) in [
            ("GET", "/mcp", "evil.example", 403),
            ("POST", "/mcp", "localhost", 405),
            ("GET", "/other", "localhost", 404),
        ] {
            let mut client = front.client().await;
            client.send(method, &format!("{METADATA}{path}"), &[("Host", host)], b"").await;
            assert_eq!(client.head().await.status, expected, "{method} {path} {host}");
        }
        front.end().await;
        // Who takes no tokens says nothing of them.
        let (front, _a) = Front::with(Setup { keys: Some(vec![key("ann", "one")]), ..Setup::default() }).await;
        let mut client = front.client().await;
        client.send("GET", METADATA, &[], b"").await;
        assert_eq!(client.head().await.status, 404);
        front.end().await;
    });
}

#[test]
fn aut5_tokens_for_less_are_told_what_is_needed() {
    run(async {
        let signer = Signer::new("one");
        let idp = Idp::with(&[&signer]).await;
        let scopes = vec!["mcp:use".to_owned(), "team".to_owned()];
        let (front, _a) = front(JwtSettings { scopes, ..idp.settings() }).await;
        let bearer = |scope: Value| signer.bearer(&idp.claims("ann", json!({"scope": scope})));
        assert_eq!(status(&front, &bearer(json!("team other mcp:use"))).await, 200);
        assert_eq!(status(&front, &bearer(json!(["team", "mcp:use"]))).await, 200);
        for scope in ["", "team", "mcp:use team2", "mcp:use-not team"] {
            let bearer = bearer(json!(scope));
            for _ in 0..2 {
                let (head, _) = list(&front, &bearer).await;
                let told = head.get("www-authenticate");
                assert_eq!(head.status, 403);
                assert!(
                    told.contains("error=\"insufficient_scope\"") && told.contains("scope=\"mcp:use team\""),
                    "{told}"
                );
            }
        }
        front.end().await;
    });
}

#[test]
fn keys_and_tokens_beside_each_other() {
    run(async {
        let signer = Signer::new("one");
        let idp = Idp::with(&[&signer]).await;
        let policy = PolicySettings {
            default: Some(Effect::Deny),
            rules: ["key:ci", "group:dev", "scope:mcp:*"].iter().map(|who| allow(who, "a/tool/*")).collect(),
            ..PolicySettings::default()
        };
        let keys = Some(vec![key("ci", "one"), key("cd", "two")]);
        let (front, _a) = Front::with(Setup { keys, policy, ..setup(idp.settings()) }).await;
        let user = |claims: Value| signer.bearer(&idp.claims("ann", claims));
        for (bearer, sees) in [
            ("Bearer one".to_owned(), true),
            ("Bearer two".to_owned(), false),
            (user(json!({})), false),
            (user(json!({"groups": ["ops", "dev"]})), true),
            (user(json!({"groups": "dev"})), true),
            (user(json!({"scp": ["mcp:list"]})), true),
            // Names do not become others.
            (user(json!({"sub": "key:ci"})), false),
            (user(json!({"groups": ["scope:mcp:a"]})), false),
        ] {
            let (head, listed) = list(&front, &bearer).await;
            assert_eq!((head.status, names(&listed).len()), (200, usize::from(sees)), "{bearer}");
        }
        assert_eq!(status(&front, "Bearer three").await, 401);
        assert_eq!(status(&front, "Bearer a.b.c").await, 401);
        front.end().await;
    });
}

#[test]
fn s16_a_session_is_its_users_whatever_token_comes() {
    run(async {
        let signer = Signer::new("one");
        let idp = Idp::with(&[&signer]).await;
        let policy = PolicySettings {
            default: Some(Effect::Deny),
            rules: vec![allow("group:dev", "a/tool/*")],
            ..PolicySettings::default()
        };
        // Whoever is named first is in the group, so that the server is listed for it.
        let first = ApiKey { groups: vec!["dev".into()], ..key("first", "first") };
        let (front, _a) = Front::with(Setup { keys: Some(vec![first]), policy, ..setup(idp.settings()) }).await;
        let bearer = |user: &str, claims: Value| signer.bearer(&idp.claims(user, claims));
        let ann = bearer("ann", json!({"groups": ["dev"]}));
        let session = front.open_with("2025-11-25", &[("Authorization", &ann)], json!({})).await;
        let listed = async |bearer: &str| {
            let headers = [("Authorization", bearer), ("Mcp-Session-Id", session.as_str())];
            let (head, answer) = front.ask("/mcp", &headers, &request(1, "tools/list", json!({}))).await;
            (head.status, (head.status == 200).then(|| names(&answer).len()))
        };
        // A newer token of hers goes on in it, with what it says now.
        assert_eq!(listed(&ann).await, (200, Some(1)));
        assert_eq!(listed(&bearer("ann", json!({"groups": ["dev"], "jti": "2"}))).await, (200, Some(1)));
        assert_eq!(listed(&bearer("ann", json!({}))).await, (200, Some(0)));
        assert_eq!(listed(&ann).await, (200, Some(1)));
        // Another's does not, and neither does a key of the same name.
        let ben = bearer("ben", json!({"groups": ["dev"]}));
        for bearer in [ben.as_str(), "Bearer first"] {
            assert_eq!(listed(bearer).await.0, 404);
            for method in ["GET", "DELETE"] {
                let mut client = front.client().await;
                let headers =
                    [("Authorization", bearer), ("Mcp-Session-Id", session.as_str()), ("Accept", "text/event-stream")];
                client.send(method, "/mcp", &headers, b"").await;
                assert_eq!(client.head().await.status, 404, "{method}");
            }
        }
        assert_eq!(listed(&ann).await, (200, Some(1)));
        front.end().await;
    });
}

#[test]
fn keys_of_the_issuer_change() {
    run(async {
        let (old, new) = (Signer::new("old"), Signer::new("new"));
        let idp = Idp::with(&[&old]).await;
        let (front, _a) = front(idp.settings()).await;
        let (with_old, with_new) =
            (old.bearer(&idp.claims("ann", json!({}))), new.bearer(&idp.claims("ann", json!({}))));
        assert_eq!(status(&front, &with_old).await, 200);
        idp.keys(&[&new]);
        // The new one is asked for when it is seen; within the pause after the last try nobody waits for it.
        while status(&front, &with_new).await != 200 {}
        assert_eq!(status(&front, &with_old).await, 401, "what was taken with keys that are gone is taken no more");
        assert!(idp.asked("/jwks") <= 3, "{}", idp.asked("/jwks"));
        // An outage changes nothing for whom the last keys are good.
        for served in [Served::Status(500), Served::Never, Served::Bytes(300 << 10), Served::Json("{}".into())] {
            idp.set("/jwks", served);
            let before = idp.asked("/jwks");
            while idp.asked("/jwks") == before {
                assert_eq!(status(&front, &with_old).await, 401);
                assert_eq!(status(&front, &with_new).await, 200);
            }
        }
        assert_eq!(status(&front, &with_new).await, 200);
        front.end().await;
    });
}

#[test]
fn a_flood_of_unknown_keys_is_one_fetch() {
    run(async {
        let signer = Signer::new("one");
        let idp = Idp::with(&[&signer]).await;
        let pace = KeyPace { pause: Duration::from_secs(600), ..quick() };
        let jwt = setup(idp.settings());
        let limits = Limits { keys: pace, ..jwt.limits.clone() };
        let (front, _a) = Front::with(Setup { limits, ..jwt }).await;
        assert_eq!(status(&front, &signer.bearer(&idp.claims("ann", json!({})))).await, 200);
        let asking = (0..64).map(|n| {
            let front = &front;
            let bearer = Signer::new(&format!("k{n}")).bearer(&idp.claims("eve", json!({})));
            async move { status(front, &bearer).await }
        });
        for asked in futures_all(asking.collect()).await {
            assert_eq!(asked, 401);
        }
        assert_eq!(idp.asked("/jwks"), 1);
        front.end().await;
    });
}

/// All of these at once.
async fn futures_all<F: Future>(all: Vec<F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, done) in all.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(output) = future.as_mut().poll(cx)
            {
                *done = Some(output);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[test]
fn e40_without_keys_nobody_gets_in_and_nobody_is_sent_away_for_good() {
    run(async {
        let signer = Signer::new("one");
        let idp = Idp::with(&[&signer]).await;
        for served in [Served::Status(302), Served::Status(503), Served::Never, Served::Bytes(300 << 10)] {
            idp.set("/jwks", served);
            let (front, _a) = front(idp.settings()).await;
            let bearer = signer.bearer(&idp.claims("ann", json!({})));
            let (head, _) = list(&front, &bearer).await;
            assert_eq!((head.status, head.get("retry-after")), (503, "1"));
            assert_eq!(front.ask("/mcp", &[], &call(1, "a__t")).await.0.status, 401);
            idp.keys(&[&signer]);
            while status(&front, &bearer).await != 200 {}
            front.end().await;
        }
    });
}

#[test]
fn auc2_keys_are_where_the_issuer_says() {
    run(async {
        let (signer, other) = (Signer::new("one"), Signer::new("one"));
        let idp = Idp::with(&[&signer]).await;
        let stranger = Idp::with(&[&other]).await;
        let jwt = JwtSettings { keys: KeySource::Discovered, ..idp.settings() };
        let metadata = |issuer: &str, keys: &str| Served::Json(json!({"issuer": issuer, "jwks_uri": keys}).to_string());
        let bearer = signer.bearer(&idp.claims("ann", json!({})));
        // Of another issuer, or with keys on a host that is no public one: nobody gets in.
        let place = "/.well-known/oauth-authorization-server";
        for served in [
            metadata("https://other.example", &idp.url("/jwks")),
            metadata(&idp.url(""), &stranger.url("/jwks")),
            metadata(&idp.url(""), "https://10.0.0.1/jwks"),
            metadata(&idp.url(""), "file:///etc/passwd"),
            Served::Json("[]".into()),
        ] {
            idp.set(place, served);
            let (front, _a) = front(jwt.clone()).await;
            assert_eq!(status(&front, &bearer).await, 503);
            front.end().await;
        }
        assert_eq!((stranger.asked("/jwks"), idp.asked("/jwks")), (0, 0), "I-14");
        idp.set(place, Served::Status(404));
        idp.set("/.well-known/openid-configuration", metadata(&idp.url(""), &idp.url("/jwks")));
        let (front, _a) = front(jwt).await;
        assert_eq!(status(&front, &bearer).await, 200);
        front.end().await;
    });
}

#[test]
fn keys_may_be_in_a_file() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.json");
        let (old, new) = (Signer::new("old"), Signer::new("new"));
        let write = |signer: &Signer| std::fs::write(&file, json!({"keys": [signer.jwk()]}).to_string()).unwrap();
        write(&old);
        let idp = Idp::with(&[]).await;
        let (front, _a) = front(JwtSettings { keys: KeySource::File(file.clone()), ..idp.settings() }).await;
        let bearer = |signer: &Signer| signer.bearer(&idp.claims("ann", json!({})));
        assert_eq!(status(&front, &bearer(&old)).await, 200);
        write(&new);
        while status(&front, &bearer(&new)).await != 200 {}
        front.end().await;
    });
}

#[test]
fn streams_end_when_a_token_does() {
    run(async {
        let signer = Signer::new("one");
        let idp = Idp::with(&[&signer]).await;
        let (front, _a) = front(idp.settings()).await;
        // With what clocks may differ it is good for about two seconds.
        let short = signer.bearer(&idp.claims("ann", json!({"exp": from_now(-28)})));
        let long = signer.bearer(&idp.claims("ann", json!({})));
        let session = front.open_with("2025-11-25", &[("Authorization", &long)], json!({})).await;
        let mut client = front.client().await;
        let accept = ("Accept", "text/event-stream");
        let headers = [("Authorization", short.as_str()), ("Mcp-Session-Id", session.as_str()), accept];
        client.send("GET", "/mcp", &headers, b"").await;
        let mut general = client.stream().await;
        let mut client = front.client().await;
        let headers = [
            ("Authorization", short.as_str()),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "subscriptions/listen"),
        ];
        let params = modern(json!({"notifications": {"toolsListChanged": true}}));
        client.post("/mcp", &headers, &request(7, "subscriptions/listen", params)).await;
        let mut listening = client.stream().await;
        assert_eq!(listening.message().await["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(general.next().await, None);
        assert_eq!(listening.message().await["id"], 7, "SUB-12");
        assert_eq!(listening.next().await, None);
        assert_eq!(status(&front, &short).await, 401);
        // The session is the user's and goes on with a newer token.
        let headers = [("Authorization", long.as_str()), ("Mcp-Session-Id", session.as_str())];
        assert_eq!(front.ask("/mcp", &headers, &request(1, "ping", json!({}))).await.0.status, 200);
        front.end().await;
    });
}

#[test]
fn sessions_and_streams_end_with_a_key() {
    run(async {
        let limits = Limits { look: Duration::from_millis(20), ..Limits::default() };
        let expires = Some(SystemTime::now() + Duration::from_secs(2));
        let keys = Some(vec![ApiKey { expires, ..key("ann", "one") }, key("ben", "two")]);
        let (front, mut a) = Front::with(Setup { limits, keys, shared: true, ..Setup::default() }).await;
        let ann = ("Authorization", "Bearer one");
        let session = front.open_with("2025-11-25", &[ann], json!({})).await;
        let own = front.open_with("2025-11-25", &[("Authorization", "Bearer two")], json!({})).await;
        let mut client = front.client().await;
        let named = ("Mcp-Session-Id", session.as_str());
        client.send("GET", "/mcp", &[ann, named, ("Accept", "text/event-stream")], b"").await;
        let mut general = client.stream().await;
        let mut calling = front.client().await;
        calling.post("/mcp", &[ann, named], &call(1, "a__t")).await;
        let called = a.expect("tools/call").await;
        assert_eq!(general.next().await, None);
        // What runs in the session is given up with it.
        let cancelled = a.expect("notifications/cancelled").await;
        assert_eq!(cancelled["params"]["requestId"], called["id"]);
        assert_eq!(front.ask("/mcp", &[ann, named], &request(1, "ping", json!({}))).await.0.status, 401);
        let headers = [("Authorization", "Bearer two"), ("Mcp-Session-Id", own.as_str())];
        assert_eq!(front.ask("/mcp", &headers, &request(1, "ping", json!({}))).await.0.status, 200);
        front.end().await;
    });
}

/// A key that is taken out or altered while we run is no key from then on: who came with it is asked again who it is, its
/// streams and sessions end; everybody else goes on.
#[test]
fn keys_that_are_taken_back_by_a_reload_end_what_they_opened() {
    run(async {
        let limits = Limits { look: Duration::from_millis(20), ..Limits::default() };
        let keys = vec![key("ann", "one"), key("ben", "two"), key("eve", "three")];
        let (front, _a) = Front::with(Setup { limits, keys: Some(keys), shared: true, ..Setup::default() }).await;
        let mut streams = Vec::new();
        for secret in ["one", "two", "three"] {
            let bearer = format!("Bearer {secret}");
            let who = ("Authorization", bearer.as_str());
            let session = front.open_with("2025-11-25", &[who], json!({})).await;
            let mut client = front.client().await;
            let named = ("Mcp-Session-Id", session.as_str());
            client.send("GET", "/mcp", &[who, named, ("Accept", "text/event-stream")], b"").await;
            streams.push((bearer.clone(), session, client.stream().await));
        }
        // One is gone, one in another group, and one as it was.
        let altered = ApiKey { groups: vec!["team".into()], ..key("eve", "three") };
        let auth = AuthSettings { keys: vec![altered, key("ben", "two")], ..AuthSettings::default() };
        front.entrance.reload(&HttpSettings::default(), &auth);
        for (n, status) in [(0, 401), (1, 200), (2, 404)] {
            let (bearer, session, stream) = &mut streams[n];
            if n != 1 {
                assert_eq!(stream.next().await, None);
            }
            let headers = [("Authorization", bearer.as_str()), ("Mcp-Session-Id", session.as_str())];
            let mut answered = 0;
            for _ in 0..100 {
                answered = front.ask("/mcp", &headers, &request(1, "ping", json!({}))).await.0.status;
                if answered == status {
                    break;
                }
                // The session of a key that was altered is swept away soon.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(answered, status, "{n}");
        }
        assert_eq!(status(&front, "Bearer three").await, 200, "it is a key, of somebody in another group");
        // Who is let in by nothing but the address is, too.
        let nobody = HttpSettings { allowed_hosts: vec!["gate.example".into()], ..HttpSettings::default() };
        let named = [("Authorization", "Bearer two"), ("Host", "gate.example")];
        assert_eq!(front.ask("/mcp", &named, &request(1, "ping", json!({}))).await.0.status, 403);
        front.entrance.reload(&nobody, &auth);
        assert_ne!(front.ask("/mcp", &named, &request(1, "ping", json!({}))).await.0.status, 403);
        front.end().await;
    });
}

#[test]
fn what_a_host_says_of_itself_is_nobody() {
    run(async {
        let signer = Signer::new("one");
        let idp = Idp::with(&[&signer]).await;
        let policy = PolicySettings {
            default: Some(Effect::Deny),
            rules: vec![allow("user:ann", "a/tool/*"), allow("key:first", "a/tool/*")],
            ..PolicySettings::default()
        };
        let keys = Some(vec![key("first", "first")]);
        let (front, _a) = Front::with(Setup { keys, policy, ..setup(idp.settings()) }).await;
        let eve = signer.bearer(&idp.claims("eve", json!({})));
        let info = json!({"name": "user:ann", "version": "user:ann", "title": "user:ann"});
        // In the modern era with each request, in the legacy era with the first.
        let mut params = modern(json!({}));
        params["_meta"]["io.modelcontextprotocol/clientInfo"] = info.clone();
        let headers =
            [("Authorization", eve.as_str()), ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list")];
        let (_, listed) = front.ask("/mcp", &headers, &request(1, "tools/list", params)).await;
        assert_eq!(names(&listed), [""; 0], "{listed}");
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        let (head, _) = front.ask("/mcp", &headers[..1], &request(0, "initialize", params)).await;
        let session = head.get("mcp-session-id").to_owned();
        let headers = [headers[0], ("Mcp-Session-Id", session.as_str())];
        let (_, listed) = front.ask("/mcp", &headers, &request(1, "tools/list", json!({}))).await;
        assert_eq!(names(&listed), [""; 0], "{listed}");
        let ann = signer.bearer(&idp.claims("ann", json!({})));
        assert_eq!(names(&list(&front, &ann).await.1), ["a__t"]);
        front.end().await;
    });
}
