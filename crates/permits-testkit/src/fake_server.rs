//! A fake server that sends valid replies, and garbage on request: enough of Redis for a session to acquire,
//! renew and release, of a cluster with one node, and of a sentinel that names itself.
//!
//! A real server sends no garbage, reports no other version than its own, and grants by the model. Where a
//! test needs one of these, it takes this server; all other tests take a real one.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The reply to INFO, apart from the mode.
const INFO: &str = "redis_version:7.0.15\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n";

/// Bytes to send once, instead of the reply to a command.
#[derive(Debug, Clone)]
pub struct Garbage {
    /// The command.
    pub to: &'static str,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// True if the connection ends after them.
    pub ends: bool,
}

/// A running server. Its connections end with it.
#[derive(Debug)]
pub struct FakeServer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    /// The reply to INFO.
    info: String,
    garbage: Mutex<Vec<Garbage>>,
    /// Sent every time, in reply to a script on the semaphore of this name.
    always: Mutex<Option<(&'static str, Vec<u8>)>>,
    garbage_sent: Mutex<usize>,
    /// True if replies to scripts have no end, and the number of bytes of such replies.
    without_end: AtomicBool,
    sent: AtomicUsize,
    connections: Mutex<Option<Vec<TcpStream>>>,
}

impl FakeServer {
    /// Starts a standalone server.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with_info(&format!("redis_mode:standalone\r\n{INFO}"))
    }

    /// Starts the only node of a cluster.
    #[track_caller]
    pub fn start_in_cluster() -> Self {
        Self::start_with_info(&format!("redis_mode:cluster\r\n{INFO}"))
    }

    /// Starts a server with this reply to INFO.
    #[track_caller]
    pub fn start_with_info(info: &str) -> Self {
        let info = info.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let shared = Arc::new(Shared {
            address: listener.local_addr().expect("it has one"),
            info,
            garbage: Mutex::default(),
            always: Mutex::default(),
            garbage_sent: Mutex::default(),
            without_end: AtomicBool::new(false),
            sent: AtomicUsize::new(0),
            connections: Mutex::new(Some(Vec::new())),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let Ok(other) = stream.try_clone() else { return };
                match &mut *lock(&accepting.connections) {
                    Some(connections) => connections.push(other),
                    None => return,
                }
                let serving = accepting.clone();
                thread::spawn(move || serving.serve(&stream));
            }
        });
        Self { shared }
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Sends this garbage the next time.
    pub fn send(&self, garbage: Garbage) {
        lock(&self.shared.garbage).push(garbage);
    }

    /// Sends these bytes in reply to every script on this semaphore.
    pub fn send_always(&self, semaphore: &'static str, bytes: Vec<u8>) {
        *lock(&self.shared.always) = Some((semaphore, bytes));
    }

    /// Replies to scripts with text that does not end, some 100 MB a second, while `on`.
    pub fn send_without_end(&self, on: bool) {
        self.shared.without_end.store(on, Ordering::Relaxed);
    }

    /// The number of bytes of such replies that were sent.
    pub fn sent(&self) -> usize {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        lock(&self.shared.connections).as_ref().map_or(0, Vec::len)
    }

    /// Sends valid replies from now on. Returns the number of times that it sent garbage.
    pub fn behave(&self) -> usize {
        *lock(&self.shared.always) = None;
        lock(&self.shared.garbage).clear();
        *lock(&self.shared.garbage_sent)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        for connection in lock(&self.shared.connections).take().into_iter().flatten() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        // Wakes the thread, which then ends.
        let _ = TcpStream::connect(self.shared.address);
    }
}

