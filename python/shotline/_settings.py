"""Settings of a run, as of `shotline record`. Written by scripts/settings_types.py from docs/schemas/settings.json."""

import os
from typing import Literal, TypedDict


class Settings(TypedDict, total=False):
    """Settings of a run: the keys of a settings file, which are the flags of `shotline record`."""

    align: Literal["number", "stamp"]
    """How shots of several links are grouped into events: by number, or by stamp of the first sample [default:
    number]."""

    align_timeout: str
    """Time that an event waits for late links [default: three times timeout-ms]."""

    align_window: str
    """Maximum difference between stamps of one event; less than half the time between events [default: a quarter of
    the shortest observed interval, 10us to 10ms]."""

    bind: str
    """Local address for packets [default: source address of the route, port 4791 for RoCE, 47911 for plain UDP]."""

    bits: int
    """Significant bits of a sample [default: all bits of the format]."""

    buffered: bool
    """Write through the page cache instead of with direct I/O."""

    busy_poll: bool
    """Never sleep while waiting for packets."""

    capacity: int
    """Number of shots to allocate the file for [default: shots, else as many as fit in half of the free space]."""

    channels: int
    """Channels of each link [default: 96, or 1 for spead and hsb]."""

    clock: str
    """Clock of the receiver's timestamps: system, or ptp:/dev/ptpN [default: system]."""

    commit_ms: int
    """Maximum time in ms until shots become visible (with durable: and durable) [default: 20]."""

    compress: Literal["none", "lz4", "zstd"]
    """Compress shots: none, lz4 or zstd, both after bitshuffle; readers need hdf5plugin [default: none]."""

    compress_level: int
    """Level of zstd, -7 to 22: higher is smaller and slower [default: 1]."""

    compress_threads: int
    """Compression threads; shots beyond their throughput are stored uncompressed [default: all processors but
    one]."""

    cpu: int
    """Processor of the receive thread [default: any]."""

    discard: bool
    """Receive and check shots, but store none."""

    durable: bool
    """Survive a power failure, not only a killed process: data is synced before its shots become visible."""

    eal: str
    """Additional arguments of DPDK's EAL, such as eal=log-level=8."""

    external_trigger: bool
    """Start shots by the probe's external trigger."""

    force: bool
    """Replace an existing file."""

    framing: Literal["ud", "counted", "udp", "digitizer", "vita49", "spead", "hsb"]
    """Framing of packets: ud, counted or udp; with listen also digitizer, vita49, spead or hsb [default: ud]."""

    gbps: float
    """Payload rate over all links in Gbit/s, instead of rate-hz."""

    idle_s: float
    """End after this many seconds without a packet, counted from the start of listening."""

    in_flight: int
    """Maximum number of writes in flight [default: 16, or 4 for digitizer and vita49]."""

    keep: int | str
    """Maximum size of the run on all drives: the oldest files are deleted [default size of a file: an eighth of
    it]."""

    links: int
    """Number of links to record [default: all of the probe]."""

    listen: str
    """Local address to receive on, for senders without set-up (instead of probe)."""

    mtu: int
    """Maximum length of an IP packet in bytes, for transports that bypass the kernel [default: 9000]."""

    notes: str
    """Notes about this run, stored in the file."""

    operator: str
    """Name of the operator, stored in the file [default: $USER]."""

    out: str | os.PathLike[str] | list[str | os.PathLike[str]]
    """File to record to; several files on several drives share the shots; a name that ends in .pcapng writes a
    packet capture; nvme:DEVICE or nvme:DEVICE/NAME records to a raw device."""

    pages: int
    """Number of pages in the ring of a sensor bridge [default: learned when the ring wraps around]."""

    peer_mac: str
    """Ethernet address of the peer or router, for transports that bypass the kernel [default: learned, else
    broadcast]."""

    policy: Literal["drop-newest", "drop-oldest", "block"]
    """Overflow policy when the sink is too slow: drop-newest, drop-oldest or block [default: drop-newest]."""

    pool: int | str
    """Memory for shot buffers [default: 256MiB, or 1.5GiB for each link of digitizer and vita49]."""

    pool_memory: str
    """Kind of that memory: heap, huge, memfd, file=PATH, emulated[:PATH][:write=RATE][:read=RATE][:latency=TIME],
    bar:ADDRESS/BAR[:access=4], dmabuf:FD or cuda:N [default: heap]."""

    post_trigger: float
    """Record until this many seconds after the last trigger [default: 1]."""

    pre_trigger: float
    """Hold the last seconds before a trigger in memory, and record only around triggers."""

    probe: str
    """Set-up address of the probe, or NAME:PORT."""

    q_key: int
    """Queue key of ud packets."""

    queue_pair: int
    """Destination queue pair of ud packets of link 0; each further link uses the next number."""

    quorum: int
    """Minimum number of links of a recorded event [default: 1]."""

    rate_hz: float
    """Shots per second [default: the probe is free-running]."""

    receive_buffer: int | str
    """Receive buffer to request from the kernel [default: 256MiB]."""

    recycle: bool
    """With force: discard the old file at once and reuse its blocks, which is faster than allocating new ones."""

    roll_seconds: float
    """Start a new file after this many seconds."""

    roll_shots: int
    """Start a new file after this many shots (events of all links)."""

    roll_size: int | str
    """Start a new file before one exceeds this size."""

    sample_format: Literal["int16_le", "packed12_msb_first", "uint8", "int16_be"]
    """Sample format: packed12_msb_first, int16_le or uint8 [default: packed12_msb_first, or uint8 for spead and
    hsb]."""

    sample_rate_hz: int
    """Sample rate in Hz, stored in the file."""

    samples: int
    """Samples per channel and shot [default: 2000, or the probe's maximum if lower]."""

    seconds: float
    """End after this many seconds."""

    sequential: bool
    """Receive nothing while the drive writes, to measure the gain of pipelining; needs a transport with credits and
    policy block."""

    serial: str
    """With force: the serial number of the raw device (nvme:DEVICE) whose contents may be overwritten."""

    shots: int
    """End after this many shots."""

    take_over: bool
    """Take over the probe from another receiver, or from one that crashed."""

    timeout_ms: int
    """Close a shot after this many ms without a packet of it [default: 100]."""

    transmit_sequence: list[int]
    """Cyclic sequence of transmit events of the shots, such as 1,2,3 [default: as configured before]."""

    transport: str
    """Transport of packets: auto, udp, xdp:INTERFACE, packet:INTERFACE, ibverbs:DEVICE,port=N,gid=INDEX or
    dpdk:DEVICE, such as xdp:eth1,mode=native, ibverbs:mlx5_0 or
    dpdk:net_memif0,role=server,id=0,socket=/run/shot.sock [default: udp]."""

    trigger: Literal["flag", "signal", "both"]
    """Trigger source: flag (of a shot), signal (SIGUSR1 to this program) or both [default: both]."""

    window: int
    """Close a shot when one that is newer by this many shots has begun [default: at least 4]."""
