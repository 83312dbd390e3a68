//! The HTTP server, in a thread of its own.

use crate::assets::{ASSETS, Asset};
use crate::guard::{Guard, Refusal};
use crate::socket::{self, Feed};
use crate::status::Status;
use crate::{Action, Subject, metrics};
use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN, VARY};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, http};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use shotline_acquire::cpu;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};
use tower::ServiceExt as _;

/// Maximum number of connections; further ones are closed at once.
const MAX_CONNECTIONS: usize = 512;
/// Maximum time in which a client sends the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time of a connection that is no WebSocket, so that clients which stall return their places. Others connect again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum length of a control's body in bytes.
const MAX_BODY: usize = 4096;
/// Send buffer of a connection in bytes: a few pictures.
const SEND_BUFFER: usize = 256 << 10;
/// Time that clients have to receive the last state.
const FAREWELL: Duration = Duration::from_millis(300);
/// The server yields to the threads of the run.
const NICENESS: i32 = 10;

/// Headers of every response: the page loads nothing from elsewhere, and no other page embeds it.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        http::header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (http::header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (http::header::X_FRAME_OPTIONS, "DENY"),
    (http::header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on.
    pub address: SocketAddr,
    /// Rules for requests.
    pub guard: Guard,
}

/// Reason why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be used.
    #[error("cannot serve the page at {address}: {source}; choose another address with --serve")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Reason.
        source: io::Error,
    },
    /// The thread cannot be started.
    #[error("cannot start the thread of the page: {0}")]
    Thread(io::Error),
}

/// A running server. Dropped, it sends its clients the last state and ends.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to serve.
    ///
    /// # Errors
    /// If the address cannot be used, or the thread cannot be started.
    pub fn start(options: Options, subject: Arc<dyn Subject>) -> Result<Self, ServerError> {
        let address = options.address;
        let failed = |source| ServerError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        // Accepted connections inherit it. Without a limit the kernel buffers megabytes for each slow client.
        rustix::net::sockopt::set_socket_send_buffer_size(&listener, SEND_BUFFER)
            .map_err(|error| failed(error.into()))?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServerError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            // The command may run on a processor of its own.
            cpu::unpin();
            // Without it the page is served as well.
            let _ = rustix::process::nice(NICENESS);
            runtime.block_on(serve(listener, options.guard, subject, stopped));
        };
        let thread = std::thread::Builder::new().name("page".into()).spawn(serve).map_err(ServerError::Thread)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The page is not the run: its panic must not fail it.
            let _ = thread.join();
        }
    }
}

/// Time for which requests get the same state: however many clients there are, it is read ten times a second.
const STATE_LIFETIME: Duration = Duration::from_millis(100);

/// The state of a subject for requests.
struct States {
    subject: Arc<dyn Subject>,
    newest: Mutex<Option<Newest>>,
}

/// A state, when it was read, and of what it is ([`Subject::generation`]).
struct Newest {
    at: Instant,
    generation: u64,
    status: Arc<Status>,
}

impl States {
    /// Returns the state, which is at most [`STATE_LIFETIME`] old.
    fn get(&self) -> Arc<Status> {
        // The state stays valid if a thread panics while it holds the lock.
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.subject.generation();
        let is_new = |newest: &&Newest| newest.generation == generation && newest.at.elapsed() < STATE_LIFETIME;
        if let Some(newest) = newest.as_ref().filter(is_new) {
            return Arc::clone(&newest.status);
        }
        let status = Arc::new(self.subject.status());
        *newest = Some(Newest { at: Instant::now(), generation, status: Arc::clone(&status) });
        status
    }
}

/// What handlers share.
#[derive(Clone)]
struct Shared {
    subject: Arc<dyn Subject>,
    states: Arc<States>,
    guard: Arc<Guard>,
    feed: Arc<Feed>,
}

/// Address of a client.
#[derive(Clone, Copy)]
struct Peer(IpAddr);

