//! Tokens, good and bad: made here with keys made here, and with signatures of an RSA key whose private half is gone.

use data_encoding::BASE64URL_NOPAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _,
};
use serde_json::{Value, json};

use super::*;
use crate::config::settings::KeySource;

const NOW: u64 = 1_900_000_000;
const PAYLOAD: &str = r#"{"iss":"https://idp.example","aud":"https://gw.example/mcp","sub":"ann","exp":2000000000}"#;

fn b64(bytes: impl AsRef<[u8]>) -> String {
    BASE64URL_NOPAD.encode(bytes.as_ref())
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
}

fn wanted() -> JwtSettings {
    JwtSettings {
        issuer: "https://idp.example".into(),
        audience: "https://gw.example/mcp".into(),
        resource: "https://gw.example/mcp".parse().unwrap(),
        keys: KeySource::Discovered,
        groups_claim: "groups".into(),
        scopes: Vec::new(),
    }
}

fn good() -> Value {
    json!({"iss": "https://idp.example", "aud": "https://gw.example/mcp", "sub": "ann", "exp": NOW + 60})
}

enum Pair {
    Ed(Ed25519KeyPair),
    Ec(EcdsaKeyPair, &'static str),
}

impl Pair {
    fn ed() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
    }

    fn ec(algorithm: &'static EcdsaSigningAlgorithm, curve: &'static str) -> Self {
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        Self::Ec(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &SystemRandom::new()).unwrap(), curve)
    }

    fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Ed(pair) => json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": b64(pair.public_key())}),
            Self::Ec(pair, curve) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({"kty": "EC", "crv": curve, "kid": kid, "x": b64(x), "y": b64(y)})
            }
        }
    }

    fn token(&self, header: &Value, claims: impl AsRef<[u8]>) -> String {
        let message = format!("{}.{}", b64(header.to_string()), b64(claims));
        let signature = match self {
            Self::Ed(pair) => b64(pair.sign(message.as_bytes())),
            Self::Ec(pair, _) => b64(pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap()),
        };
        format!("{message}.{signature}")
    }
}

fn set(keys: &[Value]) -> KeySet {
    crypto::install();
    KeySet::read(json!({"keys": keys}).to_string().as_bytes()).unwrap()
}

