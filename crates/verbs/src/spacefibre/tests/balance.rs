//! Balance of a sender: packets taken from the engines are passed to the link, discarded, or wait.

use super::*;
use crate::spacefibre::transmit::Queues;
use shotline_random::SplitMix64;
use shotline_spacefibre::frames::Source;
use shotline_testing::seeds;

const VCS: u8 = 3;

#[test]
fn packets_taken_are_passed_on_discarded_or_waiting() {
    for seed in seeds(40..44) {
        let mut random = SplitMix64::new(seed);
        let [mut node, _] = Node::pair(&LinkOptions::new(4, VCS).unwrap(), Faults::default());
        let qps: Vec<_> = (0..VCS).map(|level| node.create_qp(level)).collect();
        for qp in &qps {
            node.connect(*qp, (address(2), 77), Duration::from_secs(100)).unwrap();
        }
        let mut queues = Queues::new(0, VCS.into(), node.endpoint.core.regions().clone());
        let (mut out, mut discarded, mut cut, mut now) = (0, 0, 0, 0);
        let mut posted = [0; VCS as usize];
        for _ in 0..3000 {
            let vc = random.below(VCS.into()) as u8;
            match random.below(8) {
                0 | 1 if posted[usize::from(vc)] < 100 => {
                    posted[usize::from(vc)] += 1;
                    let element = node.element(0, random.below(200) as u32);
                    node.post(qps[usize::from(vc)], 1, Operation::Write(Remote { address: 0, rkey: 1 }), &[element]);
                }
                2 => queues.fill(&mut node.endpoint.core),
                3 => {
                    now += random.below(30_000_000);
                    queues.discard_late(now);
                }
                4 if random.chance(0.2) => {
                    let before = queues.waiting();
                    queues.on_reset();
                    cut += before - queues.waiting();
                }
                _ if queues.ready() & 1 << vc != 0 => {
                    queues.read(vc, 4 + 4 * random.below(30) as usize);
                }
                _ => {}
            }
            let counts = queues.take_counts();
            (out, discarded) = (out + counts.0, discarded + counts.1);
            let taken: u64 = qps.iter().map(|qp| node.endpoint.qp_counters(*qp).unwrap().packets_out).sum();
            assert_eq!(taken, out + discarded + queues.waiting(), "seed {seed}: {out} out, {discarded} discarded");
        }
        assert!(out > 50 && cut > 5 && discarded > cut, "seed {seed}: {out} out, {discarded} discarded, {cut} cut");
    }
}
