//! The TLS settings of a URL: the authorities to trust, and the client's certificate.

use permits_store::StoreError;
use permits_store::options::Options;

/// The TLS settings of a server.
#[derive(Clone)]
pub(crate) struct Tls {
    #[cfg(feature = "tls")]
    files: Files,
    #[cfg(feature = "tls")]
    config: Result<std::sync::Arc<rustls::ClientConfig>, StoreError>,
}

/// The paths of certificates in PEM form: `tls_ca`, `tls_cert` and `tls_key`.
#[cfg(feature = "tls")]
#[derive(Clone, PartialEq, Default)]
struct Files {
    authorities: Option<String>,
    own: Option<String>,
    key: Option<String>,
}

/// The parameters of a TLS handshake with one host.
#[cfg(feature = "tls")]
pub(crate) struct Secured {
    pub(crate) config: std::sync::Arc<rustls::ClientConfig>,
    pub(crate) name: rustls::pki_types::ServerName<'static>,
}

/// Does not exist without TLS.
#[cfg(not(feature = "tls"))]
pub(crate) enum Secured {}

#[cfg(not(feature = "tls"))]
impl Tls {
    pub(super) fn new(_: &Options) -> Result<Self, String> {
        Err("TLS needs the feature `tls` of the crate".into())
    }

    pub(super) fn has_files(&self) -> bool {
        false
    }

    pub(super) fn with(&self, _: &str) -> Result<Secured, StoreError> {
        Err(StoreError::Unsupported { reason: "TLS needs the feature `tls` of the crate".into() })
    }
}

#[cfg(feature = "tls")]
impl Tls {
    /// Reads the certificates that the URL names.
    pub(super) fn new(options: &Options) -> Result<Self, String> {
        let path = |name| options.value(name).map(str::to_owned);
        let files = Files { authorities: path("tls_ca"), own: path("tls_cert"), key: path("tls_key") };
        Ok(Self { config: files.read()?, files })
    }

    /// Returns true if the URL names files, which may be replaced.
    pub(super) fn has_files(&self) -> bool {
        self.files != Files::default()
    }

    /// The parameters of a handshake with `host`. Files are read again, since certificates are replaced
    /// before they expire.
    pub(super) fn with(&self, host: &str) -> Result<Secured, StoreError> {
        let name = rustls::pki_types::ServerName::try_from(host.to_owned()).map_err(|_| {
            let reason = "no certificate can have the host's name: name the host, or its address in full";
            StoreError::Mismatch { reason: reason.into() }
        })?;
        let config = if self.has_files() {
            self.files.read().map_err(|reason| StoreError::Tls { reason })?
        } else {
            self.config.clone()
        };
        Ok(Secured { config: config?, name })
    }
}

#[cfg(feature = "tls")]
impl Files {
    /// The configuration with these certificates. The inner error is one of the system.
    fn read(&self) -> Result<Result<std::sync::Arc<rustls::ClientConfig>, StoreError>, String> {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};

        let read = |name: &str, path: &Option<String>| {
            let Some(path) = path else { return Ok(None) };
            let bytes = std::fs::read(path).map_err(|error| format!("{name}: {path}: {error}"))?;
            Ok::<_, String>(Some((bytes, format!("{name}: {path}"))))
        };
        let certificates = |name: &str, path: &Option<String>| {
            let Some((bytes, file)) = read(name, path)? else { return Ok(None) };
            let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
            match all {
                Ok(all) if !all.is_empty() => Ok(Some(all)),
                _ if holds(&bytes, "BEGIN TRUSTED CERTIFICATE") => Err(format!(
                    "{file} holds a certificate in OpenSSL's own form: write it with openssl x509 -in FILE -out FILE"
                )),
                _ => Err(format!("{file} holds no certificate in PEM form")),
            }
        };
        let authorities = certificates("tls_ca", &self.authorities)?;
        let client = certificates("tls_cert", &self.own)?;
        let key = match read("tls_key", &self.key)? {
            Some((bytes, file)) => Some(PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
                if holds(&bytes, "ENCRYPTED") {
                    return format!(
                        "{file} holds a private key with a passphrase: write it without one, with openssl pkey \
                         -in FILE -out FILE"
                    );
                }
                format!("{file} holds no private key in PEM form")
            })?),
            None => None,
        };
        let own = match (client, key) {
            (Some(client), Some(key)) => Some((client, key)),
            (None, None) => None,
            _ => return Err("tls_cert and tls_key belong together".into()),
        };
        let mut trusted = rustls::RootCertStore::empty();
        for authority in authorities.iter().flatten() {
            let damaged = |_| "a certificate in tls_ca is damaged".to_owned();
            trusted.add(authority.clone()).map_err(damaged)?;
        }
        if authorities.is_none() {
            trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Ok(config(trusted, authorities, own))
    }
}

