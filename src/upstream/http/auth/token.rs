//! One token: whether it is one of the issuer's, for us, now, and whom it names (AUT-4, RFC 9068).
//!
//! Pure: keys and time come in. What the claims must be is checked here to the letter, signature and header by the library;
//! nothing in the header says where keys come from.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{AlgorithmFamily, Validation, decode, decode_header};
use serde_json::value::RawValue;

use super::crypto;
use super::keyset::KeySet;
use crate::config::settings::JwtSettings;
use crate::ident::Principal;
use crate::protocol::json;

/// What clocks may differ.
pub(super) const LEEWAY: Duration = Duration::from_secs(30);
/// The longest token that is looked at.
const LONGEST: usize = 16 << 10;
/// The longest name of a user.
const LONGEST_NAME: usize = 255;

/// A token that was found good.
#[derive(Debug)]
pub(super) struct Good {
    /// Whom it names.
    pub(super) principal: Principal,
    /// The first moment at which it is taken no more.
    pub(super) until: SystemTime,
    /// Whether it was given for all that is asked for.
    pub(super) suffices: bool,
}

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// No key that is known may have signed it: there may be newer ones.
    UnknownKey,
    /// It is not good, whatever keys there are; the reason is safe to show.
    Never(&'static str),
}

/// Whether a text has the form of a token; no key has.
pub(super) fn is_token(text: &str) -> bool {
    let mut parts = text.split('.');
    let mut part = || parts.next().is_some_and(|part| !part.is_empty());
    part() && part() && part() && parts.next().is_none()
}

/// Checks a token.
pub(super) fn check(text: &str, keys: &KeySet, wanted: &JwtSettings, now: SystemTime) -> Result<Good, Bad> {
    const MALFORMED: Bad = Bad::Never("it is no token");
    if text.len() > LONGEST || !is_token(text) {
        return Err(MALFORMED);
    }
    // An algorithm that the library does not know, such as `none`, ends here.
    let header = decode_header(text).map_err(|_| MALFORMED)?;
    if header.alg.family() == AlgorithmFamily::Hmac || !crypto::is_taken(header.alg) {
        return Err(Bad::Never("its algorithm is not taken"));
    }
    let typ = header.typ.as_deref().map(str::to_ascii_lowercase);
    if !matches!(typ.as_deref(), None | Some("jwt" | "at+jwt" | "application/at+jwt")) {
        return Err(Bad::Never("it is a token for something else"));
    }
    let mut form = Validation::new(header.alg);
    form.required_spec_claims.clear();
    (form.validate_exp, form.validate_aud) = (false, false);
    let mut why = Bad::UnknownKey;
    for key in keys.fitting(header.alg, header.kid.as_deref()) {
        match decode::<Box<RawValue>>(text, key, &form) {
            Ok(token) => return claims(token.claims.get().as_bytes(), wanted, now),
            Err(error) if *error.kind() != ErrorKind::InvalidSignature => return Err(MALFORMED),
            // Without a name for its key, another one may have signed it.
            Err(_) if header.kid.is_none() => {}
            Err(_) => why = Bad::Never("its signature is wrong"),
        }
    }
    Err(why)
}

