"""Runs a QEMU guest with Linux's RDMA stack, connected to the host by a virtual cable.

Guest and cable are in a network namespace that needs no privileges: a user namespace gives the right to create a tap
device (if users cannot create one, root works without it). `Guest.on_host` starts programs at the host's end of the
cable. QEMU emulates the processor, so rates are meaningless. The cable is lossless: QEMU takes a packet only if the
guest has a buffer for it, and the others wait in the tap device's queue. The guest has one processor: with two, one
that the host does not schedule would block the other, and booting on a busy host would take 1.5 times as long.

KVM is not used. Not all machines have it, and the presence of /dev/kvm proves little: in a virtual machine it may
support only special guests (pagetable virtual machines, kvm_pvm), and then QEMU 7.2 exits at once with `-cpu host` (it
cannot set MSR 0x10a), and with `-cpu qemu64` Debian's kernel never starts.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from image import HERE, INSTALL, Missing, image, libraries, only

HOST, HOST6 = "10.77.0.1", "fd77::1"
GUEST, GUEST_2, GUEST_3, GUEST6 = "10.77.0.2", "10.77.0.3", "10.77.0.4", "fd77::2"
HOST_MAC, GUEST_MAC = "52:54:00:77:00:01", "52:54:00:77:00:02"
MTU = 4300  # 4096 bytes of payload and all headers
LIMIT = 120  # default time limit of a command, in seconds
GRACE = 60  # additional seconds for the guest to report the end of a command
BOOT_LIMIT = 180  # seconds; booting takes about ten seconds on an idle machine
DRIVER = HERE.parent / "target" / "dpdk" / "librte_net_shotline.so"
WINDOW = 4 << 20  # bytes of the window of a simulated packet card (dpdk/window.h)
BAR_SLOT = 16  # PCI device number of the file `bar`, after those that QEMU assigns
BAR = f"0000:00:{BAR_SLOT:02x}.0/2"
SCREEN, SIMPLE = "screen", "simple"  # names of the devices of `Screens`
SCREEN_DEVICE, SIMPLE_DEVICE = "/dev/dri/card0", "/dev/dri/card1"  # in the order in which image.py loads their modules
QUEUE = 10_000  # packets queued on the cable for the guest: more than any program has in flight
TOOLS = ("qemu-system-x86_64", "unshare", "nsenter", "setpriv", "ip")


class GuestError(Exception):
    """Raised with the guest's output if the guest fails or does not respond."""


class Done:
    """The result of a command in the guest."""

    def __init__(self, command, code, output):
        self.command, self.code, self.output = command, code, output

    def succeeded(self):
        assert self.code == 0, f"exit code {self.code} in the guest: {self.command}\n{self.output}"
        return self.output


class Job:
    """A command that runs in the guest."""

    def __init__(self, guest, name, command, deadline):
        self.guest, self.name, self.command, self.deadline = guest, name, command, deadline

    def output(self):
        """Returns the output so far."""
        file = self.guest.share / f"{self.name}.out"
        return file.read_text(errors="replace") if file.exists() else ""

    def ended(self):
        self.guest.listen(0)
        return self.name in self.guest.ended

    def end(self, on_output=None):
        """Waits until the command ends. `on_output` is called with its output as it is produced."""
        shown = 0
        while True:
            ended = self.name in self.guest.ended
            if on_output:
                text = self.output()
                on_output(text[shown:])
                shown = len(text)
            if ended:
                code = int((self.guest.share / f"{self.name}.code").read_text())
                return Done(self.command, code, self.output())
            if time.monotonic() > self.deadline + GRACE:  # the guest itself enforces the limit
                raise GuestError(f"the guest does not respond any more: {self.command}\n{self.guest.last_words()}")
            self.guest.listen(0.2 if on_output else 1)


@dataclass
class Drive:
    """An NVMe drive of the guest, named nvme0, nvme1, ... in the order of the list, with its contents in `file`."""

    file: Path
    serial: str
    block: int = 512  # bytes of a logical block
    mdts: int = 7  # maximum data transfer size: 4096 << mdts bytes per command
    faults: str = ""  # rules of QEMU's blkdebug driver: which commands fail, and how
    bytes_per_second: int = 0  # 0: unlimited

    def words(self, name, folder):
        """Returns the arguments of QEMU's command line."""
        file = self.file
        if self.faults:
            rules = folder / f"{name}.rules"
            rules.write_text(self.faults)
            file = f"blkdebug:{rules}:{file}"
        throttle = f",throttling.bps-write={self.bytes_per_second}" if self.bytes_per_second else ""
        words = ["-drive", f"file={file},if=none,id={name},format=raw,cache=writeback,aio=threads{throttle}"]
        block = f"logical_block_size={self.block},physical_block_size={self.block}"
        return [*words, "-device", f"nvme,drive={name},serial={self.serial},mdts={self.mdts},{block}"]


