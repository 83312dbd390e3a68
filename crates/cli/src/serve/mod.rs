//! `--serve`: the page to watch a long-running command.

pub mod metrics;
mod run;

pub use run::ServeArgs;

use crate::Result;
use crate::log::LogFormat;
use shotline_acquire::journal::Event;
use shotline_dashboard::guard::Guard;
use shotline_dashboard::pictures::{Painter, Studio};
use shotline_dashboard::status::Status;
use shotline_dashboard::{Board, BoardInfo, Options, Server, Subject};
use shotline_verbs::cm::Token;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Name and version of the program, as pages and metrics show it.
const PROGRAM: &str = concat!("shotline ", env!("CARGO_PKG_VERSION"));

/// Arguments of the page.
#[derive(Clone, Default, clap::Args)]
pub struct PageArgs {
    /// Serve a page to watch the command, and its metrics for Prometheus, at this address, such as 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = page_address, help_heading = "Page")]
    serve: Option<SocketAddr>,
    /// Name of this machine by which browsers open the page; addresses and localhost need none
    #[arg(long, value_name = "NAME", requires = "serve", value_delimiter = ',', help_heading = "Page")]
    serve_name: Vec<String>,
    /// Accept the page's controls from other machines as well, with the token
    #[arg(long, requires = "serve", help_heading = "Page")]
    serve_control: bool,
    /// File with the token of the controls, readable only by its owner [default: a random one, which is printed]
    #[arg(long, value_name = "FILE", requires = "serve", help_heading = "Page")]
    serve_token_file: Option<PathBuf>,
    /// Time after the end for which the final state is still served, so that it is scraped; Ctrl-C ends it. A command that
    /// was stopped by Ctrl-C or by the page is not served any more
    #[arg(long, value_name = "SECONDS", requires = "serve", default_value_t = 0, help_heading = "Page")]
    serve_linger_s: u64,
}

/// Parses `ADDRESS:PORT` or `NAME:PORT`.
fn page_address(text: &str) -> std::result::Result<SocketAddr, String> {
    let resolved = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    resolved.ok_or_else(|| format!("expected ADDRESS:PORT such as 127.0.0.1:8080 or localhost:8080, found {text}"))
}

impl PageArgs {
    /// Returns where the page is served; none if it is not requested.
    pub fn site(&self, log: Option<LogFormat>) -> Result<Option<Site>> {
        let Some(address) = self.serve else { return Ok(None) };
        let token = match &self.serve_token_file {
            Some(path) => Token::read(path)?,
            None => Token::random()?,
        }
        .to_string();
        // The file's owner knows a token from a file.
        let fragment = if self.serve_token_file.is_some() { String::new() } else { format!("#token={token}") };
        let guard = Guard { names: self.serve_name.clone(), remote_control: self.serve_control, token };
        let linger = Duration::from_secs(self.serve_linger_s);
        Ok(Some(Site { options: Options { address, guard }, fragment, linger, log, is_announced: false }))
    }

    /// Serves the board of a command, with pictures, if a page is requested. `info` needs no program.
    pub fn board(&self, info: BoardInfo, painters: Vec<Box<dyn Painter>>, stop: &Arc<AtomicBool>) -> Result<BoardPage> {
        let Some(mut site) = self.site(None)? else { return Ok(BoardPage(None)) };
        let info = BoardInfo { program: PROGRAM.into(), ..info };
        let board = Arc::new(Board::new(info, Arc::clone(stop), Studio::open(painters)?));
        let page = site.open(Arc::clone(&board) as _)?;
        Ok(BoardPage(Some((board, page))))
    }
}

/// Address and rules of a page, which the runs of a command have in common.
pub struct Site {
    options: Options,
    /// Part of the address that gives the token to the page.
    fragment: String,
    linger: Duration,
    log: Option<LogFormat>,
    is_announced: bool,
}

impl Site {
    /// Serves a subject until the returned value is dropped. The first call says where.
    pub fn open(&mut self, subject: Arc<dyn Subject>) -> Result<Page> {
        let server = Server::start(self.options.clone(), Arc::clone(&subject))?;
        // Of a port that the kernel has chosen as well.
        self.options.address = server.address();
        if !std::mem::replace(&mut self.is_announced, true) {
            let url = format!("http://{}/{}", reachable(server.address()), self.fragment);
            match self.log {
                Some(log) => log.print(&Event::Serving { url }),
                None => errln!("page: {url}"),
            }
        }
        Ok(Page { subject, linger: self.linger, _server: server })
    }
}

/// Returns an address by which a browser on this machine opens the page.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// A page that is served. Its clients get the last state when it is dropped.
pub struct Page {
    subject: Arc<dyn Subject>,
    linger: Duration,
    _server: Server,
}

impl Page {
    /// Serves the final state for the requested time, or until `stop` is set.
    pub fn linger(self, stop: &AtomicBool) {
        self.subject.end();
        let begin = Instant::now();
        while begin.elapsed() < self.linger && !stop.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.subject.end();
    }
}

/// The page of a command that publishes its state, if one is requested. Without a page nothing is done.
pub struct BoardPage(Option<(Arc<Board>, Page)>);

impl BoardPage {
    /// Returns the board, for threads that publish.
    pub fn board(&self) -> Option<&Arc<Board>> {
        self.0.as_ref().map(|(board, _)| board)
    }

    /// Publishes a state if the last one is old enough. Cheap enough for each round of a loop that reads the clock.
    pub fn publish(&self, now: Instant, status: impl FnOnce() -> Status) {
        if let Some(board) = self.board().filter(|board| board.is_due(now)) {
            board.publish(status());
        }
    }

    /// Publishes the final state, which is served for the requested time or until `stop` is set.
    pub fn end(self, status: impl FnOnce() -> Status, stop: &AtomicBool) {
        if let Some((board, page)) = self.0 {
            board.publish(status());
            page.linger(stop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_addresses_or_names_with_ports() {
        assert_eq!(page_address("127.0.0.1:8080"), Ok(([127, 0, 0, 1], 8080).into()));
        assert!(page_address("localhost:0").unwrap().ip().is_loopback());
        for text in ["127.0.0.1", ":8080", "8080", "", "[::1]", "::1:80x"] {
            assert!(page_address(text).unwrap_err().ends_with(text), "{text}");
        }
    }

    #[test]
    fn the_announced_address_can_be_opened() {
        for (served, announced) in
            [("0.0.0.0:8080", "127.0.0.1:8080"), ("[::]:8080", "[::1]:8080"), ("10.0.0.1:80", "10.0.0.1:80")]
        {
            assert_eq!(reachable(served.parse().unwrap()).to_string(), announced);
        }
    }
}
