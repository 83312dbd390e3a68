//! Registry of providers: their command-line names and capabilities.
//!
//! A provider is a module of this crate with an endpoint that implements [`Provider`](crate::api::Provider) and
//! [`Endpoint`](crate::cm::Endpoint), and a `DESCRIPTION`. It has a variant here; every `match` over [`ProviderKind`]
//! is exhaustive, so the compiler reports each location that a new provider affects.

use crate::api::{ControlSocket, Description, Flag, Mtu, Reach};
use crate::cm::message::Welcome;
use crate::ibverbs::{self, DeviceSelector};
use crate::spacefibre::{self, CarrierKind, LinkSelector};
use crate::{shm, soft};
use std::fmt;
use std::str::FromStr;

/// Provider selected on a command line, with its options.
///
/// Endpoints of providers have different types, so that calls of the verbs are direct; a caller that opens one matches
/// on the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// RoCEv2 over UDP sockets: [`SoftEndpoint::udp`](soft::SoftEndpoint::udp).
    Soft,
    /// Shared memory of this machine: [`ShmEndpoint::connect`](shm::ShmEndpoint::connect),
    /// [`Client::link`](crate::cm::Client::link).
    Shm,
    /// An RDMA device: [`IbverbsEndpoint::open`](ibverbs::IbverbsEndpoint::open).
    Ibverbs(DeviceSelector),
    /// SpaceFibre links: [`SpaceFibreEndpoint::udp`](spacefibre::SpaceFibreEndpoint::udp),
    /// [`SpaceFibreEndpoint::shm`](spacefibre::SpaceFibreEndpoint::shm).
    SpaceFibre(LinkSelector),
}

impl ProviderKind {
    /// Returns every provider; with the default selector.
    pub fn all() -> [Self; 4] {
        let (device, link) = (DeviceSelector::default(), LinkSelector::default());
        [Self::Soft, Self::Shm, Self::Ibverbs(device), Self::SpaceFibre(link)]
    }

