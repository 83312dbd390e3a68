//! A queue pair without a link: packets are passed to it, and those that it sends are taken, by hand.

use super::*;
use crate::api::QpState;
use crate::spacefibre::SpaceFibreCounters;
use crate::spacefibre::receive::{Assemblies, PacketSink};
use crate::spacefibre::transmit::Queues;
use shotline_spacefibre::frames::{Sink, Source};
use shotline_wire::spacefibre::datagram::PacketEnd;
use shotline_wire::spacefibre::rdma::{MAX_SEGMENT, Operation as Op, Reply, ReplyKind, Status};

/// Number of the far end's queue pair.
pub(super) const PEER_QP: u32 = 77;
/// Address and length of a receive.
pub(super) const RECEIVE: (u64, u32) = (0x1000, 40);

/// A connected queue pair; both directions begin with transaction identifier 0.
pub(super) struct Unlinked {
    pub(super) node: Node,
    pub(super) qp: Qp,
    pub(super) counters: SpaceFibreCounters,
    assemblies: Assemblies,
    queues: Queues,
}

impl Unlinked {
    pub(super) fn new(strict: bool) -> Self {
        Self::with_access(strict, Access::ALL)
    }

    /// Creates a queue pair with these access rights of its peer.
    pub(super) fn with_access(strict: bool, access: Access) -> Self {
        let [mut node, _] = Node::pair(&LinkOptions::new(4, 1).unwrap(), Faults::default());
        let qp = node.create_qp_with(&QpConfig { strict, ..node.config() }, access);
        node.connect(qp, (address(2), PEER_QP), Duration::from_secs(100)).unwrap();
        let queues = Queues::new(0, 1, node.endpoint.core.regions().clone());
        Self { node, qp, counters: SpaceFibreCounters::default(), assemblies: Assemblies::new(1), queues }
    }

    /// Returns a command of the far end, for this end's memory if it has a key.
    pub(super) fn command(&self, operation: Op, transaction_id: u32) -> Command {
        let key = if operation.has_key() { self.node.mr.rkey } else { 0 };
        Command { key, ..Command::new(operation, self.qp.0, transaction_id) }
    }

    /// Returns the command of a segment of a WRITE to address 0, or of a SEND. It requests no reply.
    pub(super) fn segment(&self, operation: Op, transaction_id: u32, offset: u32, len: u32, total: u32) -> Command {
        let address = if operation.has_address() { offset.into() } else { 0 };
        let command = self.command(operation, transaction_id);
        Command { address, operation_len: total, offset, data_len: len, ..command }
    }

    /// Receives the bytes of a packet.
    pub(super) fn receive(&mut self, bytes: &[u8], end: PacketEnd) {
        let core = &mut self.node.endpoint.core;
        let mut sink = PacketSink::new(&mut self.assemblies, core, &mut self.counters, address(2));
        assert!(sink.write(0, bytes, Some(end)), "the packet is consumed");
        sink.finish();
    }

    /// Receives a command. The bytes of its data are those of its transaction identifier and their index.
    pub(super) fn take(&mut self, command: Command) {
        self.take_with(command, &data(&command));
    }

    pub(super) fn take_with(&mut self, command: Command, data: &[u8]) {
        self.receive(&packet(&Header::Command(command), data), PacketEnd::Eop);
    }

    /// Returns the packets that the queue pair sends, with their data.
    pub(super) fn sent(&mut self) -> Vec<(Header, Vec<u8>)> {
        let mut sent = Vec::new();
        loop {
            self.queues.fill(&mut self.node.endpoint.core);
            if self.queues.ready() == 0 {
                return sent;
            }
            let (bytes, end) = self.queues.read(0, 2 * MAX_SEGMENT as usize);
            assert_eq!(end, Some(PacketEnd::Eop));
            let (header, rest) = Header::parse(bytes).unwrap();
            sent.push((header, header.data(rest).unwrap().verify().unwrap().to_vec()));
        }
    }

    /// Posts a receive of [`RECEIVE`] with the id 5.
    pub(super) fn post_receive(&mut self) {
        let element = self.node.element(RECEIVE.0, RECEIVE.1);
        self.node.post_recv(self.qp, 5, element);
    }

    pub(super) fn state(&self) -> QpState {
        self.node.endpoint.qp_state(self.qp).unwrap()
    }

    pub(super) fn qp_counters(&self) -> crate::engine::QpCounters {
        *self.node.endpoint.qp_counters(self.qp).unwrap()
    }
}

/// Returns the data of a command that [`Unlinked::take`] receives.
pub(super) fn data(command: &Command) -> Vec<u8> {
    (0..command.data_len).map(|index| (7 * command.transaction_id + index % 251 + 1) as u8).collect()
}

/// An acknowledgement, or the answer to a refused command, after a number of completed operations.
pub(super) fn answer(status: Status, transaction_id: u32, msn: u32) -> (Header, Vec<u8>) {
    let reply = Reply { status, msn, ..Reply::new(ReplyKind::Acknowledge, PEER_QP, transaction_id) };
    (Header::Reply(reply), Vec::new())
}
