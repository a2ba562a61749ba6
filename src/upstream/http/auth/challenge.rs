//! What hosts without a good key or token are told: what to bring, and where to get it (RFC 9728, AUT-2, AUT-5).
//!
//! The documents name the issuer and us, nothing of the servers behind us (AUT-7); they are the same for all, made once.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};

use super::Denial;
use crate::config::settings::JwtSettings;
use crate::protocol::json;
use crate::upstream::http::body::{self, Reply, empty};

/// Where the documents are, before the path of an endpoint.
const PLACE: &str = "/.well-known/oauth-protected-resource";

/// What is told.
pub(super) struct Challenge {
    /// Of those who take tokens.
    tokens: Option<Tokens>,
}

struct Tokens {
    document: Bytes,
    /// Where hosts find it, by the name that we have outside.
    metadata: String,
    scopes: String,
}

impl Challenge {
    pub(super) fn new(jwt: Option<&JwtSettings>) -> Self {
        Self { tokens: jwt.map(Tokens::new) }
    }

    /// The metadata that is asked for by this path; nothing where it is another path, or we take no tokens. Which
    /// profiles there are it does not tell.
    pub(super) fn document(&self, path: &str) -> Option<Response<Reply>> {
        let tokens = self.tokens.as_ref()?;
        let rest = path.strip_prefix(PLACE)?;
        let endpoint = rest.strip_prefix("/mcp").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if !(rest.is_empty() || rest == "/" || endpoint || tokens.metadata.ends_with(path)) {
            return None;
        }
        let mut answer = body::json(StatusCode::OK, vec![tokens.document.clone()]);
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("max-age=300"));
        Some(answer)
    }

    /// The answer to who may not enter.
    pub(super) fn answer(&self, denial: &Denial) -> Response<Reply> {
        let (status, error) = match denial {
            Denial::Nothing => (StatusCode::UNAUTHORIZED, None),
            Denial::Bad(why) => (StatusCode::UNAUTHORIZED, Some(("invalid_token", *why))),
            Denial::Scope => {
                (StatusCode::FORBIDDEN, Some(("insufficient_scope", "it was not given for what is needed here")))
            }
            Denial::NoKeys(after) => return unavailable(*after),
        };
        let mut parts = Vec::new();
        if let Some((error, why)) = error {
            parts.push(format!("error=\"{error}\", error_description=\"{why}\""));
        }
        if let Some(tokens) = &self.tokens {
            parts.push(format!("resource_metadata=\"{}\"", tokens.metadata));
            if !tokens.scopes.is_empty() {
                parts.push(format!("scope=\"{}\"", tokens.scopes));
            }
        }
        let text = format!("Bearer {}", parts.join(", "));
        let mut answer = empty(status);
        let value = HeaderValue::from_str(text.trim_end()).unwrap_or(HeaderValue::from_static("Bearer"));
        answer.headers_mut().insert(WWW_AUTHENTICATE, value);
        answer
    }
}

/// A token may be good, and nobody can say: another one would not help the host.
fn unavailable(after: Duration) -> Response<Reply> {
    let mut answer = empty(StatusCode::SERVICE_UNAVAILABLE);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    answer
}

