//! The options of `permits serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::value;
use crate::help;

#[derive(Debug, clap::Args)]
#[command(after_help = help::SERVE)]
pub(crate) struct Serve {
    /// The IP address and port to listen on; port 0 takes a free one. An address other than a loopback
    /// address needs --token-file
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9710", value_parser = listen_address)]
    pub(crate) listen: SocketAddr,

    /// A host name under which browsers and programs reach this server, besides its address and localhost.
    /// May be given several times
    #[arg(long = "host", value_name = "NAME", value_parser = host)]
    pub(crate) hosts: Vec<String>,

    /// A file with a token of at least 16 bytes, which every request for data has to show
    #[arg(long, value_name = "PATH")]
    pub(crate) token_file: Option<PathBuf>,

    /// Allow requests that set limits, pause, resume, close, open, revoke and delete. Needs --token-file
    #[arg(long)]
    pub(crate) allow_write: bool,

    /// Give permits to programs that show a token of --acquire-tokens: POST /v1/acquire, renew and release
    #[arg(long)]
    pub(crate) acquire: bool,

    /// A file with a token a line, and behind it the prefixes of the names that it may use, any if there is
    /// none. It is read again when it changes
    #[arg(long, value_name = "PATH", requires = "acquire")]
    pub(crate) acquire_tokens: Option<PathBuf>,

    /// Give permits only of names that begin with PREFIX, whatever the token. May be given several times
    #[arg(long, value_name = "PREFIX", requires = "acquire", value_parser = value::name)]
    pub(crate) allow: Vec<String>,

    /// The shortest time between two reads of the store, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", allow_negative_numbers = true, value_parser = value::interval)]
    pub(crate) interval: Duration,

    /// The most semaphores in the metrics: those that need a look come first
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) max_semaphores: usize,

    /// Before all others, keep metrics and history of the semaphores whose names begin with PREFIX. May be
    /// given several times
    #[arg(long, value_name = "PREFIX")]
    pub(crate) under: Vec<String>,
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "write an IP address and a port, such as 127.0.0.1:9710 or [::1]:9710".to_owned())
}

fn host(text: &str) -> Result<String, String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.is_empty() || !text.bytes().all(is_part) {
        return Err("write a host name without scheme and port, such as permits.example.org".to_owned());
    }
    Ok(text.to_ascii_lowercase())
}
