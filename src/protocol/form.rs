//! What a form asks for, as far as its fields are named after it (URL-6).
//!
//! Forms pass through the host, its model's maker and us, so they must not ask for secrets; that is what addresses are for,
//! which the user opens. A server is not to be believed, so the fields are looked at. By names alone: what is
//! called otherwise is not found out.

use super::capability::is_url;
use super::json;

/// Names of secrets, word by word; the longest come first.
const SECRETS: [&[&str]; 19] = [
    &["api", "key"],
    &["access", "key"],
    &["private", "key"],
    &["secret", "key"],
    &["ssh", "key"],
    &["recovery", "code"],
    &["security", "code"],
    &["seed", "phrase"],
    &["apikey"],
    &["password"],
    &["passwort"],
    &["passwd"],
    &["pwd"],
    &["passphrase"],
    &["passcode"],
    &["secret"],
    &["token"],
    &["credential"],
    &["credentials"],
];

/// What the raw params of an elicitation ask the user to type, if that is a secret.
pub fn secret(params: Option<&[u8]>) -> Option<String> {
    if is_url(params) {
        return None;
    }
    let schema = json::member(params?, "requestedSchema")?;
    let fields = json::members(schema).filter(|entry| entry.is("properties"));
    fields.flat_map(|fields| json::members(fields.value)).find_map(|field| {
        // What is ticked or counted is no secret.
        let typed = json::members(field.value).filter(|entry| entry.is("type")).all(|kind| kind.value == b"\"string\"");
        let chosen = json::members(field.value).any(|entry| entry.is("enum") || entry.is("oneOf"));
        let title = json::member(field.value, "title").and_then(json::text_of);
        let names = [field.name(), title];
        names.iter().flatten().find_map(|name| secret_in(name)).filter(|_| typed && !chosen)
    })
}

/// The first secret that a name speaks of.
fn secret_in(name: &str) -> Option<String> {
    let words = words(name);
    let is_there = |secret: &&[&str]| words.windows(secret.len()).any(|part| part == *secret);
    SECRETS.iter().copied().find(is_there).map(|secret| secret.join(" "))
}

/// The words of a name, however it is written: `apiKey`, `API_KEY`, `api-key`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() && before.is_lowercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(properties: &str) -> Option<String> {
        secret(Some(format!(r#"{{"message":"m","requestedSchema":{{"properties":{properties}}}}}"#).as_bytes()))
    }

    #[test]
    fn url6_fields_that_are_named_after_a_secret_are_found() {
        for (properties, found) in [
            (r#"{"name":{"type":"string"},"password":{"type":"string"}}"#, Some("password")),
            (r#"{"p\u0061ssword":{"type":"string"}}"#, Some("password")),
            (r#"{"githubToken":{}}"#, Some("token")),
            (r#"{"x":{"type":"string","title":"Your API key"}}"#, Some("api key")),
            (r#"{"STRIPE_SECRET_KEY":{"type":"string"}}"#, Some("secret key")),
            (r#"{"openai-apikey":{"type":"string"}}"#, Some("apikey")),
            (r#"{"max_tokens":{"type":"integer"},"tokens":{"type":"string"}}"#, None),
            (r#"{"token":{"type":"integer"}}"#, None),
            (r#"{"forgot_password":{"type":"boolean"}}"#, None),
            (r#"{"token":{"type":"string","enum":["ETH","BTC"]}}"#, None),
            (r#"{"key":{"type":"string"},"secretary":{"type":"string"}}"#, None),
            ("{}", None),
        ] {
            assert_eq!(asked(properties).as_deref(), found, "{properties}");
        }
        let twice = r#"{"requestedSchema":{"properties":{},"properties":{"pwd":{}}}}"#;
        assert_eq!(secret(Some(twice.as_bytes())).as_deref(), Some("pwd"), "whichever of them a host takes");
        let url = r#"{"mode":"url","requestedSchema":{"properties":{"password":{}}}}"#;
        assert_eq!((secret(Some(url.as_bytes())), secret(None)), (None, None));
    }
}
