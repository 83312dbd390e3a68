//! What a user can do about each drop cause.

use super::cause::DropCause;

/// Explanation of a cause of missing data, or of a run's end.
#[derive(Clone, Copy, Debug)]
pub struct Explanation {
    /// Where it is counted or reported.
    pub counted: &'static str,
    /// Usual reasons for it.
    pub reason: &'static str,
    /// What to do, each with its command; without commands if there is nothing to do.
    pub remedies: &'static [(&'static str, &'static str)],
}

/// Defines the method `explanation` of an enum from a table: for each variant, where it is counted, its usual reasons, and
/// what to do. A variant that the table lacks is an error.
#[macro_export]
macro_rules! explanations {
    ($causes:ty { $($cause:ident = $counted:expr, $reason:literal, $remedies:expr;)+ }) => {
        impl $causes {
            /// Returns where it is counted or reported, its usual reasons, and what to do.
            pub const fn explanation(self) -> $crate::shot::Explanation {
                match self {
                    $(Self::$cause => $crate::shot::Explanation {
                        counted: $counted,
                        reason: $reason,
                        remedies: $remedies,
                    },)+
                }
            }
        }
    };
}

/// Nothing has to be done.
pub const NO_REMEDY: &[(&str, &str)] = &[];

/// Places where dropped packets are counted.
const PACKETS: &str = "\"packets dropped\" of the summary, `packet_drops` of its JSON; the shot is partial";
/// Places where dropped shots are counted.
const SHOTS: &str = "\"shots dropped\" of the summary, `drops` of its JSON, the table `losses` of the file";

const CHECK: (&str, &str) =
    ("check this machine and the path to the probe", "shotline doctor --probe 192.168.1.20:47910 --gbps 10");
const CAPTURE: (&str, &str) = ("capture packets", "sudo tcpdump -i eth1 -s 0 -w run.pcap udp port 4791");
const INSPECT: (&str, &str) = ("examine the capture", "shotline inspect run.pcap");
const MORE_POOL: (&str, &str) =
    ("hold more shots in memory", "shotline record --probe 192.168.1.20:47910 --out run.h5 --pool 4GiB");
const DRIVE_SPEED: (&str, &str) = ("measure the drive", "shotline doctor --out /data/run.h5 --gbps 10");
const TWO_DRIVES: (&str, &str) = (
    "share the shots among drives",
    "shotline record --probe 192.168.1.20:47910 --out /mnt/a/run.h5 --out /mnt/b/run.h5",
);
const LOWER_RATE: (&str, &str) =
    ("request a lower rate", "shotline record --probe 192.168.1.20:47910 --out run.h5 --gbps 5");

