//! The server with real clients: browsers' rules, garbage, floods, slow clients.

use shotline_dashboard::guard::Guard;
use shotline_dashboard::pictures::{Axis, Format, Gallery, Header, Painter, Picture, Studio};
use shotline_dashboard::status::{About, Family, FamilyKind, Phase, PictureInfo, Sample, Status};
use shotline_dashboard::{Action, Options, Server, Subject};
use shotline_testing::wait_until;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tungstenite::client::IntoClientRequest as _;
use tungstenite::{Message, WebSocket};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Bytes of a picture.
const PIXELS: usize = 64 << 10;

/// A command that counts.
struct Counting {
    studio: Studio,
    states: AtomicU64,
    done: Mutex<Vec<Action>>,
    ended: AtomicBool,
}

struct Noise(u8);

impl Painter for Noise {
    fn info(&self) -> PictureInfo {
        PictureInfo { kind: "noise", label: "Noise".into(), about: "Bytes.".into() }
    }
    fn paint(&mut self, _stop: &AtomicBool) -> Option<Picture> {
        self.0 = self.0.wrapping_add(1);
        let header = Header::new("noise", Format::Gray8, 256, 256, Axis::default(), Axis::default());
        Some(Picture { header, payload: vec![self.0; PIXELS] })
    }
}

impl Subject for Counting {
    fn about(&self) -> About {
        let pictures = self.studio.gallery().kinds().to_vec();
        About { program: "test 1".into(), command: "count".into(), pictures, ..About::default() }
    }
    fn status(&self) -> Status {
        let phase = if self.ended.load(Relaxed) { Phase::Ended } else { Phase::Running };
        let value = self.states.fetch_add(1, Relaxed) as f64;
        let family = Family {
            name: "states".into(),
            help: "States".into(),
            kind: FamilyKind::Counter,
            unit: None,
            rate: None,
            is_loss: false,
            samples: vec![Sample { labels: vec![("cause", "a\"b\\c\nd".into())], value }],
        };
        Status { phase, families: vec![family], ..Status::default() }
    }
    fn control(&self, action: &Action) -> Result<String, String> {
        self.done.lock().unwrap().push(action.clone());
        if *action == (Action::Stop {}) { Ok("stopping".into()) } else { Err("no triggers here".into()) }
    }
    fn end(&self) {
        self.ended.store(true, Relaxed);
    }
    fn gallery(&self) -> Arc<Gallery> {
        Arc::clone(self.studio.gallery())
    }
}

fn started() -> (Server, Arc<Counting>) {
    let studio = Studio::open(vec![Box::new(Noise(0))]).unwrap();
    let (states, done, ended) = (AtomicU64::new(0), Mutex::default(), AtomicBool::new(false));
    let subject = Arc::new(Counting { studio, states, done, ended });
    let guard = Guard { names: vec!["lab.example".into()], remote_control: false, token: TOKEN.into() };
    let options = Options { address: ([127, 0, 0, 1], 0).into(), guard };
    (Server::start(options, Arc::clone(&subject) as _).unwrap(), subject)
}