/// What the claims of a signed token say. They are read by hand, so that one that stands there twice is none.
fn claims(raw: &[u8], wanted: &JwtSettings, now: SystemTime) -> Result<Good, Bad> {
    let claim = |name| one(raw, name);
    let text = |name| claim(name)?.map(json::text_of).ok_or(Bad::Never("a claim is missing"))?.ok_or(TYPE);
    if text("iss")? != wanted.issuer {
        return Err(Bad::Never("it is of another issuer"));
    }
    let audience = claim("aud")?.ok_or(Bad::Never("it does not say whom it is for"))?;
    if !texts(audience, false)?.iter().any(|one| **one == *wanted.audience) {
        return Err(Bad::Never("it is for somebody else"));
    }
    let expires = moment(claim("exp")?.ok_or(Bad::Never("it never expires"))?)?;
    let until = expires.checked_add(LEEWAY).ok_or(TYPE)?;
    if now >= until {
        return Err(Bad::Never("it has expired"));
    }
    if let Some(from) = claim("nbf")?
        && moment(from)? > now + LEEWAY
    {
        return Err(Bad::Never("it is not valid yet"));
    }
    let subject = text("sub")?;
    if subject.is_empty() || subject.len() > LONGEST_NAME || !subject.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Bad::Never("the name in it is none: 1 to 255 visible characters of ASCII"));
    }
    let groups = groups(raw, &wanted.groups_claim)?;
    let mut scopes = Vec::new();
    for name in ["scope", "scp"] {
        if let Some(given) = claim(name)? {
            scopes.extend(texts(given, true)?.into_iter().map(Cow::into_owned));
        }
    }
    let suffices = wanted.scopes.iter().all(|wanted| scopes.contains(wanted));
    Ok(Good { principal: Principal::user(&subject, &groups, &scopes), until, suffices })
}

const TYPE: Bad = Bad::Never("a claim is not what it must be");

/// The groups. What cannot be read as such refuses the token: a rule that denies a group must not miss it.
fn groups(raw: &[u8], place: &str) -> Result<Vec<String>, Bad> {
    // A provider that leaves out groups because they are many says that they are elsewhere, or that there are some.
    let first = place.strip_prefix('/').map_or(place, |pointer| pointer.split('/').next().unwrap_or_default());
    let first = if place.starts_with('/') { first.replace("~1", "/").replace("~0", "~") } else { first.to_owned() };
    let elsewhere = one(raw, "_claim_names")?.filter(|names| names.starts_with(b"{"));
    let is_elsewhere = elsewhere.map_or(Ok(None), |names| one(names, &first))?.is_some();
    if is_elsewhere || one(raw, "hasgroups")? == Some(b"true") && one(raw, &first)?.is_none() {
        return Err(Bad::Never("its groups are not in it: they were too many"));
    }
    let found = match place.strip_prefix('/') {
        None => one(raw, place)?,
        Some(pointer) => {
            let mut at = Some(raw);
            for segment in pointer.split('/') {
                let name = segment.replace("~1", "/").replace("~0", "~");
                let Some(within) = at else { break };
                if !within.starts_with(b"{") {
                    return Err(TYPE);
                }
                at = one(within, &name)?;
            }
            at
        }
    };
    let Some(found) = found.filter(|found| *found != b"null") else { return Ok(Vec::new()) };
    // One text is one group, blanks and all: some providers let people name groups.
    Ok(texts(found, false)?.into_iter().map(Cow::into_owned).collect())
}

/// The member of that name; an error where there are two.
fn one<'a>(object: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, Bad> {
    let mut found = json::members(object).filter(|entry| entry.is(name));
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(Bad::Never("a claim stands there twice")),
        (found, None) => Ok(found.map(|entry| entry.value)),
    }
}

/// A list of texts, or one text, which may hold several with blanks between.
fn texts(raw: &[u8], blanks: bool) -> Result<Vec<Cow<'_, str>>, Bad> {
    if raw.starts_with(b"[") {
        return json::elements(raw).map(|element| json::text_of(element).ok_or(TYPE)).collect();
    }
    let text = json::text_of(raw).ok_or(TYPE)?;
    if !blanks {
        return Ok(vec![text]);
    }
    Ok(text.split(' ').filter(|word| !word.is_empty()).map(|word| Cow::Owned(word.to_owned())).collect())
}

/// A moment, in seconds since 1970, perhaps with a fraction.
fn moment(raw: &[u8]) -> Result<SystemTime, Bad> {
    let number: f64 = std::str::from_utf8(raw).ok().and_then(|text| text.parse().ok()).ok_or(TYPE)?;
    let since = Duration::try_from_secs_f64(number).map_err(|_| TYPE)?;
    SystemTime::UNIX_EPOCH.checked_add(since).ok_or(TYPE)
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