explanations! {
    DropCause {
        WireGap = "\"packets missing\" of the summary; \"shots dropped: wire_gap\" if no packet of a shot arrived",
            "The receive buffer overflowed while the receive thread waited for a processor; a switch or a network card dropped packets; a packet arrived too damaged to identify its position.",
            &[
                CHECK,
                ("allow a larger receive buffer", "sudo sysctl -w net.core.rmem_max=268435456"),
                ("see whether the kernel dropped packets (UdpRcvbufErrors)", "nstat -az UdpRcvbufErrors"),
                ("see whether the card dropped packets", "ip -s link show dev eth1"),
                ("find the highest rate without loss", "shotline sweep search"),
                LOWER_RATE,
            ];
        BadIcrc = PACKETS,
            "A cable, a transceiver or a switch damages packets, or the sender computes the ICRC in another way (then no packet is good).",
            &[CAPTURE, INSPECT, ("see the errors that the card counts", "ethtool -S eth1")];
        Malformed = PACKETS,
            "The sender uses another framing or geometry than the receiver expects, or another program sends to this port.",
            &[
                CAPTURE,
                INSPECT,
                (
                    "name the framing of a sender without set-up",
                    "shotline record --listen 10.0.0.2:7148 --framing spead --out run.h5",
                ),
            ];
        Duplicate = "\"packets dropped\" of the summary, `packet_drops` of its JSON; the shot is complete",
            "The network or the sender sent a packet twice. The first one counts.",
            NO_REMEDY;
        Late = "\"packets dropped\" of the summary, `packet_drops` of its JSON; the shot was already closed, as partial",
            "A link delays or reorders packets for longer than a shot stays open.",
            &[
                (
                    "keep shots open for longer",
                    "shotline record --probe 192.168.1.20:47910 --out run.h5 --timeout-ms 500 --window 16",
                ),
                CHECK,
            ];
        UnknownStream = "\"packets dropped: unknown_stream\" of the summary; no shot is concerned",
            "Another host sends to this port, or the sender uses another queue pair or key than the receiver expects.",
            &[
                ("see who sends to this port", "sudo tcpdump -n -i eth1 -c 20 udp port 4791"),
                ("see where a probe sends to", "shotline probe status 192.168.1.20"),
                (
                    "specify the queue pair and key of a sender without set-up",
                    "shotline record --listen 10.0.0.2:4791 --queue-pair 0x11 --q-key 0x11111111 --out run.h5",
                ),
            ];
        NoBuffer = "\"shots dropped\" and \"packets dropped\" of the summary, the table `losses` of the file",
            "All buffers of the pool were in use: the recorder was too slow for longer than the pool lasts, or many shots were open at the same time.",
            &[MORE_POOL, DRIVE_SPEED, TWO_DRIVES, LOWER_RATE];
        SinkBusy = SHOTS,
            "The drive was slower than the network for longer than the pool lasts. `--policy` decides which shots are dropped.",
            &[
                DRIVE_SPEED,
                ("measure the recorder over the rate", "shotline sweep disk --dir /data"),
                MORE_POOL,
                TWO_DRIVES,
                LOWER_RATE,
            ];
        SinkError = SHOTS,
            "A write to the drive, or a copy from the memory of a device, failed. The run's error or warning has the reason.",
            &[("see the errors of the kernel", "sudo dmesg"), ("see the free space", "df -h"), DRIVE_SPEED];
        ChannelStopped = SHOTS,
            "The stream was stopped while it sent this shot.",
            NO_REMEDY;
        Overrun = "the rows and the table `losses` of the file; \"shots dropped\" if nothing of a shot was sent",
            "The instrument ran out of its own buffers, and reported it: it takes shots faster than it can send them.",
            &[
                ("see what a probe has sent", "shotline probe status 192.168.1.20"),
                (
                    "request shots less often",
                    "shotline record --probe 192.168.1.20:47910 --out run.h5 --rate-hz 500",
                ),
                ("calculate the limit of its links", "shotline plan --trigger '5 kHz'"),
            ];
        BeforeStart = "\"packets dropped\" and \"shots dropped\" of the summary",
            "The sender was already sending when the receiver started. A recording begins with the first whole shot.",
            NO_REMEDY;
        BadRecord = "the rows of the file: the shot is partial; \"shots dropped\" with --align stamp, if the shot has no time",
            "A defect of the sender: the end-of-shot record does not describe the samples that were sent.",
            &[CAPTURE, INSPECT, ("see which shots of a recording are concerned", "shotline inspect run.h5 --json")];
        SinkFull = SHOTS,
            "All rows of the file are in use, the drive is full, or the shot arrived after the last of `--shots`.",
            &[
                ("allocate more rows", "shotline record --probe 192.168.1.20:47910 --out run.h5 --capacity 100000"),
                (
                    "keep the newest data only",
                    "shotline record --probe 192.168.1.20:47910 --out run.h5 --keep 400GiB",
                ),
                ("see the free space", "df -h"),
            ];
        NotData = "\"packets dropped\" and \"shots dropped\" of the summary",
            "A SPEAD sender sends descriptors and stream control with the numbers of shots. They contain no samples.",
            NO_REMEDY;
        PowerCut = "the table `losses` and the rows of a file that was recovered",
            "The power failed, or the program was killed, before the drive had written the shot.",
            &[
                ("repair an interrupted recording", "shotline recover run.h5"),
                (
                    "sync data before it becomes visible",
                    "shotline record --probe 192.168.1.20:47910 --out run.h5 --durable",
                ),
            ];
        NotTriggered = SHOTS,
            "With `--pre-trigger`, only shots around a trigger are recorded. No trigger came while this one was held.",
            &[(
            "hold more seconds before a trigger",
            "shotline record --probe 192.168.1.20:47910 --out run.h5 --pre-trigger 10 --pool 8GiB",
        )];
        Unplaced = PACKETS,
            "Packets of `--framing counted` have only a count, and an RDMA device does not show it: if one is missing, the positions of the others are unknown.",
            &[(
            "use packets that name their position",
            "shotline record --probe 192.168.1.20:47910 --out run.h5 --framing ud --transport ibverbs:mlx5_0",
        )];
        SenderRestart = "\"packets dropped\" and \"shots dropped\" of the summary, which also has the number of restarts",
            "A sender without set-up was restarted and its numbers began again. This arrived before the restart was certain.",
            NO_REMEDY;
    }
}