/// Returns true if the bytes of a file contain a text.
#[cfg(feature = "tls")]
fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The faults of the variables that replace the system's certificates: `SSL_CERT_FILE` and `SSL_CERT_DIR`,
/// which rustls reads as OpenSSL does. `None` without a fault.
#[cfg(feature = "tls")]
pub(crate) fn faults_of_variables() -> Option<String> {
    use std::path::Path;

    use rustls_native_certs::load_certs_from_paths;

    let fault = |name: &str, path: &Path, read: std::io::Result<()>, (file, directory)| {
        if path.as_os_str().is_empty() {
            return Some(format!("{name} is empty"));
        }
        match read {
            Err(error) => Some(format!("{name}: {}: {error}", path.display())),
            Ok(()) if load_certs_from_paths(file, directory).certs.is_empty() => {
                Some(format!("{name}: {} holds no certificate in PEM form", path.display()))
            }
            Ok(()) => None,
        }
    };
    let file = std::env::var_os("SSL_CERT_FILE");
    let file = file.iter().map(Path::new);
    let directories = std::env::var_os("SSL_CERT_DIR").unwrap_or_default();
    let directories: Vec<_> =
        std::env::split_paths(&directories).filter(|it| !it.as_os_str().is_empty()).collect();
    let of_file =
        file.filter_map(|it| fault("SSL_CERT_FILE", it, std::fs::read(it).map(drop), (Some(it), None)));
    let of_directories = directories
        .iter()
        .filter_map(|it| fault("SSL_CERT_DIR", it, std::fs::read_dir(it).map(drop), (None, Some(it))));
    let faults: Vec<String> = of_file.chain(of_directories).collect();
    (!faults.is_empty())
        .then(|| format!("{}; this variable replaces the system's certificates", faults.join("; ")))
}

/// A configuration with this crate's provider of cryptography, or with the provider that the program has
/// installed. `authorities` are the certificates that the URL names.
#[cfg(feature = "tls")]
fn config(
    trusted: rustls::RootCertStore,
    authorities: Option<Vec<rustls::pki_types::CertificateDer<'static>>>,
    own: Option<(Vec<rustls::pki_types::CertificateDer<'static>>, rustls::pki_types::PrivateKeyDer<'static>)>,
) -> Result<std::sync::Arc<rustls::ClientConfig>, StoreError> {
    use std::sync::Arc;

    let failed = |reason: &str| StoreError::Tls { reason: reason.into() };
    if trusted.is_empty() {
        let faults = faults_of_variables();
        let faults = faults.as_deref().unwrap_or("the system's certificates cannot be read");
        return Err(failed(&format!("{faults}: name an authority with ?tls_ca=/path/ca.pem")));
    }
    let provider = rustls::crypto::CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|_| failed("the program's provider of cryptography supports neither TLS 1.2 nor 1.3"))?;
    let builder = match authorities {
        Some(authorities) => {
            let named = super::verifier::Named::new(authorities, trusted, provider);
            let named = named.ok_or_else(|| failed("the certificates in tls_ca cannot be used"))?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(named))
        }
        None => builder.with_root_certificates(trusted),
    };
    let config = match own {
        Some((client, key)) => builder.with_client_auth_cert(client, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => failed("tls_cert and tls_key do not belong together"),
            other => failed(&format!("tls_cert or tls_key cannot be used: {other}")),
        })?,
        None => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}