    /// Returns the properties that are known before an endpoint is opened.
    pub const fn description(&self) -> &'static Description {
        match self {
            Self::Soft => &soft::DESCRIPTION,
            Self::Shm => &shm::DESCRIPTION,
            Self::Ibverbs(_) => &ibverbs::DESCRIPTION,
            Self::SpaceFibre(selector) => match selector.carrier {
                CarrierKind::Udp => &spacefibre::DESCRIPTION,
                CarrierKind::Shm => &spacefibre::SHM_DESCRIPTION,
            },
        }
    }

    /// Returns the name, without a device.
    pub const fn name(&self) -> &'static str {
        self.description().name()
    }

    /// Returns the forms of all providers with their summaries, for a help text.
    pub fn choices() -> String {
        let choice = |kind: Self| format!("{} ({})", kind.description().form, kind.description().summary);
        Self::all().map(choice).join(", ")
    }

    /// Returns the forms of all providers, for a message: `soft, shm or ...`.
    pub fn forms() -> String {
        listed(&Self::all().map(|kind| kind.description().form))
    }

    /// Checks that this end can communicate with a target that describes itself so.
    ///
    /// # Errors
    /// If the target has another provider, or links with other options, with those to use.
    pub fn check_target(&self, target: &Welcome) -> Result<(), String> {
        let is_roce = |name: &str| [&soft::DESCRIPTION, &ibverbs::DESCRIPTION].iter().any(|kind| kind.name() == name);
        let (ours, theirs) = (self.name(), target.provider.as_str());
        if ours != theirs && !(is_roce(ours) && is_roce(theirs)) {
            let known = Self::all().into_iter().find(|kind| kind.name() == theirs);
            return Err(match (target.link, known) {
                (Some(link), Some(_)) => {
                    format!("expected a target with {ours}, found {theirs}: use --transport {link}")
                }
                (None, Some(_)) => format!("expected a target with {ours}, found {theirs}: use --transport {theirs}"),
                (_, None) => format!("expected a target with {ours}, found another provider"),
            });
        }
        match (self, target.link) {
            (Self::SpaceFibre(selector), Some(found)) if selector.parameters() != found => {
                let expected = selector.parameters();
                Err(format!(
                    "expected a target with {expected}, found {found}: use the same carrier, lanes and number of virtual \
                     channels at both ends"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the provider uses all flags that were given.
    ///
    /// # Errors
    /// For the first unused flag, with the providers that use it.
    pub fn check(&self, given: impl IntoIterator<Item = Flag>) -> Result<(), String> {
        let Some(flag) = given.into_iter().find(|flag| !self.description().flags.contains(flag)) else { return Ok(()) };
        let users = Self::all().into_iter().filter(|kind| kind.description().flags.contains(&flag));
        let users: Vec<_> = users.map(|kind| kind.description().form).collect();
        let flag = flag.name();
        Err(format!("{self} does not use {flag}: omit it, or give --transport {}", listed(&users)))
    }

    /// Checks that the provider has a path MTU that was given.
    ///
    /// # Errors
    /// If it is larger than the provider's.
    pub fn check_mtu(&self, given: Option<Mtu>) -> Result<(), String> {
        let max = self.description().mtu.unwrap_or(Mtu::B4096);
        match given.filter(|given| *given > max) {
            Some(found) => {
                Err(format!("expected --mtu of at most {} with {self}, found {}", max.bytes(), found.bytes()))
            }
            None => Ok(()),
        }
    }
}

/// Joins words with commas, and "or" before the last one.
fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [words @ .., last] => format!("{} or {last}", words.join(", ")),
    }
}

/// Table of the providers.
impl ProviderKind {
    /// Column headings of [`Self::rows`].
    pub const HEADER: [&str; 10] = [
        "provider",
        "description",
        "peers",
        "queue pairs",
        "atomic operations",
        "target's CPU",
        "needs",
        "flags",
        "path MTU",
        "control connections",
    ];

    /// Returns a row of capabilities for each provider.
    pub fn rows() -> [[String; 10]; 4] {
        Self::all().map(|kind| {
            let Description { capabilities: can, form, summary, reach, needs_device, flags, mtu, control } =
                *kind.description();
            let yes = |value: bool| if value { "yes" } else { "no" };
            let services = [("RC", can.rc), ("UC", can.uc), ("UD", can.ud)];
            let services: Vec<_> = services.into_iter().filter(|(_, has)| *has).map(|(service, _)| service).collect();
            let peers = match reach {
                Reach::Network => "on any machine",
                Reach::Machine => "on this machine",
            };
            let control = match control {
                ControlSocket::Tcp => "ADDRESS:PORT",
                ControlSocket::Unix => "PATH",
            };
            let atomics = if can.atomics && needs_device { "if the device supports them" } else { yes(can.atomics) };
            let cpu = if can.target_cpu_is_idle { "not involved" } else { "used" };
            let needs = if needs_device { "an RDMA device" } else { "nothing" };
            let mtu = match mtu {
                Some(mtu) => mtu.bytes().to_string(),
                None if needs_device => "the device's".into(),
                None => "no packets".into(),
            };
            let flags: Vec<_> = flags.iter().map(|flag| flag.name()).collect();
            let flags = if flags.is_empty() { "none".into() } else { flags.join(" ") };
            let cells = [form, summary, peers, &services.join(", "), atomics, cpu, needs, &flags, &mtu, control];
            cells.map(str::to_owned)
        })
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Ibverbs(selector) if *selector != DeviceSelector::default() => write!(f, ":{selector}"),
            Self::SpaceFibre(selector) if *selector != LinkSelector::default() => write!(f, ":{selector}"),
            Self::Soft | Self::Shm | Self::Ibverbs(_) | Self::SpaceFibre(_) => Ok(()),
        }
    }
}

impl FromStr for ProviderKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected {}, found {text}", Self::forms());
        let (name, options) = text.split_once(':').map_or((text, None), |(name, options)| (name, Some(options)));
        let kind = Self::all().into_iter().find(|kind| kind.name() == name).ok_or_else(expected)?;
        match (kind, options) {
            (Self::Ibverbs(_), Some(options)) => options.parse().map(Self::Ibverbs),
            (Self::SpaceFibre(_), Some(options)) => options.parse().map(Self::SpaceFibre),
            (Self::Soft | Self::Shm, Some(_)) => Err(expected()),
            (kind @ (Self::Soft | Self::Shm | Self::Ibverbs(_) | Self::SpaceFibre(_)), None) => Ok(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Index of a variant in [`ProviderKind::all`]; the match does not compile if a new variant is missing.
    fn index(kind: &ProviderKind) -> usize {
        match kind {
            ProviderKind::Soft => 0,
            ProviderKind::Shm => 1,
            ProviderKind::Ibverbs(_) => 2,
            ProviderKind::SpaceFibre(_) => 3,
        }
    }

    #[test]
    fn every_provider_is_listed_once() {
        assert_eq!(ProviderKind::all().each_ref().map(index), [0, 1, 2, 3]);
        let names: std::collections::BTreeSet<_> = ProviderKind::all().iter().map(ProviderKind::name).collect();
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn provider_names_round_trip() {
        for kind in ProviderKind::all() {
            assert_eq!(kind.to_string(), kind.name());
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let selector = DeviceSelector { device: Some("mlx5_0".into()), port: Some(2), gid: Some(3) };
        let text = "ibverbs:mlx5_0,port=2,gid=3";
        assert_eq!(text.parse(), Ok(ProviderKind::Ibverbs(selector)));
        assert_eq!(text.parse::<ProviderKind>().unwrap().to_string(), text);
        let selector = LinkSelector { lanes: 2, ..LinkSelector::default() };
        assert_eq!("spacefibre:lanes=2".parse(), Ok(ProviderKind::SpaceFibre(selector)));
        assert_eq!("ibverbs:".parse(), Ok(ProviderKind::Ibverbs(DeviceSelector::default())));
    }

    #[test]
    fn unknown_names_are_refused_with_all_forms() {
        for text in ["", "Soft", "soft:", "shm:x", "gpu", "ibverb"] {
            let error = text.parse::<ProviderKind>().unwrap_err();
            for kind in ProviderKind::all() {
                assert!(error.contains(kind.description().form), "{text}: {error}");
            }
        }
        let error = "ibverbs:rxe0,lid=1".parse::<ProviderKind>().unwrap_err();
        assert!(error.contains("DEVICE[,port=N]"), "{error}");
    }

    #[test]
    fn unused_flag_is_refused() {
        let [soft, shm, ibverbs, spacefibre] = ProviderKind::all();
        assert_eq!(soft.check(Flag::ALL), Ok(()));
        for kind in [&soft, &shm, &ibverbs, &spacefibre] {
            assert_eq!(kind.check([]), Ok(()));
        }
        assert_eq!(ibverbs.check([Flag::Mtu]), Ok(()));
        let refused = |kind: &ProviderKind, flag: Flag| kind.check([flag]).unwrap_err();
        let words = "ibverbs does not use --loss: omit it, or give --transport soft";
        assert_eq!(refused(&ibverbs, Flag::Loss), words);
        let form = ibverbs.description().form;
        let link = spacefibre.description().form;
        let words = format!("shm does not use --mtu: omit it, or give --transport soft, {form} or {link}");
        assert_eq!(refused(&shm, Flag::Mtu), words);
    }

    fn target(provider: &str, link: Option<&str>) -> Welcome {
        let link = link.map(|link| link.parse::<LinkSelector>().unwrap().parameters());
        let provider = provider.into();
        Welcome { version: 2, provider, max_queue_pairs: 1, max_operation: 1, supports_roles: true, link }
    }

    fn check(kind: &str, target: &Welcome) -> Result<(), String> {
        kind.parse::<ProviderKind>().unwrap().check_target(target)
    }

    #[test]
    fn compatible_targets_are_accepted() {
        for (kind, target) in [
            ("soft", target("soft", None)),
            ("soft", target("ibverbs", None)),
            ("ibverbs:rxe0", target("soft", None)),
            ("shm", target("shm", None)),
            ("spacefibre", target("spacefibre", None)),
            ("spacefibre:lanes=2,vcs=3,ber=0.1", target("spacefibre", Some("lanes=2,vc=9%,vc=8%,vc=7%/15"))),
        ] {
            assert_eq!(check(kind, &target), Ok(()), "{kind} {target:?}");
        }
    }

    #[test]
    fn targets_of_other_providers_and_links_are_refused() {
        for (kind, target, words) in [
            (
                "soft",
                target("spacefibre", Some("lanes=8")),
                "found spacefibre: use --transport spacefibre:lanes=8,vcs=1",
            ),
            ("spacefibre", target("soft", None), "expected a target with spacefibre, found soft: use --transport soft"),
            ("shm", target("spacefibre", Some("shm")), "use --transport spacefibre:shm,lanes=4,vcs=1"),
            ("ibverbs", target("shm", None), "use --transport shm"),
            ("soft", target("\u{1b}[2J", None), "found another provider"),
            (
                "spacefibre:lanes=4",
                target("spacefibre", Some("lanes=8")),
                "expected a target with spacefibre:lanes=4,vcs=1, found spacefibre:lanes=8,vcs=1: use the same",
            ),
            ("spacefibre:vcs=2", target("spacefibre", Some("vcs=3")), "vcs=2, found spacefibre:lanes=4,vcs=3: use"),
            ("spacefibre:shm", target("spacefibre", Some("udp")), "found spacefibre:lanes=4,vcs=1"),
        ] {
            let error = check(kind, &target).unwrap_err();
            assert!(error.contains(words), "{kind}: {error}");
        }
    }

    #[test]
    fn rows_begin_with_the_command_line_name() {
        for (row, kind) in ProviderKind::rows().iter().zip(ProviderKind::all()) {
            assert!(row[0].starts_with(kind.name()) && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        }
    }
}
