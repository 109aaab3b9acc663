//! Keys, certificates and TLS: version 1.3, Ed25519, by rustls and graviola.

use std::fmt;
use std::fs::{OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use graviola::signing::eddsa::Ed25519SigningKey;
use nix::fcntl::{Flock, FlockArg};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod,
    KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SignatureAlgorithm,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};

use super::{Digest, digest, hex, random, unhex};
use crate::daemon::{Error, state};

/// Name of the authority's key in the state directory.
const AUTHORITY: &str = "authority";
/// What every controller calls itself: its authority says which one it is.
pub(super) const CONTROLLER: &str = "controller.bandmaster";

/// An Ed25519 key.
pub(crate) struct Pair {
    key: Ed25519SigningKey,
    public: [u8; 32],
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair(..)")
    }
}

/// The processor has what the arithmetic needs; asked before any of it.
pub(crate) fn check_processor() -> Result<(), Error> {
    match graviola::util::is_cpu_supported() {
        true => Ok(()),
        false => Err(Error::Missing(
            "error: enrolment needs a processor with AES, AVX2, ADX, BMI2 and PCLMULQDQ (x86-64), or AES, PMULL and SHA-2 \
             (aarch64); write the secrets by hand"
                .to_owned(),
        )),
    }
}

impl Pair {
    pub(crate) fn from_seed(seed: &[u8]) -> Option<Self> {
        let key = Ed25519SigningKey::from_bytes(seed).ok()?;
        let public = key.public_key().as_bytes();
        Some(Self { key, public })
    }

    /// A new one, and its secret.
    pub(crate) fn generate() -> Result<(Self, Digest), Error> {
        check_processor()?;
        let seed = random()?;
        let pair =
            Self::from_seed(&seed).ok_or_else(|| Error::Failed("error: no key can be made".to_owned()))?;
        Ok((pair, Digest(seed)))
    }

    pub(crate) fn public(&self) -> Digest {
        Digest(self.public)
    }

    fn private_der(&self) -> Result<PrivateKeyDer<'static>, Error> {
        let mut room = [0; 128];
        let der = self.key.to_pkcs8_der(&mut room).map_err(|error| failed(&error))?;
        Ok(PrivatePkcs8KeyDer::from(der.to_vec()).into())
    }
}

impl PublicKeyData for Pair {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ED25519
    }
}

impl rcgen::SigningKey for Pair {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(self.key.sign(message).to_vec())
    }
}

/// The public key of somebody else.
struct Public(Digest);

impl PublicKeyData for Public {
    fn der_bytes(&self) -> &[u8] {
        &self.0.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ED25519
    }
}

fn failed(why: &dyn fmt::Debug) -> Error {
    Error::Failed(format!("error: TLS: {why:?}"))
}

/// What signs the certificates of a controller's hosts, and its own.
#[derive(Debug)]
pub(crate) struct Authority {
    pair: Pair,
}

