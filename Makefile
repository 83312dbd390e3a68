# `make` lists the targets. Each installs its dependencies at the first call (scripts/setup.sh).
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/.cache/tools/bin:$(PATH)
SETUP := scripts/setup.sh
FUZZ_SECONDS ?= 20
# Crates that programs outside of this repository build on.
LIBRARIES := transport verbs store acquire
PREFIX ?= /usr/local
TEST_SETUP := build python package test plot --optional capi web display dpdk guest rtl

.PHONY: help demo demo-rtl demo-dma pmd python install-lib page test test-long test-stress coverage lint-rtl synth bench-rtl bench-dma guest fmt lint deny doc semver fuzz bench-before bench-receive bench-record bench-soak bench-trigger bench-rdma bench-spacefibre bench-plan bench-sweep bench-spead bench-store bench-compress bench-unpack bench-align bench-dsp bench-stencil bench-bmode bench-images bench-page bench-library bench-memif bench-pmd bench-xdp bench-ud-instructions bench-digitizer bench-passthrough plots clean

help: ## list these targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## record an emulated probe into an HDF5 file and verify every sample
	@$(SETUP) build python
	cargo build --release --locked --package shotline
	cargo run --release --locked --quiet --package shotline -- demo

python: ## build the Python package from this tree into .venv: import shotline
	@$(SETUP) build package
	maturin develop --release --locked --quiet

install-lib: ## build and install the C library, shotline.h, files for pkg-config and CMake: make install-lib PREFIX=/usr/local
	@$(SETUP) build
	python3 scripts/install_lib.py --prefix $(PREFIX) $(ARGS)

pmd: ## build the packet card's DPDK driver: target/dpdk/librte_net_shotline.so
	@$(SETUP) build dpdk
	@$(MAKE) --no-print-directory -C dpdk

page: ## build the web page again: crates/dashboard/web/dist, which is committed
	@$(SETUP) web
	cd crates/dashboard/web && npm run --silent build

test: ## run every check and test of the repository; the last line is the total
	@$(SETUP) $(TEST_SETUP)
	@python3 scripts/test.py $(ARGS)

test-long: ## run long tests: soaks, thousands of seeds, whole matrices; MINUTES=60
	@$(SETUP) $(TEST_SETUP)
	@python3 scripts/test_long.py --minutes $(or $(MINUTES),60) $(ARGS)

test-stress: ## run the suite under load, stopped and continued at random; N=1 runs
	@$(SETUP) $(TEST_SETUP)
	@python3 scripts/stress.py --runs $(or $(N),1) -- $(ARGS)

coverage: ## measure line and branch coverage of the Rust code by the whole suite
	@$(SETUP) coverage $(TEST_SETUP)
	@python3 scripts/coverage.py

guest: ## run a command in a QEMU guest with Linux's RDMA stack: make guest CMD='ibv_devinfo -v'
	@$(SETUP) guest
	@python3 guest/run.py $(or $(CMD),ibv_devinfo)

fmt: ## format Rust and Python
	@$(SETUP) python test
	cargo fmt --all
	ruff format .
	ruff check --fix .

lint: ## run clippy and ruff, warnings denied
	@$(SETUP) build python test
	cargo clippy --workspace --all-targets -- -D warnings
	ruff check .

deny: ## check licences, sources and advisories of the dependencies
	@$(SETUP) test
	cargo deny check

lint-rtl: ## lint every module of hdl/rtl with Verilator, all warnings enabled
	@$(SETUP) rtl
	python3 hdl/scripts/lint.py

synth: ## write LUTs, flip-flops, memories and logic levels of every RTL module to hdl/synth/table.md; ARGS=--check
	@$(SETUP) rtl
	python3 hdl/synth/synth.py $(ARGS)

demo-rtl: ## record shots framed by the RTL, verify them, draw its waveform, print its frames
	@$(SETUP) build python plot rtl
	cargo build --locked --package shotline --features rtl
	python3 hdl/scripts/demo.py $(ARGS)

demo-dma: ## receive a capture through the RTL of the packet card into 16 channels, draw its throughput over the length
	@$(SETUP) build python plot rtl
	cargo build --locked --package shotline --features rtl
	cargo build --release --locked --package shotline-rtl --features model --examples
	python3 hdl/scripts/demo_card.py $(ARGS)

doc: ## build the book (docs/book) and the crates' documentation
	@$(SETUP) build doc
	cargo doc --workspace --no-deps
	mdbook build docs