async fn serve(listener: TcpListener, guard: Guard, subject: Arc<dyn Subject>, mut stopped: oneshot::Receiver<()>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let feed = Feed::start(Arc::clone(&subject));
    let states = Arc::new(States { subject: Arc::clone(&subject), newest: Mutex::default() });
    let router = router(Shared { subject, states, guard: Arc::new(guard), feed: Arc::clone(&feed) });
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => break,
        };
        let Ok((stream, peer)) = accepted else {
            // Out of descriptors, most likely: wait until some are closed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let _ = stream.set_nodelay(true);
        let router = router.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(Peer(peer.ip()));
                router.clone().oneshot(request)
            });
            let connection = http1::Builder::new()
                // A client that sends no more still gets its reply.
                .half_close(true)
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            // A client that breaks the connection or the protocol is only its own concern.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
            drop(place);
        });
    }
    feed.close();
    let has_clients = || places.available_permits() < MAX_CONNECTIONS || feed.has_pages();
    let farewell = async {
        while has_clients() {
            tokio::time::sleep(FAREWELL / 30).await;
        }
    };
    let _ = tokio::time::timeout(FAREWELL, farewell).await;
}

fn router(shared: Shared) -> Router {
    let mut router = Router::new();
    for asset in &ASSETS {
        router = router.route(asset.path, get(|| async { file(asset) }));
    }
    router
        .route("/metrics", get(metrics_text))
        .route("/api/about", get(about))
        .route("/api/status", get(status))
        .route("/api/control", post(control))
        .route("/ws", get(connect))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is no such page: open /\n") })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(shared.clone(), check))
        .layer(from_fn(add_headers))
        .with_state(shared)
}

fn file(asset: &'static Asset) -> Response {
    ([(CONTENT_TYPE, asset.content_type), (CACHE_CONTROL, "no-cache")], asset.bytes).into_response()
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Refuses requests that a page of another origin may have caused.
async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    // Several names are none.
    let host = text(headers, HOST).filter(|_| headers.get_all(HOST).iter().count() == 1);
    let mut checked = shared.guard.check_host(host);
    if request.method() != Method::GET || headers.contains_key(http::header::UPGRADE) {
        // A header that is no text is an origin that is not this one.
        let origin = headers.get(ORIGIN).map(|value| value.to_str().unwrap_or("null"));
        checked = checked.and_then(|()| shared.guard.check_origin(origin, host));
    }
    match checked {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(refusal),
    }
}

fn refused(refusal: Refusal) -> Response {
    let status = if refusal == Refusal::Token { StatusCode::UNAUTHORIZED } else { StatusCode::FORBIDDEN };
    (status, axum_json(&serde_json::json!({ "error": refusal.to_string() }))).into_response()
}

fn axum_json(value: &impl serde::Serialize) -> impl IntoResponse {
    // The shapes have string keys only, so that they can be written.
    ([(CONTENT_TYPE, "application/json")], serde_json::to_vec(value).unwrap_or_default())
}

async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn metrics_text(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let (about, format) = (shared.subject.about(), metrics::Format::accepted(text(&headers, ACCEPT)));
    match metrics::text(shared.states.get(), &about.program, format) {
        // Programs between the server and its clients must not mix up the formats.
        Ok(text) => ([(CONTENT_TYPE, format.content_type()), (VARY, "accept")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn about(State(shared): State<Shared>) -> Response {
    axum_json(&shared.subject.about()).into_response()
}

async fn status(State(shared): State<Shared>) -> Response {
    axum_json(&*shared.states.get()).into_response()
}

async fn control(
    State(shared): State<Shared>,
    Extension(Peer(from)): Extension<Peer>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(refusal) = shared.guard.check_control(from, text(&headers, AUTHORIZATION)) {
        return refused(refusal);
    }
    let done = serde_json::from_slice::<Action>(&body)
        .map_err(|error| format!("expected a control such as {{\"action\": \"stop\"}}: {error}"))
        .and_then(|action| shared.subject.control(&action));
    match done {
        Ok(done) => axum_json(&serde_json::json!({ "done": done })).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, axum_json(&serde_json::json!({ "error": error }))).into_response(),
    }
}

async fn connect(State(shared): State<Shared>, upgrade: WebSocketUpgrade) -> Response {
    let Some(place) = shared.feed.place() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are open: close some of them\n").into_response();
    };
    let (subject, feed) = (shared.subject, shared.feed);
    upgrade.max_message_size(MAX_BODY).max_frame_size(MAX_BODY).write_buffer_size(0).on_upgrade(
        move |socket| async move {
            socket::talk(socket, subject, &feed).await;
            drop(place);
        },
    )
}
