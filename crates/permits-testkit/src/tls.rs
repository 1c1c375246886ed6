//! Certificates for servers that speak TLS, made for every test.
//!
//! A private authority signs two certificates: one for servers on this machine and one for clients. The
//! servers read them from files, and so do commands under test; libraries take the text. The repository
//! contains no certificates, so they cannot expire there, and no key is exposed.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

/// The policy on clients' certificates (`tls-auth-clients`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Every client must show a certificate of the authority.
    Required,
    /// A client may come without a certificate; a certificate of another authority is refused.
    Optional,
    /// Clients are not asked.
    Ignored,
}

impl ClientCertificates {
    pub(crate) fn directive(self) -> &'static str {
        match self {
            Self::Required => "yes",
            Self::Optional => "optional",
            Self::Ignored => "no",
        }
    }
}

/// A private authority with a certificate for servers at `localhost` and 127.0.0.1, and one for clients.
///
/// Clones share the files, which go with the last of them.
#[derive(Clone, Debug)]
pub struct Certificates {
    files: Arc<Files>,
}

#[derive(Debug)]
struct Files {
    authority: Pem,
    server: Pem,
    server_key: Pem,
    client: Pem,
    client_key: Pem,
    _dir: TempDir,
}

impl Certificates {
    /// Makes an authority and signs both certificates.
    #[expect(clippy::new_without_default, reason = "no two are equal, and files are written")]
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("permits-tls-")
            .tempdir()
            .expect("a temporary directory can be made");
        let mut params = named("permits test authority", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = CertifiedIssuer::self_signed(params, key()).expect("the parameters are valid");

        let signed = |name: &str, hosts: &[&str], purpose: ExtendedKeyUsagePurpose| {
            let mut params = named(name, hosts);
            params.extended_key_usages = vec![purpose];
            let key = key();
            let certificate = params.signed_by(&key, &authority).expect("the parameters are valid");
            let file = |kind: &str, text: String| Pem::write(dir.path(), &format!("{name}.{kind}"), text);
            (file("pem", certificate.pem()), file("key", key.serialize_pem()))
        };
        let (server, server_key) =
            signed("server", &["localhost", "127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth);
        let (client, client_key) = signed("client", &[], ExtendedKeyUsagePurpose::ClientAuth);
        let authority = Pem::write(dir.path(), "authority.pem", authority.pem());
        let files = Files { authority, server, server_key, client, client_key, _dir: dir };
        Self { files: Arc::new(files) }
    }

    /// A certificate that is its own authority, for servers at these hosts, as `openssl req -x509` makes it.
    /// It is valid until the end of the year `until`.
    pub fn self_signed(hosts: &[&str], until: i32) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("permits-tls-")
            .tempdir()
            .expect("a temporary directory can be made");
        let mut params = named("server", hosts);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(until, 12, 31);
        let key = key();
        let certificate = params.self_signed(&key).expect("the parameters are valid");
        let file = |name: &str| Pem::write(dir.path(), name, certificate.pem());
        let key_file = |name: &str| Pem::write(dir.path(), name, key.serialize_pem());
        let files = Files {
            authority: file("authority.pem"),
            server: file("server.pem"),
            server_key: key_file("server.key"),
            client: file("client.pem"),
            client_key: key_file("client.key"),
            _dir: dir,
        };
        Self { files: Arc::new(files) }
    }

    /// The certificate of the authority, which a client has to trust.
    pub fn authority(&self) -> &Pem {
        &self.files.authority
    }

    /// The certificate of a client.
    pub fn client(&self) -> &Pem {
        &self.files.client
    }

    /// The key of the client's certificate.
    pub fn client_key(&self) -> &Pem {
        &self.files.client_key
    }

    /// Writes other certificates into the files of these ones.
    pub fn replace_by(&self, others: &Self) {
        let (old, new) = (&self.files, &others.files);
        for (old, new) in [
            (&old.authority, &new.authority),
            (&old.server, &new.server),
            (&old.server_key, &new.server_key),
            (&old.client, &new.client),
            (&old.client_key, &new.client_key),
        ] {
            fs::copy(new.path(), old.path()).expect("a directory of our own can be written");
        }
    }

    /// The directives of a server's configuration for its files.
    pub(crate) fn directives(&self) -> [(&'static str, &Path); 3] {
        [
            ("tls-ca-cert-file", self.files.authority.path()),
            ("tls-cert-file", self.files.server.path()),
            ("tls-key-file", self.files.server_key.path()),
        ]
    }
}

/// A certificate or a key, as a file and as its text.
pub struct Pem {
    path: PathBuf,
    text: String,
}

impl Pem {
    fn write(dir: &Path, name: &str, text: String) -> Self {
        let path = dir.join(name);
        fs::write(&path, &text).expect("a directory of our own can be written");
        Self { path, text }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text in PEM.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A key must not be printed with the value that contains it.
        formatter.debug_struct("Pem").field("path", &self.path).finish_non_exhaustive()
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the system has randomness to give")
}

fn named(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("the names are valid");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