/// The tokens of the RSA key, by algorithm.
fn rsa_tokens() -> impl Iterator<Item = (&'static str, String)> {
    SIGNATURES.into_iter().map(|(algorithm, signature)| {
        let header = format!(r#"{{"alg":"{algorithm}","kid":"rsa"}}"#);
        (algorithm, format!("{}.{}.{signature}", b64(header), b64(PAYLOAD)))
    })
}

/// One key pair and its set, for tests of what tokens say.
struct Idp {
    pair: Pair,
    keys: KeySet,
    wanted: JwtSettings,
}

impl Idp {
    fn new() -> Self {
        let pair = Pair::ed();
        let keys = set(&[pair.jwk("k")]);
        Self { pair, keys, wanted: wanted() }
    }

    fn check_raw(&self, claims: &str) -> Result<Good, Bad> {
        let token = self.pair.token(&json!({"alg": "EdDSA", "kid": "k", "typ": "at+jwt"}), claims);
        check(&token, &self.keys, &self.wanted, now())
    }

    /// The good claims with these put in; null takes one out.
    fn check(&self, changes: &Value) -> Result<Good, Bad> {
        let mut claims = good();
        for (name, value) in changes.as_object().unwrap() {
            let claims = claims.as_object_mut().unwrap();
            if value.is_null() {
                claims.remove(name);
            } else {
                claims.insert(name.clone(), value.clone());
            }
        }
        self.check_raw(&claims.to_string())
    }
}

#[test]
fn aut4_all_algorithms_that_are_taken() {
    let p256 = Pair::ec(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256");
    let p384 = Pair::ec(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384");
    let ed = Pair::ed();
    let rsa = json!({"kty": "RSA", "kid": "rsa", "n": N, "e": "AQAB", "use": "sig"});
    let keys = set(&[p256.jwk("p256"), p384.jwk("p384"), ed.jwk("ed"), rsa]);
    let claims = good().to_string();
    let mut tokens = vec![
        p256.token(&json!({"alg": "ES256", "kid": "p256"}), &claims),
        p384.token(&json!({"alg": "ES384", "kid": "p384", "typ": "JWT"}), &claims),
        ed.token(&json!({"alg": "EdDSA", "kid": "ed", "typ": "application/at+jwt"}), &claims),
        // Without a name for its key: all that fit are tried.
        p256.token(&json!({"alg": "ES256"}), &claims),
    ];
    tokens.extend(rsa_tokens().map(|(_, token)| token));
    for token in &tokens {
        let found = check(token, &keys, &wanted(), now()).unwrap_or_else(|bad| panic!("{bad:?} {token}"));
        assert_eq!(found.principal.as_str(), "user:ann");
        // A bit of what was signed, and one of the signature.
        let dot = token.rfind('.').unwrap();
        for at in [token.find('.').unwrap() + 8, dot + 8] {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(check(std::str::from_utf8(&changed).unwrap(), &keys, &wanted(), now()).is_err(), "{at} of {token}");
        }
    }
}

#[test]
fn aut4_what_is_signed_otherwise_is_not_taken() {
    let (ed, other) = (Pair::ed(), Pair::ed());
    let keys = set(&[ed.jwk("k"), json!({"kty": "RSA", "kid": "rsa", "n": N, "e": "AQAB", "alg": "RS256"})]);
    let claims = good().to_string();
    let found = |token: &str| check(token, &keys, &wanted(), now()).map(|good| good.principal.as_str().to_owned());
    let signed = |header: Value| found(&ed.token(&header, &claims));
    assert_eq!(signed(json!({"alg": "EdDSA", "kid": "k"})).as_deref(), Ok("user:ann"));
    // No signature at all, a secret's, another algorithm than the key's.
    for alg in ["none", "None", "HS256", "HS384", "HS512", "ES256K", "ES512", "", "eddsa"] {
        assert!(matches!(signed(json!({"alg": alg, "kid": "k"})), Err(Bad::Never(_))), "{alg}");
    }
    for alg in ["ES256", "ES384", "RS256", "PS512"] {
        assert!(signed(json!({"alg": alg, "kid": "k"})).is_err(), "{alg}");
    }
    let unsigned = format!("{}.{}.", b64(r#"{"alg":"none"}"#), b64(&claims));
    assert!(found(&unsigned).is_err());
    // The public key as the secret of an HMAC.
    let message = format!("{}.{}", b64(r#"{"alg":"HS256","kid":"rsa"}"#), b64(&claims));
    let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, N.as_bytes()), message.as_bytes());
    assert_eq!(found(&format!("{message}.{}", b64(tag))), Err(Bad::Never("its algorithm is not taken")));
    // A key that is for one algorithm alone.
    for (algorithm, token) in rsa_tokens() {
        assert_eq!(found(&token).is_ok(), algorithm == "RS256", "{algorithm}");
    }
    // Another's key under the same name, a name that is not there, none at all; a key that comes with the token.
    let foreign = |header: Value| found(&other.token(&header, &claims));
    assert_eq!(foreign(json!({"alg": "EdDSA", "kid": "k"})), Err(Bad::Never("its signature is wrong")));
    assert_eq!(foreign(json!({"alg": "EdDSA", "kid": "x"})), Err(Bad::UnknownKey));
    assert_eq!(foreign(json!({"alg": "EdDSA"})), Err(Bad::UnknownKey));
    let own = json!({"alg": "EdDSA", "jwk": other.jwk("k"), "jku": "https://x.example"});
    assert_eq!(foreign(own), Err(Bad::UnknownKey));
    // Rules that we do not know must be followed; tokens for something else.
    assert!(signed(json!({"alg": "EdDSA", "kid": "k", "crit": ["exp"]})).is_err());
    for typ in ["dpop+jwt", "logout+jwt", "secevent+jwt", ""] {
        assert!(signed(json!({"alg": "EdDSA", "kid": "k", "typ": typ})).is_err(), "{typ}");
    }
    for text in ["", "a", "a.b", "a.b.c", "a.b.c.d", "..", "a..c", "é.b.c", &"x".repeat(20_000)] {
        assert!(found(text).is_err(), "{text}");
    }
}

#[test]
fn keys_that_cannot_check_are_left_out() {
    crypto::install();
    let ed = Pair::ed();
    let with = |name: &str, value: Value| {
        let mut jwk = ed.jwk("k");
        jwk[name] = value;
        jwk
    };
    let read = |keys: Value| KeySet::read(json!({"keys": keys}).to_string().as_bytes());
    for bad in [
        json!({"kty": "oct", "k": "c2VjcmV0", "kid": "k"}),
        json!({"kty": "new", "kid": "k"}),
        json!({"kid": "k"}),
        json!(1),
        with("use", json!("enc")),
        with("key_ops", json!(["encrypt"])),
        with("alg", json!("ES512")),
        with("alg", json!("RS256")),
        with("x", json!("!")),
    ] {
        let any =
            |set: Result<KeySet, String>| set.unwrap().fitting(jsonwebtoken::Algorithm::EdDSA, None).next().is_some();
        assert!(!any(read(json!([bad]))), "{bad}");
        assert!(any(read(json!([bad, ed.jwk("k")]))), "{bad} takes others with it");
    }
    // All taken back: a set that is there and lets nobody in.
    assert!(KeySet::read(br#"{"keys":[]}"#).is_ok());
    for bad in ["", "[]", "{}", r#"{"keys":{}}"#] {
        assert!(KeySet::read(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(read(Value::Array(vec![ed.jwk("k"); 65])).is_err());
    assert!(read(json!([with("key_ops", json!(["verify"])), with("alg", json!("EdDSA"))])).is_ok());
}

#[test]
fn aut4_claims_are_taken_to_the_letter() {
    let idp = Idp::new();
    for good in [
        json!({}),
        json!({"aud": ["https://other.example", "https://gw.example/mcp"]}),
        json!({"exp": NOW - 29}),
        json!({"exp": NOW as f64 + 0.5}),
        json!({"nbf": NOW + 30}),
        json!({"nbf": 0, "iat": NOW + 10_000}),
        json!({"sub": "auth0|5f7c8ec7c33c6c004bbafe82"}),
        json!({"sub": "spiffe://team.example/ns/a*"}),
        json!({"sub": "x".repeat(255)}),
    ] {
        assert!(idp.check(&good).is_ok(), "{good}");
    }
    for bad in [
        json!({"iss": null}),
        json!({"iss": "https://idp.example/"}),
        json!({"iss": "https://idp.example.evil.example"}),
        json!({"iss": ["https://idp.example"]}),
        json!({"iss": 1}),
        json!({"aud": null}),
        json!({"aud": []}),
        json!({"aud": "https://gw.example/mcp/"}),
        json!({"aud": "https://gw.example/mcp other"}),
        json!({"aud": "https://gw.example"}),
        json!({"aud": ["https://GW.example/mcp"]}),
        json!({"aud": {"a": 1}}),
        json!({"aud": [1, "https://gw.example/mcp"]}),
        json!({"exp": null}),
        json!({"exp": "soon"}),
        json!({"exp": -1}),
        json!({"exp": 1e300}),
        json!({"exp": NOW - 30}),
        json!({"nbf": NOW + 31}),
        json!({"nbf": "x"}),
        json!({"sub": null}),
        json!({"sub": ""}),
        json!({"sub": 1}),
        json!({"sub": "a b"}),
        json!({"sub": "a\nuser:admin"}),
        json!({"sub": "ännchen"}),
        json!({"sub": "x".repeat(256)}),
    ] {
        assert!(idp.check(&bad).is_err(), "{bad}");
    }
    // What one reader sees first another one sees last.
    let twice = |member: &str| good().to_string().replacen('{', &format!("{{{member},"), 1);
    for member in [r#""sub":"eve""#, r#""aud":"x""#, r#""iss":"x""#, r#""exp":1"#, r#""groups":[],"groups":[]"#] {
        assert!(idp.check_raw(&twice(member)).is_err(), "{member}");
    }
    assert!(idp.check_raw("[]").is_err() && idp.check_raw("{").is_err() && idp.check_raw("").is_err());
    let found = idp.check(&json!({})).unwrap();
    assert_eq!(found.until, now() + Duration::from_secs(90), "with what clocks may differ");
}

#[test]
fn groups_and_scopes_are_read_or_the_token_is_refused() {
    let mut idp = Idp::new();
    let groups = |idp: &Idp, changes: Value| {
        idp.check(&changes).ok().map(|found| found.principal.groups().map(str::to_owned).collect::<Vec<_>>().join(","))
    };
    let none = || Some(String::new());
    assert_eq!(groups(&idp, json!({})), none());
    assert_eq!(groups(&idp, json!({"groups": ["dev", "on call"]})), Some("dev,on call".into()));
    assert_eq!(groups(&idp, json!({"groups": "Book club admin"})), Some("Book club admin".into()));
    for bad in [json!(1), json!({}), json!([1]), json!([["dev"]]), json!([null])] {
        assert_eq!(groups(&idp, json!({"groups": bad})), None, "{bad}");
    }
    // Too many to be in the token: a rule that denies one of them must not be missed.
    assert_eq!(groups(&idp, json!({"_claim_names": {"groups": "src1"}})), None);
    assert_eq!(groups(&idp, json!({"_claim_names": {"other": "src1"}, "groups": ["a"]})), Some("a".into()));
    assert_eq!(groups(&idp, json!({"hasgroups": true})), None);
    idp.wanted.groups_claim = "/realm/ro~1les".into();
    assert_eq!(groups(&idp, json!({"_claim_names": {"realm": "src1"}})), None);
    assert_eq!(groups(&idp, json!({"realm": {"ro/les": ["a"]}, "groups": ["b"]})), Some("a".into()));
    assert_eq!(groups(&idp, json!({"realm": {}})), none());
    assert_eq!(groups(&idp, json!({"realm": []})), None);
    let mut scopes = |wanted: &[&str], changes: Value| {
        idp.wanted.scopes = wanted.iter().map(|&scope| scope.to_owned()).collect();
        let found = idp.check(&changes).unwrap();
        (found.suffices, found.principal.scopes().map(str::to_owned).collect::<Vec<_>>().join(","))
    };
    assert_eq!(scopes(&[], json!({"scope": "a b", "scp": ["c"]})), (true, "a,b,c".into()));
    assert_eq!(scopes(&["b"], json!({"scope": "a b"})), (true, "a,b".into()));
    assert_eq!(scopes(&["a", "c"], json!({"scp": "a b"})), (false, "a,b".into()));
    assert_eq!(scopes(&["a"], json!({})), (false, String::new()));
}

#[test]
fn keys_and_tokens_are_told_apart() {
    for good in ["a.b.c", "e30.e30.x"] {
        assert!(is_token(good), "{good}");
    }
    for bad in ["", "QKX3AxgHW9KRhjXB_bIinn0TbZqmn37KylOStCG_O6A", "a.b", "a.b.c.d", ".b.c", "a..c", "a.b."] {
        assert!(!is_token(bad), "{bad}");
    }
}

/// The modulus of the key, and what it signed.
const N: &str = "tTsQU-pqDZq0rRceOTTP6cfoeVXkq5ukTnB5t_IRtXIRtO7DF4U_997aa2td8CXhmNzfdj7cHYvg9oNP567-ZK8ur-\
    CENalSxhXwMWY6cf-\
    LeKo6ADdqYBjsuUMlYsqLaLFhO5cmEEml6hFtdXBOT6H31_P_dvx6zZrLb2OsAyu5pdRMh_sqSUWylAyu5fn0mxaPRXZky6shvh-\
    tuXdw3x1syDveKRD6u0jJG4nXCFVgc_OFRy9qfBAThdZaQN9rTGr_NYIHt1vbsfomCwYXe19D16CabRK-typ-Ab5yVyPYfM-\
    VWLDyIAV8kTex4rZCslZhk3bkRl2WQhCW_0GMhQ";
const SIGNATURES: [(&str, &str); 6] = [
    (
        "RS256",
        "mlJ1Aw16xCZnHQJg7OhEmIEHAOnkcV2ecqMTtd3zf9LYRI-\
     JDgc_qpwVV9ifrKWYsJ0ETIyCeFr_ihQomzDIFkrdNhMN6XbjJpYC6-2EBsF7p6ch1fC8NYSeGICrEJt71yQYjx0GWkTML5N3Zi-\
     oAHkLT623-\
     u6YbCPNN7uQ2IgZrv9Z75KrkKEH15BijJITIJI9L8ng6ud7suNamd9EVUcpc2CqUakXNdvo5qjIQS2cHv76yCcOCW9TCvvAkFcZm\
     ezKbcjFFjB_MZTkAE20ovVf4Li9F79f6gDajgU1L8TzRt9ZWqtYdFW9iDPlpo9xTMHj-PbnnugVchi28yvReQ",
    ),
    (
        "RS384",
        "Jg500gXuVHXMBbhJpFml7kzQE7xFILAecnZnTwoKGZcz1P74_2L2FuOjH6kzcNdNA9FbdYk0lfWt9bi34aFgVKG7EOgayi9Kpf4_\
     XN2lfJ7Smq4Mg21VYQaemIAdErCCk4ISU1BAHb6IEatMfZslctEg8JWr6zPaQ3CKatttOT803J7FUFVPD9YTQppwEPY2AI6kpD7S\
     5Glp0s8sUZmZ2Xhd8Y1Y-yxiL5P_BoH2wpLgEytLkfXSG_cnaao7prPbERemCLHWfUyME_TtVbn6KHMTt_ll-\
     D27eSB0ZwdZ7wv03fJT-ulyao25wiRuLgeT-4n5mxhoUWITTUroWBkR4w",
    ),
    (
        "RS512",
        "Q6jcjakkZV3sKMtrSlS0Odqq-YltczIeVGQzDEjtV77KAuGZ5nKIJR3Dy20fxcOXgna6PpQ02paHQTdvoQRPsnqdB1uy_63XE940\
     cw0UqVIYK8TQDmST-x3yWK75_IFraYI6Wi7lNbvJD-jcERyK5SQUH_cP-\
     eYP9dSQ6YDUacylbGce_E6qHw1jXQid6NsWYzGIzQ02rSuuWVNT6FbfUjwhpGc2eJA-\
     R_tIG2VQjc5lLCyQzRKbY9Tv0-rbt3oVLtiSKnm-\
     oHjEdIl2H_izY9RAILtg5_lVtiGyiEGT6sNE5F07d3f84cvmS9QbEv2KU1Fhdm6wscte3yGLVGwpsA",
    ),
    (
        "PS256",
        "PiA7FhEReb-n6EoHVqqN9MKKcNFkMLo7sI5A9cBCqg64qkH1vQBF4iOxT-DrGiHEmNb-J-_D6_0G_Nk2JzIBHq1baJcONsQ_HhE0\
     Y64TUeYK9SAHMgFwv8MyBus7DtcrXBg7wlvqYvz5D-\
     YWT2AE7U4FODuuWgKlkKG1uz9gq9B_yjXNNe2wou77ApvBH7Yibac0WZw3rzfYVbPudzqAQ-\
     4c4cDL2Rf2MV1NuE6sD0Bk2gLZ5gJC8JoKrzpeQhqWm5ofimLXZT1W3AVUNzIfKvYzIeGsrvqVApyjPHOg_RC6_96QlaaHQHR0Q0\
     _xfABdgUg3BCA1zB-jrW3lGuL-SQ",
    ),
    (
        "PS384",
        "M6FK8HebZKg-CwM-\
     QjS2Lm6Vh_6giW1L4uC13yl6i30MG3BMmb8tm6OyMt26qAkNlYWt3tQpvYHKHED31X7nCD6ziUY1lhyKozugcG9Mkw-qYWmr6kvk\
     mztEGgwJOQ1SZhm8jWuFv3P1lQOrjzgs7Ra2DFxPmvshB145NPlPBVdhDjN6ps4IdA8n0W9yxhbjlvt7VyTpf3gX7GM9AV5peiVW\
     oN8SUbjl3xR6J7dGUavpQbjvu7WuoBjVUowfA8qgm-\
     ErfxXZvKHU5Zf9Qh8t-VfZFTkIeWTXJz4BLkMXduoPYNGPzx0Er-d1gXyM7_m52Iuh0iXLX_BaITP4gISnjQ",
    ),
    (
        "PS512",
        "XSiWqLu0UTE73J5j7Ui3n26j5X2pO80EHuZdn7tMhacKw5f4mTNeSTD-\
     4vi7pFCGqV3mre3mfk8geUFTN92PLtxuj8TIHWYI0Mj3UGpJOBnUbGEvILfBSrps_zwI__--q7EVpRr7wYxJ9p2OeFfYMbUdKYsY\
     Jt9xrHC7ELFZIIUgVrB7LhE4EkpgOfuoSIois2Z_TmE6vL4xqA8G_ZUaSKOyRk77isTeo0zOm6f0mWprk_s3yCscsUYT1H7RBu4J\
     NMjgytfGk3scnt0kkLNoHRivK-0G4GExXBgjyLOM1R5iI3JVtUEBrQBEhAINjYnMAFVXc54szaO53GnlRxSTqg",
    ),
];