def shared_file(name, file, bytes):
    """Returns the arguments of QEMU that make a file of this machine a memory of the guest's machine."""
    return ["-object", f"memory-backend-file,share=on,id={name},size={bytes},mem-path={file}"]


def ivshmem(name, file, slot=None):
    """Returns the arguments of QEMU for a PCI device whose BAR 2 is a file."""
    bytes = file.stat().st_size if file.exists() else 0
    if bytes == 0 or bytes & (bytes - 1):
        raise GuestError(f"{file} has {bytes} bytes, expected a power of 2, as the length of a BAR is")
    at = f",addr={slot:#x}" if slot else ""
    return [*shared_file(name, file, bytes), "-device", f"ivshmem-plain,memdev={name}{at}"]


@dataclass
class Card:
    """An ivshmem device whose BAR 2 is the window of a simulated packet card, with the guest's memory in a file for it.

    `shotline emulate card --window FOLDER/window --memory FOLDER/memory` is the card. A process that maps the file of the
    memory finds the guest's physical address A at the offset A, if there are at most 2 GiB. The guest gets dpdk-testpmd
    with the card's driver, which `card-testpmd` starts.
    """

    folder: Path

    @staticmethod
    def programs():
        """Returns the files that the guest needs."""
        testpmd = shutil.which("dpdk-testpmd")
        if not testpmd or not DRIVER.exists():
            raise Missing(f"dpdk-testpmd or {DRIVER}: run scripts/setup.sh dpdk, then make pmd")
        pool = only(Path("/usr/lib"), "*/dpdk/pmds-*/librte_mempool_ring.so.*.*")  # of mbufs
        return [HERE / "card-testpmd", testpmd, pool, DRIVER]

    @property
    def window(self):
        return self.folder / "window"

    @property
    def memory(self):
        return self.folder / "memory"

    def create(self, memory):
        """Creates the files, so that either process may be the first to open them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for file, bytes in ((self.window, WINDOW), (self.memory, memory << 20)):
            with open(file, "ab") as opened:
                opened.truncate(bytes)

    def words(self, memory):
        """Returns the arguments of QEMU's command line."""
        return [
            *shared_file("memory", self.memory, memory << 20),
            *("-machine", "memory-backend=memory"),
            *ivshmem("window", self.window),
        ]


@dataclass
class Screens:
    """Display devices of the guest, each with a screen: SCREEN, a virtio-gpu, and SIMPLE, a bochs-display.

    The size is that of the virtio-gpu's first mode. Nothing on this machine shows the screens: `Guest.screenshot` returns
    what they show. The drivers do not count refreshes. Frame buffers of virtio-gpu can be exported (dma-buf), those of
    bochs in the guest's kernel cannot.
    """

    width: int = 1024
    height: int = 768

    def words(self, socket):
        """Returns the arguments of QEMU's command line, with a socket for its monitor."""
        return [
            *("-device", f"virtio-gpu-pci,id={SCREEN},xres={self.width},yres={self.height}"),
            *("-device", f"bochs-display,id={SIMPLE}"),
            *("-qmp", f"unix:{socket},server=on,wait=off"),
        ]