impl Tokens {
    fn new(jwt: &JwtSettings) -> Self {
        // The address that tokens are asked for, as it was written: hosts compare it.
        let resource = if jwt.resource.as_str().trim_end_matches('/') == jwt.audience.trim_end_matches('/') {
            jwt.audience.clone()
        } else {
            jwt.resource.to_string()
        };
        let mut text = b"{\"resource\":".to_vec();
        json::push_string(&mut text, &resource);
        text.extend_from_slice(b",\"authorization_servers\":[");
        json::push_string(&mut text, &jwt.issuer);
        text.push(b']');
        if !jwt.scopes.is_empty() {
            text.extend_from_slice(b",\"scopes_supported\":[");
            for (n, scope) in jwt.scopes.iter().enumerate() {
                if n > 0 {
                    text.push(b',');
                }
                json::push_string(&mut text, scope);
            }
            text.push(b']');
        }
        text.extend_from_slice(b",\"bearer_methods_supported\":[\"header\"]}");
        let origin = jwt.resource.origin().ascii_serialization();
        let path = jwt.resource.path().trim_end_matches('/');
        Self { document: text.into(), metadata: format!("{origin}{PLACE}{path}"), scopes: jwt.scopes.join(" ") }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::config::settings::KeySource;

    fn jwt(audience: &str, resource: &str, scopes: &[&str]) -> JwtSettings {
        JwtSettings {
            issuer: "https://idp.example/t".into(),
            audience: audience.into(),
            resource: resource.parse().unwrap(),
            keys: KeySource::Discovered,
            groups_claim: "groups".into(),
            scopes: scopes.iter().map(|&scope| scope.into()).collect(),
        }
    }

    #[tokio::test]
    async fn aut2_aut7_the_metadata_names_the_issuer_and_us() {
        let text = async |challenge: &Challenge, path: &str| {
            let answer = challenge.document(path)?;
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            Some(String::from_utf8(body.to_vec()).unwrap())
        };
        let challenge = Challenge::new(Some(&jwt("https://g.example/mcp", "https://g.example/mcp", &[])));
        let expected = "{\"resource\":\"https://g.example/mcp\",\"authorization_servers\":[\"https://idp.example/t\"],\
                        \"bearer_methods_supported\":[\"header\"]}";
        for good in ["", "/", "/mcp", "/mcp/docs", "/mcp/no-such-profile"] {
            assert_eq!(text(&challenge, &format!("{PLACE}{good}")).await.as_deref(), Some(expected), "{good}");
        }
        for bad in ["/mcpx", "/other", "x"] {
            assert_eq!(text(&challenge, &format!("{PLACE}{bad}")).await, None, "{bad}");
        }
        // Behind a path of a proxy, and tokens for something that is no address.
        let challenge = Challenge::new(Some(&jwt("api://1", "https://g.example/tools/mcp/", &["a", "b"])));
        let expected = "{\"resource\":\"https://g.example/tools/mcp/\",\"authorization_servers\":\
                        [\"https://idp.example/t\"],\"scopes_supported\":[\"a\",\"b\"],\
                        \"bearer_methods_supported\":[\"header\"]}";
        assert_eq!(text(&challenge, &format!("{PLACE}/tools/mcp")).await.as_deref(), Some(expected));
        assert_eq!(text(&Challenge::new(None), PLACE).await, None);
        // A host has no path: the address is as the operator wrote it.
        let challenge = Challenge::new(Some(&jwt("https://g.example", "https://g.example", &[])));
        assert!(text(&challenge, PLACE).await.unwrap().starts_with("{\"resource\":\"https://g.example\","));
    }

    #[test]
    fn aut2_aut5_a_challenge_says_what_to_bring() {
        let told = |challenge: &Challenge, denial| {
            let answer = challenge.answer(&denial);
            let header = answer.headers().get(WWW_AUTHENTICATE).map(|value| value.to_str().unwrap().to_owned());
            (answer.status().as_u16(), header.unwrap_or_default())
        };
        let plain = Challenge::new(None);
        assert_eq!(told(&plain, Denial::Nothing), (401, "Bearer".into()));
        let challenge = Challenge::new(Some(&jwt("https://g.example/mcp", "https://g.example/mcp", &["a", "b"])));
        let end = format!("resource_metadata=\"https://g.example{PLACE}/mcp\", scope=\"a b\"");
        assert_eq!(told(&challenge, Denial::Nothing), (401, format!("Bearer {end}")));
        let bad = format!("Bearer error=\"invalid_token\", error_description=\"it has expired\", {end}");
        assert_eq!(told(&challenge, Denial::Bad("it has expired")), (401, bad));
        let (status, header) = told(&challenge, Denial::Scope);
        assert_eq!(status, 403);
        assert!(header.contains("error=\"insufficient_scope\"") && header.ends_with(&end), "{header}");
        assert_eq!(told(&challenge, Denial::NoKeys(Duration::from_millis(1))).0, 503);
    }
}