impl Shared {
    fn serve(&self, mut stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(command) = read_command(&mut reader) {
            let mut verb = command[0].to_ascii_uppercase();
            // A script call without keys is a check while a client connects, and no operation.
            if verb == "EVALSHA" && command.get(2).is_some_and(|keys| keys == "0") {
                verb = "EVAL".to_owned();
            }
            let garbage = {
                let mut all = lock(&self.garbage);
                let at = all.iter().position(|garbage| garbage.to == verb);
                at.map(|at| all.remove(at))
            };
            if verb == "EVALSHA" && self.without_end.load(Ordering::Relaxed) {
                let _ = self.write_without_end(stream);
                break;
            }
            let key = command.get(3).filter(|_| verb == "EVALSHA");
            let about = |name: &str| key.is_some_and(|key| key.contains(&format!("{{{name}}}")));
            let always = lock(&self.always).clone().filter(|(name, _)| about(name));
            let always = always.map(|(_, bytes)| Garbage { to: "EVALSHA", bytes, ends: false });
            let (bytes, ends) = match garbage.or(always) {
                Some(garbage) => {
                    *lock(&self.garbage_sent) += 1;
                    (garbage.bytes, garbage.ends)
                }
                None => (self.answer(&verb, &command[1..]).into_bytes(), false),
            };
            if stream.write_all(&bytes).is_err() || ends {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
    }

    /// Ends when the client closes the connection, or when it is switched off.
    fn write_without_end(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        let chunk = vec![b'x'; 1 << 20];
        stream.write_all(b"$17179869184\r\n")?;
        while self.without_end.load(Ordering::Relaxed) {
            stream.write_all(&chunk)?;
            self.sent.fetch_add(chunk.len(), Ordering::Relaxed);
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn answer(&self, verb: &str, arguments: &[String]) -> String {
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        match verb {
            "HELLO" => "%1\r\n+proto\r\n:3\r\n".into(),
            "PING" => "+PONG\r\n".into(),
            "INFO" => bulk(&self.info),
            "SUBSCRIBE" | "SSUBSCRIBE" | "UNSUBSCRIBE" | "SUNSUBSCRIBE" => {
                format!(">3\r\n{}{}:1\r\n", bulk(&verb.to_ascii_lowercase()), bulk(&arguments[0]))
            }
            "CLUSTER" => format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n{}:{port}\r\n", bulk(&host)),
            "SENTINEL" => {
                let fields = ["ip", &host, "port", &port.to_string(), "config-epoch", "1"].map(bulk);
                format!("*6\r\n{}", fields.concat())
            }
            "EVAL" | "EVALSHA" if arguments[1] == "0" => "*0\r\n".into(),
            // Behind the script, the number of keys, the keys, and what each command has.
            "EVAL" | "EVALSHA" => {
                let keys: usize = arguments[1].parse().expect("the client says how many");
                execute(&arguments[2 + keys + 7..])
            }
            _ => "+OK\r\n".into(),
        }
    }
}

/// The reply to an operation, which is recognised by its arguments: all is granted, held, and released.
fn execute(arguments: &[String]) -> String {
    let answers: Vec<String> = match arguments {
        [most, waits, rest @ ..] if most.parse::<u32>().is_ok() && 2 * waits.len() == rest.len() => {
            vec![format!("{}:7\r\n:0\r\n", bulk("granted")); rest.len() / 2]
        }
        // Behind each holder an entry, which begins with 0 or 1.
        [_, entry, ..] if entry.starts_with(['\0', '\u{1}']) => {
            vec![format!("{}:0\r\n:0\r\n", bulk("held")); arguments.len() / 2]
        }
        all => vec![bulk("held"); all.len() / 2],
    };
    let parts: usize = answers.iter().map(|answer| if answer.contains(':') { 3 } else { 1 }).sum();
    format!("*{}\r\n:5\r\n:1\r\n:-1\r\n:3\r\n:1\r\n:0\r\n:0\r\n:0\r\n{}", 8 + parts, answers.concat())
}

/// A bulk string.
pub fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn read_command(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let number = |reader: &mut dyn BufRead| -> Option<usize> {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.get(1..)?.trim_end().parse().ok()
    };
    let count = number(reader)?;
    let mut command = Vec::new();
    for _ in 0..count {
        let length = number(reader)?;
        let mut bytes = vec![0; length + 2];
        reader.read_exact(&mut bytes).ok()?;
        bytes.truncate(length);
        command.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    (!command.is_empty()).then_some(command)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
