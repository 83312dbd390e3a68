"""Builds the guest's kernel and initial file system from Debian packages, and caches them in .cache/guest.

The kernel package is downloaded and unpacked, but not installed, so the host's own boot is not affected. The programs and
their libraries are copied from the host, where `scripts/setup.sh guest` installs them.
"""

import fcntl
import hashlib
import lzma
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "guest"
KERNEL = "linux-image-amd64"  # metapackage of the current kernel; the cloud kernel has no Soft-RoCE

FINGERPRINT = 16  # characters in the name of an image's folder

PACKAGES = ["busybox-static", "kmod", "iproute2", "ethtool", "ibverbs-utils", "ibverbs-providers", "rdmacm-utils"]
PACKAGES += ["perftest", "nvme-cli", "libibverbs1", "librdmacm1", "e2fsprogs"]

MODULES = ["virtio_pci", "virtio_net", "virtio_console", "9pnet_virtio", "9p", "nvme"]
MODULES += ["ext4"]
MODULES += ["crc32_pclmul", "crc32c-intel", "crc32_generic", "crc32c_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm"]
MODULES += ["veth"]
MODULES += ["uio_pci_generic"]  # for DPDK
ON_DEMAND = {"display": ["virtio-gpu", "bochs"]}  # groups that only some guests load

PROGRAMS = ["ibv_devices", "ibv_devinfo", "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"]
PROGRAMS += [f"ib_{verb}_{what}" for verb in ("send", "write", "read", "atomic") for what in ("bw", "lat")]
PROGRAMS += ["rping", "ucmatose", "udaddy", "rdma", "ip", "ethtool", "nvme", "mke2fs"]


INSTALL = "run scripts/setup.sh guest"


class Missing(Exception):
    """Raised if a program, package or file that the guest needs is not on the host."""


def output(*words, **options):
    """Runs a program and returns its standard output; raises `Missing` if it is not installed or fails."""
    try:
        return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True, **options).stdout
    except OSError as error:
        raise Missing(f"{words[0]}: {error.strerror}; {INSTALL}") from None
    except subprocess.CalledProcessError as error:
        raise Missing(f"{words[0]} failed: {error.stderr.strip()}; {INSTALL}") from None


def image():
    """Returns the kernel and the initial file system; builds them only if their inputs have changed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run concurrently
        package, version = kernel_package()
        folder = CACHE / fingerprint(package, version)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as work:
                make(package, version, Path(work))
                for old in CACHE.glob("[0-9a-f]" * FINGERPRINT):
                    shutil.rmtree(old)
                (Path(work) / "image").rename(folder)
        return folder / "vmlinux", folder / "initrd"


def kernel_package():
    """Returns name and version of the kernel's package: the current one, or the one in the cache."""
    try:
        named = re.search(r"Depends: (linux-image-\S+)", output("apt-cache", "depends", KERNEL))
        package = named.group(1)
        return package, re.search(r"Candidate: (\S+)", output("apt-cache", "policy", package)).group(1)
    except (Missing, AttributeError):
        for file in sorted(CACHE.glob("linux-image-*.deb"), key=lambda file: file.stat().st_mtime, reverse=True):
            return file.name.split("_")[0], file.name.split("_")[1].replace("%3a", ":")
    raise Missing(f"the package {KERNEL} is not known: run apt-get update")


def fingerprint(package, version):
    """Returns a hash of all inputs of the image."""
    versions = output("dpkg-query", "-W", "-f=${Package} ${Version}\n", *PACKAGES)
    sources = [(HERE / name).read_text() for name in ("image.py", "init.sh")]
    return hashlib.sha256("\n".join([package, version, versions, *sources]).encode()).hexdigest()[:FINGERPRINT]


def make(package, version, work):
    root, out = work / "root", work / "image"
    out.mkdir()
    output("dpkg-deb", "-x", deb(package, version), work / "kernel")
    boot = only(work / "kernel" / "boot", "vmlinuz-*")
    (out / "vmlinux").write_bytes(unpacked(boot.read_bytes()))
    for folder in ("bin", "sbin", "usr/bin", "proc", "sys", "dev", "tmp", "share", "etc", "var/run", "root"):
        (root / folder).mkdir(parents=True)
    put_modules(work / "kernel", boot.name.removeprefix("vmlinuz-"), root / "modules")
    put_programs(root)
    shutil.copy(HERE / "init.sh", root / "init")
    (root / "init").chmod(0o755)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    names = "\n".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
    command = ["cpio", "--create", "--format=newc", "--quiet", "--owner=0:0", "-O", out / "initrd"]
    output(*command, cwd=root, input=names)


def deb(package, version):
    """Returns the file of a package's version, downloaded if it is not cached; removes those of other versions."""
    name = f"{package}_{version.replace(':', '%3a')}_*.deb"
    if found := list(CACHE.glob(name)):
        return found[0]
    with tempfile.TemporaryDirectory(dir=CACHE) as work:  # renamed when complete
        output("apt-get", "download", f"{package}={version}", cwd=work)
        complete = only(Path(work), name)
        for old in CACHE.glob("linux-image-*.deb"):
            old.unlink()
        return complete.rename(CACHE / complete.name)


def only(folder, pattern):
    """Returns the only file of a folder that matches a pattern."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise Missing(f"expected one {pattern} in {folder}, found {len(found)}; {INSTALL}")
    return found[0]


def unpacked(kernel):
    """Returns the ELF file in a bzImage, which boots faster (Documentation/x86/boot.rst: setup_sects, payload)."""
    setup = (kernel[0x1F1] + 1) * 512
    offset, length = struct.unpack_from("<II", kernel, 0x248)
    payload = kernel[setup + offset : setup + offset + length]
    if payload[:6] != b"\xfd7zXZ\0":
        raise Missing("expected a kernel compressed by xz")
    return lzma.LZMADecompressor().decompress(payload)


def put_modules(tree, version, target):
    """Copies the modules with their dependencies, and writes the order in which to load them, one file a group."""
    target.mkdir()
    output("/sbin/depmod", "-b", tree, version)
    always = []
    for group, names in {"order": MODULES, **ON_DEMAND}.items():
        order = []
        for name in names:
            for line in output("/sbin/modprobe", "-d", tree, "-S", version, "--show-depends", name).splitlines():
                word, path = line.split()[:2]
                if word == "insmod" and path not in [*always, *order]:
                    order.append(path)
                    shutil.copy(path, target)
        (target / group).write_text("".join(f"{Path(path).name}\n" for path in order))
        always = always or order


def put_programs(root):
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    search = "/usr/bin:/usr/sbin:/bin:/sbin"
    found = {name: shutil.which(name, path=search) for name in PROGRAMS}
    if missing := [name for name, path in found.items() if not path]:
        raise Missing(f"{', '.join(missing)}: {INSTALL}")
    for name, path in found.items():
        shutil.copy(path, root / "usr" / "bin" / name)
    provider = only(Path("/usr/lib"), "*/libibverbs/librxe-*.so")
    driver = Path("/etc/libibverbs.d/rxe.driver")
    unwinder = only(Path("/lib"), "*-linux-gnu/libgcc_s.so.1")  # loaded by the C library when a thread ends
    for file in {provider, driver, unwinder, *map(Path, libraries([*found.values(), provider]))}:
        target = root / file.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def libraries(programs):
    """Returns the shared libraries that programs need, and the loader."""
    found = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    return sorted(set(re.findall(r"(/\S+) \(0x", found)))
