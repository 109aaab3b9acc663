//! How a host joins a controller: with a one-time token, a certificate, and a key that is renewed.
//!
//! The controller's authority (an Ed25519 key in its state directory) signs the controller's own certificate and those of hosts.
//! A token contains the authority's public key, so a host can verify the controller. A host generates its own keys. The
//! [ledger](ledger) lists the public keys of valid certificates: one that the authority signed but the ledger lacks is refused.

pub(crate) mod client;
pub(crate) mod ledger;
pub(crate) mod server;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

use std::fmt;
use std::str::FromStr;

pub(crate) use bandmaster_core::hex::{hex, unhex};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::daemon::Error;

/// How long a certificate is valid, in seconds.
pub(crate) const VALID: u32 = 90 * 24 * 3600;
/// A host renews when so much of that is left.
pub(crate) const RENEWS: u32 = 60 * 24 * 3600;
/// Where a host asks for its first certificate, and for the next.
const ENROLL: &str = "/enroll";
const RENEW: &str = "/renew";
/// In an agent's file, what the host or its operator puts the controller's address in the place of.
pub(crate) const ADDRESS: &str = "ADDRESS OF THE CONTROLLER";

/// What a host asks for first.
#[derive(Serialize, Deserialize)]
pub(crate) struct Asks {
    /// The host's number.
    number: u32,
    /// The token's secret.
    token: String,
    /// The public key of its certificates.
    key: Digest,
    /// What it wants to share with the controller.
    secret: Digest,
}

/// What a host asks for later; who it is its certificate says.
#[derive(Serialize, Deserialize)]
pub(crate) struct Renews {
    /// What it wants to share with the controller.
    secret: Digest,
}

/// The controller's answer to a host that enrols.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    /// Its number.
    number: u32,
    /// Its name.
    name: String,
    /// Its certificate.
    certificate: String,
    /// The second of the day's clock when that expires.
    until: u32,
    /// The file of its agent, but for the controller's address.
    agent: String,
}

/// 32 bytes, in files and messages as hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Digest(pub(crate) [u8; 32]);

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        hex(&digest.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = unhex(&text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("no 64 hexadecimal digits")
    }
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// Compares in a time that does not depend on where they differ.
pub(crate) fn is_same(one: &Digest, other: &Digest) -> bool {
    let differ = one.0.iter().zip(&other.0).fold(0, |differ, (one, other)| differ | (one ^ other));
    std::hint::black_box(differ) == 0
}

/// Random bytes of the kernel.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    use std::io::Read;
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|error| Error::Failed(format!("error: /dev/urandom: {error}")))?;
    Ok(bytes)
}

/// What an operator carries from the controller to a host.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The host's number.
    pub number: u32,
    secret: [u8; Self::SECRET],
    /// The public key of the controller's authority.
    authority: Digest,
}

impl Token {
    const PREFIX: &str = "bm1-";
    const SECRET: usize = 16;
    const CHECK: usize = 4;

    pub(crate) fn new(number: u32, authority: Digest) -> Result<Self, Error> {
        Ok(Self { number, secret: random()?, authority })
    }

    /// What of it a ledger has.
    pub(crate) fn digest(&self) -> Digest {
        digest(&self.secret)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.number)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.number.to_be_bytes().to_vec();
        bytes.extend(self.secret);
        bytes.extend(self.authority.0);
        let check = digest(&bytes).0;
        bytes.extend(&check[..Self::CHECK]);
        write!(f, "{}{}", Self::PREFIX, hex(&bytes))
    }
}

impl FromStr for Token {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const LENGTH: usize = 4 + Token::SECRET + 32;
        let digits =
            text.strip_prefix(Self::PREFIX).ok_or("it is no token of `bandmaster controller enroll`")?;
        let wrong = "the token is cut off or mistyped";
        let bytes = unhex(digits).filter(|bytes| bytes.len() == LENGTH + Self::CHECK).ok_or(wrong)?;
        let (told, check) = bytes.split_at(LENGTH);
        if digest(told).0[..Self::CHECK] != *check {
            return Err(wrong);
        }
        let (number, rest) = told.split_first_chunk().ok_or(wrong)?;
        let (secret, authority) = rest.split_first_chunk().ok_or(wrong)?;
        let authority = Digest(authority.try_into().map_err(|_| wrong)?);
        Ok(Self { number: u32::from_be_bytes(*number), secret: *secret, authority })
    }
}
