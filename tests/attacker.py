"""An attacker on the cable: captures a probe's datagrams and sends forged ones to the same queue pair in between.

attacker.py INTERFACE KIND COUNT: `key` with a wrong Q_Key, `qp` from another queue pair, `long` longer than a slot.
Prints `ready` when it captures, and finally the number of datagrams sent.
"""

import socket
import struct
import sys
import time
import zlib

ROCE = 4791
ETH_P_ALL = 3
WAIT_TIMEOUT_S = 120  # seconds
PROBE_DATAGRAMS = 12  # datagrams of the probe between two forged ones: more than a shot has
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2  # the identification is then 0


def icrc(source, destination, ports, datagram):
    """Returns the ICRC of a datagram over IPv4 (IBTA annex A17): fields that routers may change count as ones."""
    length = 8 + len(datagram) + 4
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0xFF, 20 + length, 0, 0x4000, 0xFF, 17, 0xFFFF, source, destination)
    udp = struct.pack(">HHHH", *ports, length, 0xFFFF)
    masked = datagram[:4] + b"\xff" + datagram[5:]
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + udp + masked))


def datagrams(interface):
    """Yields source and destination address, source port, and transport header of each datagram that passes."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as sniffer:
        sniffer.bind((interface, ETH_P_ALL))
        sniffer.settimeout(WAIT_TIMEOUT_S)
        print("ready", flush=True)
        while True:
            frame = sniffer.recv(65536)
            ip = frame[14:]
            if frame[12:14] != b"\x08\x00" or ip[9] != 17 or struct.unpack_from(">H", ip, 22)[0] != ROCE:
                continue
            yield ip[12:16], ip[16:20], struct.unpack_from(">H", ip, 20)[0], ip[28:52]


def send_datagrams(source, destination, qp, q_key, count, burst=None, pause=0):
    """Sends `count` datagrams of 4096 bytes in bursts, with `pause` seconds in between.

    Their immediate data numbers them. The last one of a burst requests a solicited event.
    """
    burst = burst or count
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        sender.bind((source, 0))
        ports = sender.getsockname()[1], ROCE
        ends = socket.inet_aton(source), socket.inet_aton(destination)
        for number in range(count):
            last = number == count - 1 or (number + 1) % burst == 0
            solicited = 0x80 if last else 0
            datagram = struct.pack(">BBHII", 0x65, 0x40 | solicited, 0xFFFF, qp, number)
            datagram += struct.pack(">III", q_key, 0x77, number) + bytes(4096)
            sender.sendto(datagram + icrc(*ends, ports, datagram), (destination, ROCE))
            time.sleep(pause if last else 0.001)


def main():
    interface, kind, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    captured = datagrams(interface)
    source, destination, _, header = next(captured)
    qp, q_key, source_qp = (struct.unpack_from(">I", header, offset)[0] for offset in (4, 12, 16))
    payload = bytes(4200 if kind == "long" else 4096)
    q_key ^= 0x5555 if kind == "key" else 0
    source_qp ^= 0x111 if kind != "long" else 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        sender.bind((socket.inet_ntoa(source), 0))
        ports = sender.getsockname()[1], ROCE
        probes = (port for _, _, port, _ in captured if port != ports[0])
        for number in range(count):
            # The immediate data names a shot far ahead: if it were accepted, it would close every earlier shot.
            datagram = struct.pack(">BBHII", 0x65, 0x40, 0xFFFF, qp, number)
            datagram += struct.pack(">III", q_key, source_qp, 0x7000_0000 | number) + payload
            sealed = datagram + icrc(source, destination, ports, datagram)
            sender.sendto(sealed, (socket.inet_ntoa(destination), ROCE))
            for _ in range(PROBE_DATAGRAMS):
                next(probes)
    print(count)


if __name__ == "__main__":
    main()
