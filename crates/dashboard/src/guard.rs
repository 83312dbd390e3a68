//! Who may read and who may control: checks of requests against pages of other origins.
//!
//! A browser that shows another page can be made to send requests here. It always sends the name by which it reached
//! this server (`Host`), which is a name of the attacker's under DNS rebinding, and for WebSockets and POST requests the
//! origin of the page (`Origin`). Controls need a token besides, which another origin does not know and which no form
//! can send.

use std::net::IpAddr;
use std::str::FromStr;

/// Reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The name of the server is missing or unknown.
    #[error(
        "expected an IP address, localhost or a name given by --serve-name in the Host header: open the page by its address"
    )]
    Host,
    /// The page has another origin.
    #[error("expected a page of this server in the Origin header, found another origin")]
    Origin,
    /// A control from another machine.
    #[error("controls are accepted from this machine only: start with --serve-control to accept them from others")]
    Remote,
    /// A control without the token.
    #[error("expected 'Authorization: Bearer TOKEN' with the token that was printed at the start")]
    Token,
}

/// Rules for requests.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Names of the server besides `localhost` and IP addresses, in lower case.
    pub names: Vec<String>,
    /// Controls are accepted from other machines as well.
    pub remote_control: bool,
    /// The token of controls.
    pub token: String,
}

impl Guard {
    /// Checks the name by which a client reached the server. IP addresses are safe: rebinding needs a name.
    ///
    /// # Errors
    /// [`Refusal::Host`].
    pub fn check_host(&self, host: Option<&str>) -> Result<(), Refusal> {
        let host = host_name(host.ok_or(Refusal::Host)?).ok_or(Refusal::Host)?;
        let is_known = host.eq_ignore_ascii_case("localhost")
            || is_address(host)
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(host));
        if is_known { Ok(()) } else { Err(Refusal::Host) }
    }

    /// Checks the origin of the page that sends a request. Programs other than browsers send none.
    ///
    /// # Errors
    /// [`Refusal::Origin`].
    pub fn check_origin(&self, origin: Option<&str>, host: Option<&str>) -> Result<(), Refusal> {
        let Some(origin) = origin else { return Ok(()) };
        let authority = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
        match (authority, host) {
            (Some(authority), Some(host)) if authority.eq_ignore_ascii_case(host) => Ok(()),
            _ => Err(Refusal::Origin),
        }
    }

    /// Checks that a client may control.
    ///
    /// # Errors
    /// [`Refusal::Remote`] or [`Refusal::Token`].
    pub fn check_control(&self, from: IpAddr, authorization: Option<&str>) -> Result<(), Refusal> {
        if !self.remote_control && !from.to_canonical().is_loopback() {
            return Err(Refusal::Remote);
        }
        let token = authorization.and_then(|value| value.strip_prefix("Bearer ")).ok_or(Refusal::Token)?;
        if !self.token.is_empty() && is_equal(token.as_bytes(), self.token.as_bytes()) {
            Ok(())
        } else {
            Err(Refusal::Token)
        }
    }
}

/// Returns the name in a Host header, without the port; an IPv6 address keeps its brackets.
fn host_name(host: &str) -> Option<&str> {
    let end = match host.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at_checked(end)?;
    let port_is_valid = port.is_empty() || port.strip_prefix(':').is_some_and(|port| u16::from_str(port).is_ok());
    (port_is_valid && !name.is_empty()).then_some(name)
}

fn is_address(name: &str) -> bool {
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => std::net::Ipv6Addr::from_str(name).is_ok(),
        None => std::net::Ipv4Addr::from_str(name).is_ok(),
    }
}

/// Compares in a time that depends on the lengths only.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn guard() -> Guard {
        Guard { names: vec!["lab.example".into()], remote_control: false, token: "secret".into() }
    }

    #[test]
    fn only_addresses_and_given_names_are_hosts() {
        for host in ["127.0.0.1:8080", "[::1]:8080", "[::1]", "10.0.0.7", "LOCALHOST:1", "lab.example:8080"] {
            assert_eq!(guard().check_host(Some(host)), Ok(()), "{host}");
        }
        let others = [
            "attacker.example:8080",
            "127.0.0.1.attacker.example",
            "lab.example.attacker.example",
            "localhost:",
            "localhost:99999",
            "[::1",
            "[::1]x",
            "[localhost]",
            ":8080",
            "",
            "127.1",
            "localhost/x",
        ];
        for host in others {
            assert_eq!(guard().check_host(Some(host)), Err(Refusal::Host), "{host}");
        }
        assert_eq!(guard().check_host(None), Err(Refusal::Host));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let check = |origin, host| guard().check_origin(origin, host);
        assert_eq!(check(Some("http://127.0.0.1:8080"), Some("127.0.0.1:8080")), Ok(()));
        assert_eq!(check(None, Some("127.0.0.1:8080")), Ok(()));
        for origin in
            ["http://attacker.example", "null", "", "http://127.0.0.1:80801", "file://", "http://localhost:8080"]
        {
            assert_eq!(check(Some(origin), Some("127.0.0.1:8080")), Err(Refusal::Origin), "{origin}");
        }
    }

    #[test]
    fn controls_need_the_token_and_this_machine() {
        let (here, mapped, there) = ("127.0.0.1", "::ffff:127.0.0.1", "10.0.0.2");
        let check = |guard: &Guard, from: &str, value| guard.check_control(from.parse().unwrap(), value);
        for from in [here, mapped, "::1"] {
            assert_eq!(check(&guard(), from, Some("Bearer secret")), Ok(()));
        }
        for value in [None, Some("Bearer "), Some("secret"), Some("Bearer secret "), Some("bearer secret")] {
            assert_eq!(check(&guard(), here, value), Err(Refusal::Token), "{value:?}");
        }
        assert_eq!(check(&guard(), there, Some("Bearer secret")), Err(Refusal::Remote));
        let allowed = Guard { remote_control: true, ..guard() };
        assert_eq!(check(&allowed, there, Some("Bearer secret")), Ok(()));
        let none = Guard { token: String::new(), ..guard() };
        assert_eq!(check(&none, here, Some("Bearer ")), Err(Refusal::Token), "an empty token opens nothing");
    }

    proptest! {
        #[test]
        fn any_header_is_answered(host in ".*", origin in ".*", value in ".*") {
            let guard = guard();
            let _ = (guard.check_host(Some(&host)), guard.check_origin(Some(&origin), Some(&host)));
            prop_assert!(guard.check_control("::1".parse().unwrap(), Some(&value)).is_err() || value == "Bearer secret");
        }
    }
}
