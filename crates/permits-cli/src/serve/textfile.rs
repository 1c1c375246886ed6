//! `--textfile`: the metrics as a file, for the textfile collector of node_exporter.
//!
//! The file is replaced by a rename, so that a reader sees the old or the new metrics and never a part. A
//! link stays, and what it names is replaced. A file that is not regular, such as a device, is refused.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use super::feed::Feed;
use super::metrics::{self, Format};
use crate::args::Serve;
use crate::connect::Target;
use crate::exit::{self, Failure};

/// Reads the store once and replaces the file. If the store cannot be read, the file says so, and the exit
/// code does.
pub(super) async fn write(
    target: Target,
    store_timeout: Duration,
    path: &Path,
    options: &Serve,
) -> Result<u8, Failure> {
    let read = async {
        let store = target.store.clone();
        let client = target.connect(store_timeout).await?;
        Feed::new(client, store, Duration::ZERO, options.under.clone()).read_once().await
    };
    match read.await {
        Ok(snapshot) => {
            replace(path, &metrics::render(&snapshot, options.max_semaphores, Format::Prometheus).concat())?;
            Ok(exit::SUCCESS)
        }
        Err(failure) => {
            if failure.code == exit::UNAVAILABLE {
                replace(path, metrics::render_down().as_bytes())?;
            }
            Err(failure)
        }
    }
}

/// Replaces the file at `path`, or leaves it as it was.
fn replace(path: &Path, text: &[u8]) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::new(exit::SYSTEM, format!("cannot write {}: {error}", path.display()));
    let path = &match fs::symlink_metadata(path) {
        // A link to nothing fails here.
        Ok(_) => fs::canonicalize(path).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(failed(error)),
    };
    if fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return Err(failed(io::Error::other("it is no regular file")));
    }
    let Some(name) = path.file_name() else {
        return Err(Failure::new(exit::USAGE, format!("{} is no path of a file", path.display())));
    };
    // In the same directory, because a rename does not cross file systems. The collector reads `*.prom`
    // alone.
    let mut temporary = name.to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    // What a killed process of the same number has left. A new file follows no link.
    let _ = fs::remove_file(&temporary);
    let written = File::create_new(&temporary).and_then(|mut file| file.write_all(text));
    written.and_then(|()| fs::rename(&temporary, path)).map_err(|error| {
        let _ = fs::remove_file(&temporary);
        failed(error)
    })
}