impl Authority {
    /// That in the state directory `folder`, or a new one.
    pub(crate) fn of(folder: &Path) -> Result<Self, Error> {
        check_processor()?;
        let path = folder.join(AUTHORITY);
        let failed = |why: &dyn fmt::Display| Error::Failed(format!("error: {}: {why}", path.display()));
        let mut options = OpenOptions::new();
        let file = state::own(options.read(true).write(true).create(true).truncate(false), &path)
            .map_err(|error| failed(&error))?;
        let mut file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| failed(&errno))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| failed(&error))?;
        if text.is_empty() {
            let seed = random::<32>()?;
            let written = file.write_all((hex(&seed) + "\n").as_bytes()).and_then(|()| file.sync_all());
            let only_own = || file.set_permissions(Permissions::from_mode(0o600));
            if let Err(error) =
                written.and_then(|()| only_own()).and_then(|()| state::own_as_folder(&file, &path))
            {
                let _ = file.set_len(0);
                return Err(failed(&error));
            }
            text = hex(&seed);
        }
        let seed = unhex(text.trim()).filter(|seed| seed.len() == 32);
        let pair = seed.and_then(|seed| Pair::from_seed(&seed)).ok_or_else(|| {
            failed(&"is no key of an authority; take it away, and hosts enrol and renew with a new one")
        })?;
        Ok(Self { pair })
    }

    /// By which hosts know it.
    pub(crate) fn public(&self) -> Digest {
        self.pair.public()
    }

    fn params(&self) -> CertificateParams {
        let mut params = named("bandmaster controller");
        params.serial_number = Some(SerialNumber::from_slice(&[1]));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.key_identifier_method = KeyIdMethod::PreSpecified(digest(&self.pair.public).0[..20].to_vec());
        params
    }

    fn certificate(&self) -> Result<CertificateDer<'static>, Error> {
        let whole = self.params().self_signed(&self.pair).map_err(|error| failed(&error))?;
        Ok(whole.der().clone())
    }

    fn sign(&self, params: &CertificateParams, key: Digest) -> Result<CertificateDer<'static>, Error> {
        let issuer = Issuer::new(self.params(), &self.pair);
        let signed = params.signed_by(&Public(key), &issuer).map_err(|error| failed(&error))?;
        Ok(signed.der().clone())
    }

    /// The certificate of host `name` with this public key, valid until that second of the day's clock.
    pub(crate) fn certify(
        &self,
        name: &str,
        key: Digest,
        until: u32,
    ) -> Result<CertificateDer<'static>, Error> {
        let mut params = named(name);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(until.into());
        params.serial_number = Some(SerialNumber::from_slice(&random::<16>()?));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params, key)
    }

    /// What the controller's end of a connection needs. Its key is in no file.
    pub(crate) fn server(&self) -> Result<ServerConfig, Error> {
        let (pair, _) = Pair::generate()?;
        let mut params = named(CONTROLLER);
        params.serial_number = Some(SerialNumber::from_slice(&random::<16>()?));
        params.subject_alt_names =
            vec![SanType::DnsName(CONTROLLER.try_into().map_err(|error: rcgen::Error| failed(&error))?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let own = self.sign(&params, pair.public())?;
        let authority = self.certificate()?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(|error| failed(&error))?;
        // Who has no certificate yet may ask for one, and for nothing else.
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider())
            .allow_unauthenticated()
            .build()
            .map_err(|error| failed(&error))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| failed(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![own, authority], pair.private_der()?)
            .map_err(|error| failed(&error))?;
        // Each connection shows its certificate.
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

/// Valid always: clocks of hosts may be wrong.
fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls_graviola::default_provider())
}

/// The public key in a certificate; none: it is of another kind.
pub(super) fn public_key(certificate: &CertificateDer<'_>) -> Option<Digest> {
    /// The head of a `SubjectPublicKeyInfo` of Ed25519 (RFC 8410, Sect. 4).
    const HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    let info = ParsedCertificate::try_from(certificate).ok()?.subject_public_key_info();
    info.strip_prefix(&HEAD)?.try_into().ok().map(Digest)
}

/// What a host's end of a connection needs to know the controller with this authority; `shows` are its certificate and key.
pub(super) fn client(
    authority: Digest,
    shows: Option<(CertificateDer<'static>, &Pair)>,
) -> Result<ClientConfig, Error> {
    check_processor()?;
    let verifier = Arc::new(Pinned { authority, provider: provider() });
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| failed(&error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    match shows {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, pair)) => builder
            .with_client_auth_cert(vec![certificate], pair.private_der()?)
            .map_err(|error| failed(&error)),
    }
}

/// Takes the controller whose certificate an authority with a known key has signed.
#[derive(Debug)]
struct Pinned {
    authority: Digest,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let authority = others.iter().find(|one| public_key(one) == Some(self.authority));
        let authority = authority.ok_or(CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(&self.provider))
            .build()
            .map_err(|_| CertificateError::UnknownIssuer)?;
        verifier.verify_server_cert(own, &[], name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