semver: ## compare the public API of the libraries with that of an earlier commit; REV=COMMIT
	@$(SETUP) build semver
	cargo semver-checks --default-features --baseline-rev $(or $(REV),$(error REV=COMMIT is missing)) $(LIBRARIES:%=--package shotline-%)

fuzz: ## run every fuzz target for FUZZ_SECONDS (needs a nightly toolchain)
	@$(SETUP) build fuzz
	for target in $$(cargo +nightly fuzz list); do \
	    cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

bench-before: ## compare Shotline with the build of an earlier commit, in pairs of runs; REV=COMMIT, ARGS=... for its options
	@$(SETUP) build python
	test -d target/before/src || git clone --quiet --shared . target/before/src
	git -C target/before/src fetch --quiet && git -C target/before/src checkout --quiet --detach $(REV)
	cargo build --release --locked --package shotline --manifest-path target/before/src/Cargo.toml --target-dir target/before
	cargo build --release --locked --package shotline
	python3 bench/before.py target/before --name $(REV) $(ARGS)

bench-receive: ## compare the receive rate with a bare socket loop and spead2; ARGS=... for its options
	@$(SETUP) build python bench
	cargo build --release --locked --package shotline
	python3 bench/receive.py $(ARGS)

bench-record: ## compare the recording rate with fio and h5py; ARGS=... for its options
	@$(SETUP) build python bench
	cargo build --release --locked --package shotline
	python3 bench/record.py $(ARGS)

bench-soak: ## receive for ten minutes at half rate, without memory growth or drops; ARGS=... for its options
	@$(SETUP) build python bench
	cargo build --release --locked --package shotline
	python3 bench/soak.py $(ARGS)

bench-trigger: ## compare the latency from trigger to complete shot with a bare UDP ping-pong; ARGS=... for its options
	@$(SETUP) build python
	cargo build --release --locked --package shotline
	python3 bench/trigger.py $(ARGS)

bench-rdma: ## compare writes, reads and messages with UCX and libfabric; ARGS=... for its options
	@$(SETUP) build rdma
	cargo build --release --locked --package shotline
	python3 bench/rdma.py $(ARGS)

bench-spacefibre: ## compare RDMA over SpaceFibre with Gibson et al., and links with their quality of service; ARGS=...
	@$(SETUP) build python plot
	cargo build --release --locked --package shotline
	cargo build --release --locked --package shotline-spacefibre --examples
	python3 bench/spacefibre.py --plot docs/img/spacefibre-qos.png $(ARGS)

bench-library: ## compare programs in Python and C with record --discard and perf; ARGS=... for its options
	@$(SETUP) build python package capi
	cargo build --release --locked --package shotline
	maturin develop --release --locked --quiet
	python3 scripts/install_lib.py --prefix target/c-library
	python3 bench/library.py $(ARGS)

bench-memif: ## compare receiving from a memif with dpdk-testpmd, receive a probe's shots through one; ARGS=...
	@$(SETUP) build dpdk
	cargo build --release --locked --package shotline-transport --features dpdk --example dpdk_throughput
	python3 bench/memif.py $(ARGS)

bench-pmd: ## compare instructions per packet of the packet card's DPDK driver with virtio's; ARGS=... for its options
	@$(SETUP) build dpdk counts rtl
	@$(MAKE) --no-print-directory -C dpdk
	cargo build --release --locked --package shotline --features rtl,dpdk
	cargo build --release --locked --package shotline-rtl --features model --example card_latency
	python3 bench/pmd.py $(ARGS)

bench-xdp: ## compare receiving from a cable by AF_XDP with dpdk-testpmd; needs root; ARGS=... for its options
	@$(SETUP) build dpdk
	cargo build --release --locked --package shotline-transport --example xdp_throughput
	python3 bench/xdp.py $(ARGS)

bench-passthrough: ## compare instructions and system calls per write by NVMe passthrough with fio, in the guest; ARGS=...
	@$(SETUP) build python guest counts
	cargo build --release --locked --package shotline-store --example raw_writes
	python3 bench/passthrough.py $(ARGS)

bench-ud-instructions: ## compare instructions per datagram through an RDMA device with ib_send_bw, in the guest
	@$(SETUP) build guest bench
	cargo build --release --locked --package shotline-verbs --example ibverbs_ud
	python3 bench/ud_instructions.py $(ARGS)

