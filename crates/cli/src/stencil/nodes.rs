//! The nodes of a run: started here, or running already.

use super::args::Args;
use crate::Result;
use crate::child::{ChildTarget, address_arguments};
use crate::output::warn;
use crate::values::control_address;
use shotline_accelerate::Node;
use shotline_verbs::api::ControlSocket;
use shotline_verbs::cm::{Client, Endpoint};
use shotline_verbs::connect::{ConnectError, Target, WithEndpoints};

/// What is done with connected nodes, of any provider.
pub trait WithNodes {
    /// Does it. The targets are those of the nodes. Returns the numbers of the nodes that were lost.
    fn with<P: Endpoint>(self, nodes: Vec<Node<P>>, targets: &[Target]) -> Result<Vec<usize>>;
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
        let token = args.access.token()?;
        let target = |to: &String| Ok((control_address(to)?, token));
        args.to.iter().map(target).collect::<Result<_>>()?
    };
    let lost = args.transport.with_endpoints(args.bind, ConnectNodes { targets: &targets, work })?;
    for (index, child) in children.into_iter().enumerate() {
        if lost.contains(&index) {
            child.kill();
        } else if let Some(how) = child.end_if_possible()? {
            // The result was complete before.
            warn(format!("node {index}, after its last tile: {how}"));
        }
    }
    Ok(())
}

/// Connects nodes for the work.
struct ConnectNodes<'a, W> {
    targets: &'a [Target],
    work: W,
}

impl<W: WithNodes> WithEndpoints for ConnectNodes<'_, W> {
    type Output = Result<Vec<usize>>;
    fn with<P: Endpoint + Send + 'static>(
        self,
        connect: impl Fn(&Target) -> std::result::Result<(P, Client), ConnectError>,
    ) -> Result<Vec<usize>> {
        let mut nodes = Vec::new();
        for target in self.targets {
            let connected = connect(target).map_err(Into::into);
            let node = connected.and_then(|(provider, client)| Result::Ok(Node::connect(provider, client)?));
            nodes.push(node.map_err(|error| format!("node {}: {error}", target.0))?);
        }
        self.work.with(nodes, self.targets)
    }
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
        return Err("--bind is for transports with addresses: omit it".into());
    }
    ChildTarget::start(&args.transport, &words)
}
