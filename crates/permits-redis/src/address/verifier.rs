//! The check of a server's certificate: by the authorities in `tls_ca`, or because it is one of them.
//!
//! `openssl req -x509`, which many people call to make a certificate for one server, makes an authority's
//! certificate. The rules of the web refuse that as a server's, and OpenSSL, Go and Node accept it if the
//! client names that very certificate. So does this verifier. It still checks the host's name and the time.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The name of the fault of an authority's certificate that a server shows. The library finds it after it has
/// checked the time, and before the name.
pub(crate) const IS_AUTHORITY: &str = "CaUsedAsEndEntity";

/// The verifier for the authorities that a URL names.
#[derive(Debug)]
pub(super) struct Named {
    authorities: Vec<CertificateDer<'static>>,
    by_authority: Arc<WebPkiServerVerifier>,
}

impl Named {
    pub(super) fn new(
        authorities: Vec<CertificateDer<'static>>,
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Option<Self> {
        let by_authority =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
        Some(Self { authorities, by_authority })
    }
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.by_authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match &verified {
            Err(Error::InvalidCertificate(CertificateError::Other(fault)))
                if fault.to_string() == IS_AUTHORITY && self.authorities.contains(end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            _ => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}