bench-digitizer: ## record 16 Gbit/s from a digitizer's DMA through a memif into HDF5; ARGS=... for its options
	@$(SETUP) build dpdk
	cargo build --release --locked --package shotline --features dpdk
	cargo build --release --locked --package shotline-store --example store_bench
	python3 bench/digitizer.py $(ARGS)

bench-rtl: ## measure payload rate, words per clock, LUTs and soak speed of the RTL; ARGS=... for its options
	@$(SETUP) build rtl
	cargo build --release --locked --package shotline-rtl --features model --examples
	python3 bench/rtl.py $(ARGS)

bench-dma: ## measure the packet card's DMA module at every length, and its LUTs; ARGS=... for its options
	@$(SETUP) build rtl plot
	cargo build --release --locked --package shotline-rtl --features model --examples
	python3 bench/dma.py $(ARGS)

bench-plan: ## measure the time of a plan and packets per second of its simulation; ARGS=... for its options
	@$(SETUP) build python
	cargo build --release --locked --package shotline
	python3 bench/plan.py $(ARGS)

bench-align: ## measure events per second aligned from four sources on one core; ARGS=... for its options
	@$(SETUP) build python
	cargo build --release --locked --package shotline-acquire --example align_throughput
	python3 bench/align.py $(ARGS)

bench-sweep: ## plot frame rate, bandwidth and losses over the trigger frequency into docs/img; ARGS=...
	@$(SETUP) build python plot
	cargo build --release --locked --package shotline
	python3 bench/sweep.py $(ARGS)

plots: ## plot the results of `shotline sweep --out FILE`: make plots FILE=network.jsonl [DIR=plots]
	@$(SETUP) python plot
	python3 python/shotline_plot.py $(FILE) --out $(or $(DIR),plots)

bench-spead: ## compare receiving SPEAD heaps with spead2's own receivers; ARGS=... for its options
	@$(SETUP) build python bench
	cargo build --release --locked --package shotline
	python3 bench/spead.py $(ARGS)

bench-store: ## compare writing to a drive, compression and unpacking with fio, h5py, zarr and numpy; ARGS=...
	@$(SETUP) build python package bench
	cargo build --release --locked --package shotline
	cargo build --release --locked --package shotline-store --examples
	maturin develop --release --locked --quiet
	python3 bench/store.py --all $(ARGS)

bench-compress: ## compare compression while recording with h5py and hdf5plugin; ARGS=... for its options
	@$(SETUP) build python bench
	cargo build --release --locked --package shotline-store --examples
	python3 bench/compress.py $(ARGS)

bench-unpack: ## compare 12-bit unpacking with numpy, measure opening a run of a million shots; ARGS=... for its options
	@$(SETUP) build python package
	cargo build --release --locked --package shotline
	maturin develop --release --locked --quiet
	python3 bench/unpack.py $(ARGS)

bench-stencil: ## compare the stencil with STREAM, gcc, numba and tiled loops, emulated paths with their rates, 4 GB over a node with the paper; ARGS=... for its options
	@$(SETUP) build bench
	cargo build --release --locked --quiet --package shotline-compute --example stencil_rate
	cargo build --release --locked --quiet --package shotline
	python3 bench/stencil.py $(ARGS)
	python3 bench/accel_path.py
	python3 bench/accelerator.py

bench-bmode: ## compare ultrasound images by delay and sum with zea, vbeam, ultraspy, a sparse matrix and loops in C, on one core; ARGS=...
	@$(SETUP) build python
	cargo build --release --locked --quiet --package shotline-compute --example beamform_rate
	python3 bench/bmode.py $(ARGS)

bench-images: ## show images of a target's memory at 1440p60 and 2160p30 under Xvfb, beside the paper and a copy; ARGS=... for its options
	@$(SETUP) build python display
	cargo build --release --locked --quiet --package shotline
	python3 bench/images.py $(ARGS)

bench-page: ## compare receiving with viewers of the page and without, then its images with other programs; ARGS=... for page.py
	@$(SETUP) build python test web
	cargo build --release --locked --quiet --package shotline
	python3 bench/page.py $(ARGS)
	@$(MAKE) --no-print-directory bench-bmode ARGS=

bench-dsp: ## compare down-conversion and spectra with scipy and numpy, on one core; ARGS=... for its options
	@$(SETUP) build package bench
	maturin develop --release --locked --quiet
	python3 bench/dsp.py $(ARGS)

clean: ## remove build outputs and installed dependencies
	cargo clean
	rm -rf .venv .cache docs/book crates/dashboard/web/node_modules python/shotline/*.so fuzz/target fuzz/artifacts
