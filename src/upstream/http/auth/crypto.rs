//! Signatures of tokens, checked by the same library that TLS uses.
//!
//! Public keys alone: what is signed with a secret that both sides know is never taken, and nothing is ever signed here.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes this the way in which tokens are checked; once is enough.
pub(super) fn install() {
    // An error says that it is already.
    let _ = PROVIDER.install_default();
}

/// How an algorithm is checked.
enum Method {
    Rsa(&'static RsaParameters),
    Other(&'static dyn VerificationAlgorithm),
}

/// Nothing for algorithms that are not taken.
fn method(algorithm: Algorithm) -> Option<Method> {
    Some(match algorithm {
        Algorithm::RS256 => Method::Rsa(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Method::Rsa(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Method::Rsa(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Method::Rsa(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Method::Rsa(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Method::Rsa(&RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Method::Other(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Method::Other(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Method::Other(&ED25519),
        // What both sides know is nobody's proof; and whatever comes later is looked at first.
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 | _ => return None,
    })
}

/// Whether tokens signed so are taken at all.
pub(super) fn is_taken(algorithm: Algorithm) -> bool {
    method(algorithm).is_some()
}

struct Check {
    algorithm: Algorithm,
    method: Method,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let method = method(*algorithm).ok_or(ErrorKind::UnsupportedAlgorithm)?;
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(Check { algorithm: *algorithm, method, key: key.clone() }))
}

impl Verifier<Vec<u8>> for Check {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let done = match (&self.method, self.key.kind()) {
            (Method::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                // Some issuers write a sign byte before the number.
                let number = |bytes: &[u8]| bytes[bytes.iter().take_while(|byte| **byte == 0).count()..].to_vec();
                RsaPublicKeyComponents { n: number(n), e: number(e) }.verify(parameters, message, signature)
            }
            (Method::Other(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(*algorithm, key).verify(message, signature)
            }
            (Method::Rsa(_), DecodingKeyKind::SecretOrDer(_))
            | (Method::Other(_), DecodingKeyKind::RsaModulusExponent { .. }) => Err(ring::error::Unspecified),
        };
        done.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Check {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
