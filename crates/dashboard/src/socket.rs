//! A page's WebSocket: the state as text messages, pictures as binary ones.

use crate::Subject;
use crate::pictures::{Gallery, Viewer};
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

/// Interval of the state.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// Intervals between two states while no page is open.
const UNWATCHED_INTERVALS: u32 = 4;
/// Maximum number of pages.
const MAX_PAGES: usize = 256;
/// A page that takes nothing for this long is closed.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of messages of a page between two states.
const MAX_MESSAGES: u32 = 100;

/// The newest state, for all pages.
pub(crate) struct Feed {
    newest: watch::Sender<State>,
    closed: watch::Sender<bool>,
    places: Arc<Semaphore>,
}

/// A state as a message.
#[derive(Clone)]
struct State {
    message: Utf8Bytes,
    /// What it is the state of ([`Subject::generation`]).
    generation: u64,
    /// No other one follows.
    is_last: bool,
}

impl State {
    fn of(subject: &dyn Subject, is_last: bool) -> Self {
        // In this order, the state is never older than its number.
        let generation = subject.generation();
        Self { generation, message: message("status", &subject.status()), is_last }
    }
}

impl Feed {
    /// Begins to read the state of a subject, on the current runtime.
    pub(crate) fn start(subject: Arc<dyn Subject>) -> Arc<Self> {
        let this = Arc::new(Self {
            newest: watch::Sender::new(State::of(&*subject, false)),
            closed: watch::Sender::new(false),
            places: Arc::new(Semaphore::new(MAX_PAGES)),
        });
        let feed = Arc::clone(&this);
        tokio::spawn(async move {
            let mut closed = feed.closed.subscribe();
            let mut since = 0;
            loop {
                let ended = timeout(STATUS_INTERVAL, closed.wait_for(|closed| *closed)).await.is_ok();
                since += 1;
                // Without a page rarely, but also then: the log has the times of what happens.
                if ended || feed.newest.receiver_count() > 0 || since >= UNWATCHED_INTERVALS {
                    since = 0;
                    feed.newest.send_replace(State::of(&*subject, ended));
                }
                if ended {
                    return;
                }
            }
        });
        this
    }

    /// Returns a place for one more page; none if all are taken.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Returns `true` while a page is open.
    pub(crate) fn has_pages(&self) -> bool {
        self.places.available_permits() < MAX_PAGES
    }

    /// Sends the last state.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }
}

fn message(name: &str, value: &impl serde::Serialize) -> Utf8Bytes {
    // The shapes have string keys only, so that they can be written.
    serde_json::to_string(&std::collections::BTreeMap::from([(name, value)])).unwrap_or_default().into()
}

/// A message of a page.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    /// The pictures that it shows now.
    watch: Vec<String>,
}

/// What a page sees of a subject.
struct Sight {
    generation: u64,
    gallery: Arc<Gallery>,
    painted: watch::Receiver<u64>,
    wish: Wish,
    viewers: Vec<Viewer>,
}

impl Sight {
    /// Describes the subject to the page. Returns `None` if the page has left or takes nothing.
    async fn begin(socket: &mut WebSocket, subject: &dyn Subject, wish: Wish) -> Option<Self> {
        let (generation, about, gallery) = (subject.generation(), subject.about(), subject.gallery());
        let is_sent = send(socket, Message::Text(message("about", &about))).await;
        let viewers = watched(&gallery, &wish, Vec::new());
        let mut painted = gallery.painted();
        painted.mark_changed();
        is_sent.then_some(Self { generation, gallery, painted, wish, viewers })
    }

    /// Follows a wish of the page.
    fn follow(&mut self, wish: Wish) {
        self.viewers = watched(&self.gallery, &wish, std::mem::take(&mut self.viewers));
        self.wish = wish;
        self.painted.mark_changed();
    }
}

/// Serves a page until it leaves, breaks the rules, or takes nothing for long.
pub(crate) async fn talk(mut socket: WebSocket, subject: Arc<dyn Subject>, feed: &Feed) {
    let Some(mut sight) = Sight::begin(&mut socket, &*subject, Wish::default()).await else { return };
    let mut states = feed.newest.subscribe();
    states.mark_changed();
    let mut messages = 0;
    loop {
        tokio::select! {
            received = socket.recv() => {
                messages += 1;
                match received {
                    Some(Ok(Message::Text(text))) if messages <= MAX_MESSAGES => {
                        // A page of another version may wish for what is unknown here.
                        if let Ok(wish) = serde_json::from_str(&text) {
                            sight.follow(wish);
                        }
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) if messages <= MAX_MESSAGES => {}
                    _ => return,
                }
            }
            changed = states.changed() => {
                messages = 0;
                let State { message, generation, is_last } = states.borrow_and_update().clone();
                if changed.is_err() {
                    return;
                }
                if generation != sight.generation {
                    let Some(next) = Sight::begin(&mut socket, &*subject, sight.wish).await else { return };
                    sight = next;
                }
                if !send(&mut socket, Message::Text(message)).await {
                    return;
                }
                if is_last {
                    let (code, reason) = (close_code::NORMAL, Utf8Bytes::from_static("the command has ended"));
                    send(&mut socket, Message::Close(Some(CloseFrame { code, reason }))).await;
                    return;
                }
            }
            // Ends with the studio of a run; a state of the next run follows, or the last one.
            Ok(()) = sight.painted.changed(), if !sight.viewers.is_empty() => {
                sight.painted.mark_unchanged();
                for viewer in &mut sight.viewers {
                    let Some(picture) = viewer.take() else { continue };
                    if !send(&mut socket, Message::Binary(picture)).await {
                        return;
                    }
                }
            }
        }
    }
}

/// Returns the viewers of a wish; those that exist continue.
fn watched(gallery: &Arc<Gallery>, wish: &Wish, mut before: Vec<Viewer>) -> Vec<Viewer> {
    let mut indices: Vec<usize> = wish.watch.iter().filter_map(|kind| gallery.index(kind)).collect();
    indices.sort_unstable();
    indices.dedup();
    before.retain(|viewer| indices.contains(&viewer.index()));
    indices.retain(|index| before.iter().all(|viewer| viewer.index() != *index));
    before.extend(indices.into_iter().map(|index| Viewer::new(gallery, index)));
    before
}

/// Sends a message. Returns `false` if the page has left or takes nothing.
async fn send(socket: &mut WebSocket, message: Message) -> bool {
    matches!(timeout(SEND_TIMEOUT, socket.send(message)).await, Ok(Ok(())))
}
