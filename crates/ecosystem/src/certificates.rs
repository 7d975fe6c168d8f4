//! Certificates of an authority of one's own, for trying things out. A real server reads its certificate and key from files.
//!
//! Owns: nothing.
#![expect(
    clippy::large_stack_frames,
    reason = "certificates and keys are handed around by value; once in a program"
)]

use std::error::Error;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A server's configuration with a certificate for `localhost`, and a client's that trusts its authority.
///
/// # Errors
///
/// What kept the certificates from being made.
pub fn self_made() -> Result<(ServerConfig, ClientConfig), Box<dyn Error>> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    let mut roots = RootCertStore::empty();
    roots.add(authority.self_signed(&authority_key)?.der().clone())?;
    let authority = Issuer::new(authority, authority_key);

    let key = KeyPair::generate()?;
    let certificate =
        CertificateParams::new(["localhost".to_owned()])?.signed_by(&key, &authority)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())?;
    let client = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((server, client))
}
