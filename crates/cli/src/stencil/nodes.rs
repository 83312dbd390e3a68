//! The nodes of a run: started here, or running already.

use super::args::Args;
use crate::child::{ChildTarget, address_arguments};
use crate::values::{control_address, known_token, udp_options};
use crate::{Result, initiator};
use shotline_accelerate::Node;
use shotline_transport::carrier::shm::ShmCarrier;
use shotline_verbs::api::ControlSocket;
use shotline_verbs::cm::{ControlAddress, Endpoint, Token};
use shotline_verbs::ibverbs::IbverbsEndpoint;
use shotline_verbs::provider::ProviderKind;
use shotline_verbs::shm::ShmEndpoint;
use shotline_verbs::soft::SoftEndpoint;
use shotline_verbs::spacefibre::{CarrierKind, SpaceFibreEndpoint};

/// What is done with connected nodes, of any provider.
pub trait WithNodes {
    /// Does it.
    fn with<P: Endpoint>(self, nodes: Vec<Node<P>>) -> Result;
}

/// Starts nodes or connects to running ones, and ends the started ones afterwards.
pub fn with_nodes(args: &Args, work: impl WithNodes) -> Result {
    let mut children = Vec::new();
    let targets: Vec<_> = if args.to.is_empty() {
        for _ in 0..args.nodes() {
            children.push(start(args)?);
        }
        children.iter().map(|child| (child.listen.clone(), child.token)).collect()
    } else {
        let token = known_token(args.token, args.token_file.as_deref())?;
        let target = |to: &String| Ok((control_address(to)?, token));
        args.to.iter().map(target).collect::<Result<_>>()?
    };
    match &args.transport {
        ProviderKind::Soft => work.with(connect(&targets, |target| {
            let bind = initiator::local_address(args.bind, &target.0)?;
            let provider = SoftEndpoint::udp(bind, udp_options(None))?;
            let client = initiator::connect(&args.transport, target, Some(provider.address().ip()))?;
            Ok(Node::connect(provider, client)?)
        })?),
        ProviderKind::Ibverbs(choice) => work.with(connect(&targets, |target| {
            let provider = IbverbsEndpoint::open(choice)?;
            let client = initiator::connect(&args.transport, target, Some(provider.address().ip()))?;
            Ok(Node::connect(provider, client)?)
        })?),
        ProviderKind::Shm => work.with(connect(&targets, |target| {
            let mut client = initiator::connect(&args.transport, target, None)?;
            let provider = client.link(ShmEndpoint::offer)?.join()?;
            Ok(Node::connect(provider, client)?)
        })?),
        ProviderKind::SpaceFibre(selector) => match selector.carrier {
            CarrierKind::Udp => work.with(connect(&targets, |target| {
                let bind = initiator::local_address(args.bind, &target.0)?;
                let provider = SpaceFibreEndpoint::udp(bind, selector)?;
                let client = initiator::connect(&args.transport, target, Some(provider.address().ip()))?;
                Ok(Node::connect(provider, client)?)
            })?),
            CarrierKind::Shm => work.with(connect(&targets, |target| {
                let mut client = initiator::connect(&args.transport, target, None)?;
                let carrier = client.link(|socket| Ok(ShmCarrier::offer(socket)?))?.join()?;
                Ok(Node::connect(SpaceFibreEndpoint::shm(carrier, selector)?, client)?)
            })?),
        },
    }?;
    children.into_iter().try_for_each(ChildTarget::end)
}

type Target = (ControlAddress, Token);

fn connect<P: Endpoint>(targets: &[Target], connect: impl Fn(&Target) -> Result<Node<P>>) -> Result<Vec<Node<P>>> {
    let named = |target: &Target| connect(target).map_err(|error| format!("node {}: {error}", target.0).into());
    targets.iter().map(named).collect()
}

/// Starts a node on this machine.
fn start(args: &Args) -> Result<ChildTarget> {
    let region = format!("memory={},rights=rw,memory={}", args.node_memory().0, args.memory);
    let mut words = ["--accelerate", "memory", "--region", &region, "--transport"].map(str::to_owned).to_vec();
    words.push(args.transport.to_string());
    if let Some(threads) = args.threads {
        words.extend(["--threads".to_owned(), threads.to_string()]);
    }
    words.extend(address_arguments(&args.transport, args.bind.is_some_and(|bind| bind.is_ipv6()))?);
    if args.transport.description().control == ControlSocket::Unix && args.bind.is_some() {
        return Err("--bind is for transports with addresses".into());
    }
    ChildTarget::start(&args.transport, &words)
}
