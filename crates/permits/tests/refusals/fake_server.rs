//! A server of another version.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Starts a server that replies `info` to INFO, and OK to every other command.
pub(crate) fn fake_server(info: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // The client may close the connection at any moment.
            thread::spawn(move || answer(&stream, info));
        }
    });
    address
}

fn answer(stream: &TcpStream, info: &str) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = move |start: char| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length: usize = line.trim_end().strip_prefix(start)?.parse().ok()?;
        if start == '*' {
            return Some((length, String::new()));
        }
        let mut text = vec![0; length + 2];
        reader.read_exact(&mut text).ok()?;
        Some((length, String::from_utf8_lossy(&text[..length]).into_owned()))
    };
    loop {
        let (parts, _) = line('*')?;
        let parts: Vec<String> = (0..parts).map(|_| Some(line('$')?.1)).collect::<Option<_>>()?;
        let reply = match parts[0].as_str() {
            "INFO" => format!("${}\r\n{info}\r\n", info.len()),
            _ => "+OK\r\n".to_owned(),
        };
        (&*stream).write_all(reply.as_bytes()).ok()?;
    }
}