def monitor(socket_file, name, **arguments):
    """Executes a command of QEMU's monitor and returns its result."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(GRACE)
        connection.connect(str(socket_file))
        with connection.makefile("rw") as lines:
            lines.readline()  # the greeting
            for request in ({"execute": "qmp_capabilities"}, {"execute": name, "arguments": arguments}):
                print(json.dumps(request), file=lines, flush=True)
                while "event" in (answer := json.loads(lines.readline())):
                    pass
                if "error" in answer:
                    raise GuestError(f"QEMU refuses {name}: {answer['error']['desc']}")
            return answer["return"]


class Guest:
    """A running guest, which with `wait=False` may still be booting until `booted` returns.

    The end of the `with` block kills it and removes `share`, the folder of its /share. `limit` is the default time
    limit of a command in seconds. `bar` is a file that is the memory of a PCI device without a driver, behind the BAR
    named `BAR`. `screens` adds display devices.
    """

    def __init__(self, programs=(), memory=1024, drives=(), card=None, bar=None, screens=None, limit=LIMIT, wait=True):
        if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
            raise Missing(f"{', '.join(missing)}: {INSTALL}")
        kernel, initrd = image()
        self.folder = tempfile.TemporaryDirectory(prefix="guest-")
        self.path = Path(self.folder.name)
        self.share = self.path / "share"
        for name in ("bin", "lib"):
            (self.share / name).mkdir(parents=True)
        for program in [*programs, *(card.programs() if card else [])]:
            self.put(program)
        self.jobs, self.ended, self.unread, self.limit = 0, set(), b"", limit
        self.process = self.port = None
        try:
            self.start(kernel, initrd, memory, drives, card, bar, screens)
            if wait:
                self.booted()
        except BaseException:
            self.close()
            raise

    def copy_share(self, folder):
        """Copies the contents of the guest's /share to a folder of the host, except for files of this module."""
        internal = {"bin", "lib"}
        internal |= {f"job{number}.{kind}" for number in range(1, self.jobs + 1) for kind in ("sh", "out", "code")}

        def ignore(at, _):
            return internal if Path(at) == self.share else ()

        try:
            shutil.copytree(self.share, folder, ignore=ignore, symlinks=True, dirs_exist_ok=True)
        except OSError as error:
            raise GuestError(f"the files in /share cannot be copied to {folder}: {error}") from None

    def put(self, program):
        """Copies a program of the host with its libraries to the guest."""
        copy = shutil.copy(program, self.share / "bin")
        if strip := shutil.which("strip"):  # because debug information is slow to load
            subprocess.run([strip, "--strip-debug", copy], check=False, capture_output=True)
        for library in libraries([program]):
            shutil.copy(library, self.share / "lib")

    def start(self, kernel, initrd, memory, drives, card, bar, screens):
        addresses = ",".join([*(f"{address}/24" for address in (GUEST, GUEST_2, GUEST_3)), f"{GUEST6}/64"])
        words = ["console=ttyS0", "quiet", "panic=-1", "mitigations=off", "nokaslr"]
        # The guest calibrates its TSC at boot, which fails on a busy host: its clock then ran some thirty times too
        # fast. QEMU derives the HPET from the host's clock.
        words += ["tsc=reliable", "clocksource=hpet"]
        # For the same reason its check of the timer may fail with a panic. Also, once in some forty boots a one-shot
        # timer never fired: a periodic tick does not depend on it.
        words += ["no_timer_check", "nohz=off", "highres=off"]
        words += [f"shotline.mtu={MTU}", f"shotline.addresses={addresses}"]
        words += [f"shotline.peers={HOST},{HOST6}", f"shotline.peer-mac={HOST_MAC}"]
        words += ["shotline.modules=display"] if screens else []
        qemu = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max"]
        qemu += ["-m", str(memory), "-nodefaults", "-nographic", "-no-reboot"]
        qemu += ["-serial", f"file:{self.path}/console", "-kernel", kernel, "-initrd", initrd]
        qemu += ["-append", " ".join(words)]
        qemu += ["-virtfs", f"local,path={self.share},mount_tag=share,security_model=none"]
        qemu += ["-netdev", "tap,id=cable,ifname=cable,script=no,downscript=no"]
        network = f"virtio-net-pci,netdev=cable,mac={GUEST_MAC},host_mtu={MTU},rx_queue_size=1024,romfile="
        qemu += ["-device", network]
        qemu += ["-device", "virtio-serial-pci", "-chardev", f"socket,id=jobs,path={self.path}/jobs,server=on,wait=off"]
        qemu += ["-device", "virtserialport,chardev=jobs,name=jobs"]
        for number, drive in enumerate(drives):
            qemu += drive.words(f"drive{number}", self.path)
        if card:
            card.create(memory)
            qemu += card.words(memory)
        if bar:
            qemu += ivshmem("bar", bar, BAR_SLOT)
        if screens:
            qemu += screens.words(self.path / "monitor")
        cable = [
            "ip link set lo up",
            "ip tuntap add cable mode tap",
            f"ip link set cable address {HOST_MAC} mtu {MTU} txqueuelen {QUEUE} up",
            f"ip address add {HOST}/24 dev cable",
            f"ip address add {HOST6}/64 dev cable nodad",
            f"for peer in {GUEST} {GUEST_2} {GUEST_3} {GUEST6}",
            f"do ip neighbour replace $peer lladdr {GUEST_MAC} dev cable; done",  # no ARP
            'exec setpriv --pdeathsig KILL "$@"',
        ]
        command = [*self.unshare(), "sh", "-ec", "\n".join(cable), "sh", *map(str, qemu)]
        with open(self.path / "qemu", "w") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def booted(self):
        """Waits until the guest runs commands."""
        end = time.monotonic() + BOOT_LIMIT
        self.port = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.port.connect(str(self.path / "jobs"))
                break
            except OSError:
                self.check(end)
                time.sleep(0.02)
        while "ready" not in self.ended:
            self.check(end)
            self.listen(0.5)

    @staticmethod
    def unshare():
        words = ["unshare", "--net"]
        return words if os.geteuid() == 0 else [*words, "--user", "--map-root-user"]

    def check(self, end):
        if self.process.poll() is not None or time.monotonic() > end:
            raise GuestError(f"the guest did not boot within {BOOT_LIMIT} s\n{self.last_words()}")

    def last_words(self):
        """Returns the last output of the guest's kernel and of QEMU."""
        files = [self.path / "qemu", self.path / "console"]
        return "\n".join(file.read_text(errors="replace")[-3000:] for file in files if file.exists())

    def on_host(self, *command):
        """Returns the arguments that run a command at the host's end of the cable."""
        namespaces = f"/proc/{self.process.pid}/ns"
        enter = ["nsenter", f"--net={namespaces}/net"]
        if os.geteuid() != 0:
            enter += [f"--user={namespaces}/user", "--preserve-credentials"]
        return [*enter, *map(str, command)]

    def spawn(self, command, limit=None):
        """Starts a shell command or script in the guest."""
        limit = limit or self.limit
        self.jobs += 1
        name = f"job{self.jobs}"
        (self.share / f"{name}.sh").write_text(command + "\n")
        self.port.sendall(f"{name} {limit}\n".encode())
        return Job(self, name, command, time.monotonic() + limit)

    def run(self, command, limit=None, on_output=None):
        """Runs a shell command or script in the guest to its end."""
        return self.spawn(command, limit).end(on_output)

    def listen(self, seconds):
        """Receives the names of commands that have ended, for at most `seconds`."""
        self.port.settimeout(max(seconds, 0.001))
        try:
            received = self.port.recv(4096)
        except (TimeoutError, BlockingIOError):
            return
        except ConnectionError:
            received = b""
        if not received:
            raise GuestError(f"the guest has ended\n{self.last_words()}")
        *lines, self.unread = (self.unread + received).split(b"\n")
        self.ended |= {line.decode() for line in lines}

    def power_failure_image(self, drive):
        """Returns a drive's bytes as after a power failure: QEMU, which holds unwritten data, is stopped for the read."""
        try:
            while True:
                self.process.send_signal(signal.SIGSTOP)
                before = self.stopped_times()
                found = drive.file.read_bytes() if before else b""
                if before and before == self.stopped_times():  # scripts/stress.py may have continued it
                    return found
                time.sleep(0.001)
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stopped_times(self):
        """Returns the CPU time of each of QEMU's threads, None unless all of them are stopped."""
        tasks = list(Path(f"/proc/{self.process.pid}/task").iterdir())
        if all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks):
            return {task.name: (task / "schedstat").read_text() for task in tasks}
        return None

    def screenshot(self, screen=SCREEN):
        """Returns what a screen shows: width, height, and the bytes of its pixels (red, green, blue) row by row."""
        file = self.path / "screenshot.ppm"
        monitor(self.path / "monitor", "screendump", filename=str(file), device=screen)
        magic, size, depth, pixels = file.read_bytes().split(b"\n", 3)
        assert (magic, depth) == (b"P6", b"255"), (magic, depth)
        return *map(int, size.split()), pixels

    def gid(self, address=GUEST):
        """Returns the index of an address in the GID table of rxe0."""
        raw = socket.inet_pton(socket.AF_INET6, address if ":" in address else f"::ffff:{address}").hex()
        words = ":".join(raw[at : at + 4] for at in range(0, 32, 4))
        folder = "/sys/class/infiniband/rxe0/ports/1/gids"
        found = self.run(f"cd {folder} && grep -l {words} *").succeeded()
        return int(found.split()[0])

    def close(self):
        if self.port:
            self.port.close()
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)  # it has no state worth keeping
            self.process.wait()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