/// Sends bytes and returns the reply until the server closes or says no more.
fn exchange(to: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    // The server may close before it has read everything.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

fn get(to: SocketAddr, path: &str, headers: &str) -> String {
    exchange(to, format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").as_bytes())
}

fn host(to: SocketAddr) -> String {
    format!("Host: {to}\r\n")
}

fn control(to: SocketAddr, headers: &str, body: &str) -> String {
    let request = format!(
        "POST /api/control HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    exchange(to, request.as_bytes())
}

fn connect(to: SocketAddr, origin: Option<&str>) -> Result<WebSocket<TcpStream>, String> {
    let mut request = format!("ws://{to}/ws").into_client_request().unwrap();
    if let Some(origin) = origin {
        request.headers_mut().insert("Origin", origin.parse().unwrap());
    }
    let stream = TcpStream::connect(to).unwrap();
    tungstenite::client(request, stream).map(|(socket, _)| socket).map_err(|error| error.to_string())
}

fn watch(socket: &mut WebSocket<TcpStream>) {
    socket.send(Message::text(r#"{"watch": ["noise", "unknown", "noise"]}"#)).unwrap();
}

/// Reads until a picture comes.
fn next_picture(socket: &mut WebSocket<TcpStream>) -> Vec<u8> {
    loop {
        if let Message::Binary(picture) = socket.read().unwrap() {
            return picture.to_vec();
        }
    }
}

fn sequence(picture: &[u8]) -> u64 {
    let len = u32::from_le_bytes(picture[..4].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&picture[4..4 + len]).unwrap();
    header["sequence"].as_u64().unwrap()
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let (server, _) = started();
    let to = server.address();
    for (path, content_type) in [("/", "text/html"), ("/app.js", "text/javascript"), ("/app.css", "text/css")] {
        let reply = get(to, path, &host(to));
        assert!(reply.starts_with("HTTP/1.1 200"), "{path}: {reply}");
        for header in [content_type, "default-src 'none'", "nosniff", "x-frame-options: DENY"] {
            assert!(reply.contains(header), "{path}: no {header} in {reply}");
        }
    }
    assert!(get(to, "/../../etc/passwd", &host(to)).starts_with("HTTP/1.1 404"));
}

#[test]
fn names_of_other_sites_are_refused_on_every_path() {
    let (server, subject) = started();
    let to = server.address();
    for path in ["/", "/metrics", "/api/status", "/api/about", "/ws", "/unknown"] {
        let reply = get(to, path, "Host: attacker.example\r\n");
        assert!(reply.starts_with("HTTP/1.1 403") && reply.contains("Host header"), "{path}: {reply}");
    }
    let authorization = format!("Host: attacker.example\r\nAuthorization: Bearer {TOKEN}\r\n");
    assert!(control(to, &authorization, r#"{"action": "stop"}"#).starts_with("HTTP/1.1 403"));
    assert!(get(to, "/metrics", "Host: lab.example:80\r\n").starts_with("HTTP/1.1 200"));
    assert!(get(to, "/metrics", "").starts_with("HTTP/1.1 403"), "no name");
    let two = format!("{}Host: attacker.example\r\n", host(to));
    assert!(get(to, "/metrics", &two).starts_with("HTTP/1.1 403"), "two names");
    assert!(subject.done.lock().unwrap().is_empty());
}

#[test]
fn pages_of_other_origins_neither_watch_nor_control() {
    let (server, subject) = started();
    let to = server.address();
    for origin in ["http://attacker.example", "null", "http://localhost:1"] {
        let error = connect(to, Some(origin)).expect_err(origin);
        assert!(error.contains("403"), "{origin}: {error}");
        let headers = format!("{}Origin: {origin}\r\nAuthorization: Bearer {TOKEN}\r\n", host(to));
        assert!(control(to, &headers, r#"{"action": "stop"}"#).starts_with("HTTP/1.1 403"), "{origin}");
    }
    assert!(subject.done.lock().unwrap().is_empty());
    connect(to, Some(&format!("http://{to}"))).unwrap();
}

#[test]
fn a_control_needs_the_token_and_reports_what_was_done() {
    let (server, subject) = started();
    let to = server.address();
    let with = |token: &str, body: &str| control(to, &format!("{}Authorization: Bearer {token}\r\n", host(to)), body);
    let stop = r#"{"action": "stop"}"#;
    assert!(control(to, &host(to), stop).starts_with("HTTP/1.1 401"));
    assert!(with("0123", stop).starts_with("HTTP/1.1 401"));
    assert!(subject.done.lock().unwrap().is_empty());
    for body in ["", "{", "[]", r#"{"action": "format"}"#, r#"{"action": "stop", "now": 1}"#] {
        let reply = with(TOKEN, body);
        assert!(reply.starts_with("HTTP/1.1 400") && reply.contains("expected a control"), "{body}: {reply}");
    }
    assert!(with(TOKEN, &format!("{stop:8000}")).starts_with("HTTP/1.1 413"), "a long body");
    assert!(with(TOKEN, stop).contains(r#"{"done":"stopping"}"#));
    let reply = with(TOKEN, r#"{"action": "trigger"}"#);
    assert!(reply.starts_with("HTTP/1.1 400") && reply.contains("no triggers here"), "{reply}");
    assert_eq!(*subject.done.lock().unwrap(), [Action::Stop {}, Action::Trigger {}]);
}

#[test]
fn metrics_are_escaped_and_end_as_the_format_requires() {
    let (server, _) = started();
    let to = server.address();
    let plain = get(to, "/metrics", &host(to));
    assert!(plain.contains("content-type: text/plain; version=0.0.4") && !plain.contains("# EOF"), "{plain}");
    let reply = get(to, "/metrics", &format!("{}Accept: application/openmetrics-text\r\n", host(to)));
    assert!(reply.contains("openmetrics-text; version=1.0.0"), "{reply}");
    assert!(reply.contains(r#"shotline_states_total{cause="a\"b\\c\nd"} "#), "{reply}");
    assert!(reply.contains("# TYPE shotline_states counter\n") && reply.contains("shotline_running 1"), "{reply}");
    assert!(reply.trim_end().ends_with("# EOF"), "{reply}");
}

#[test]
fn many_requests_read_the_state_a_few_times() {
    let (server, subject) = started();
    let to = server.address();
    let (begin, before) = (Instant::now(), subject.states.load(Relaxed));
    for _ in 0..100 {
        assert!(get(to, "/api/status", &host(to)).starts_with("HTTP/1.1 200"));
        assert!(get(to, "/metrics", &host(to)).starts_with("HTTP/1.1 200"));
    }
    // Ten times a second for all requests, and four times for all pages.
    let max = 2.0 + 14.0 * begin.elapsed().as_secs_f64();
    let read = subject.states.load(Relaxed) - before;
    assert!(read as f64 <= max, "{read} readings, expected up to {max:.0}");
}

#[test]
fn garbage_and_half_requests_do_not_harm_others() {
    let (server, _) = started();
    let to = server.address();
    let mut random = shotline_random::SplitMix64::new(7);
    let half = TcpStream::connect(to).unwrap();
    (&half).write_all(b"GET / HT").unwrap();
    let mut requests: Vec<Vec<u8>> =
        (0..200).map(|_| (0..random.next_u64() % 3000).map(|_| random.next_u64() as u8).collect()).collect();
    requests.push(format!("GET / HTTP/1.1\r\n{}", "X: y\r\n".repeat(100_000)).into_bytes());
    requests.push(format!("GET /{} HTTP/1.1\r\n", "a".repeat(1 << 20)).into_bytes());
    requests.push(b"GET /ws HTTP/1.1\r\nHost: [::1]\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".to_vec());
    for request in &requests {
        exchange(to, request);
    }
    let mut socket = connect(to, None).unwrap();
    // Not a message of this protocol: ignored. A frame that is none: closed.
    socket.send(Message::text("{\"watch\": 7}")).unwrap();
    socket.send(Message::text("\u{0}")).unwrap();
    watch(&mut socket);
    assert!(next_picture(&mut socket).len() > PIXELS);
    socket.get_mut().write_all(&[0xFF; 64]).unwrap();
    assert!(get(to, "/", &host(to)).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_page_that_floods_or_sends_much_is_closed() {
    let (server, _) = started();
    for message in [Message::text("x"), Message::text("x".repeat(1 << 20)), Message::binary(vec![0; 8])] {
        let mut socket = connect(server.address(), None).unwrap();
        let flood = (0..1_000_000).find_map(|_| socket.send(message.clone()).err());
        assert!(flood.is_some() || (0..100).any(|_| socket.read().is_err()), "{:.20}", format!("{message:?}"));
    }
    assert!(get(server.address(), "/", &host(server.address())).starts_with("HTTP/1.1 200"));
}

#[test]
fn two_hundred_slow_pages_do_not_slow_a_fast_one() {
    let (server, subject) = started();
    let mut slow: Vec<_> = (0..200).map(|_| connect(server.address(), None).unwrap()).collect();
    slow.iter_mut().for_each(watch);
    // Once their buffers are full, the server waits for each of them.
    wait_until("many pictures are painted", || subject.gallery().newest(0).is_some_and(|hung| hung.sequence > 40));
    let mut fast = connect(server.address(), None).unwrap();
    watch(&mut fast);
    let first = next_picture(&mut fast);
    let pictures: Vec<_> = (0..20).map(|_| next_picture(&mut fast)).collect();
    assert!(pictures.iter().all(|picture| picture.len() == pictures[0].len()) && pictures[19] != first);
    // A slow page that reads again gets a new picture after those in its buffers.
    let newest = subject.gallery().newest(0).unwrap().sequence;
    let mut late = slow.remove(0);
    while sequence(&next_picture(&mut late)) < newest {}
    assert!(connect(server.address(), None).is_ok(), "there is still a place");
}

#[test]
fn more_pages_than_places_are_refused_and_places_return() {
    let (server, _) = started();
    let pages: Vec<_> = (0..256).map(|_| connect(server.address(), None).unwrap()).collect();
    assert!(connect(server.address(), None).expect_err("all places are taken").contains("503"));
    drop(pages);
    wait_until("a place is free", || connect(server.address(), None).is_ok());
}

#[test]
fn the_last_state_arrives_before_the_connection_closes() {
    let (server, subject) = started();
    let mut socket = connect(server.address(), None).unwrap();
    subject.ended.store(true, Relaxed);
    drop(server);
    let mut last = String::new();
    loop {
        match socket.read() {
            Ok(Message::Text(text)) => last = text.to_string(),
            Ok(Message::Close(frame)) => {
                assert_eq!(frame.unwrap().reason.as_str(), "the command has ended");
                break;
            }
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(last.contains(r#""phase":"ended""#), "{last}");
}

#[test]
fn an_address_in_use_is_an_error_with_a_remedy() {
    let (server, subject) = started();
    let guard = Guard::default();
    let error = Server::start(Options { address: server.address(), guard }, subject as _).unwrap_err().to_string();
    assert!(error.contains("cannot serve the page at 127.0.0.1:") && error.contains("--serve"), "{error}");
}
