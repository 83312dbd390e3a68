"""Exports read by each format's own library, imports of files of other programs, and reports of missing samples."""

import json
import shutil
import signal
import tarfile

import digital_rf
import h5py
import numpy as np
import pytest
import pyuff_ustb
import sigmf
import zarr
from formats.source import DATA, Source, export, import_file, run_with_memory_limit, zea
from formats.store import object_store, objects

from common import Probe, Process, record, run, until, verify

ANGLES = (-12, 0, 12)
RADIO = ("--centre-mhz", "1090")


def record_source(path, *probe, shots=45):
    with Probe("--channels", 16, "--samples", 500, "--seed", 7, *probe) as device:
        record(device, "--out", path, "--shots", shots, "--samples", 500, "--channels", 16).succeeded()
    return Source(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Two links, nothing missing."""
    return record_source(tmp_path_factory.mktemp("whole") / "run.h5")


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    """Two links with lost packets and lost shots."""
    source = record_source(tmp_path_factory.mktemp("lossy") / "run.h5", "--loss", 0.4, shots=90)
    states = np.concatenate([table["state"] for table in source.tables])
    assert (states == 1).sum() > 20 and (states == 2).sum() > 20, "shots of both kinds are needed"
    assert (states == 0).any() or source.losses, "lost shots are needed"
    return source


@pytest.fixture(params=["whole", "lossy"])
def source(request):
    return request.getfixturevalue(request.param)


def check_counts(report, source):
    """Checks that the program's counts match the tables."""
    states = np.concatenate([table["state"] for table in source.tables])
    assert (report["complete"], report["partial"]) == ((states == 2).sum(), (states == 1).sum()), report
    without_row = sum(max(n) - min(n) + 1 - len(n) for n in map(source.numbers, range(len(source.links))))
    assert report["lost"] == (states == 0).sum() + without_row, report
    partial = [source.missing_mask(i)[t["state"] == 1].sum() for i, t in enumerate(source.tables)]
    assert report["missing_samples"] == sum(partial), report
    assert bool(report["notes"]) == bool(report["partial"] + report["lost"]) or report["format"] != "uff"


# --- ultrasound --------------------------------------------------------------------------------------


def test_pyuff_reads_every_sample_and_nan_for_missing_ones(tmp_path, source):
    to = tmp_path / "run.uff"
    probe = ("--pitch-mm", 0.23, "--centre-mhz", 5.2, "--sound-speed", 1500, "--initial-us", 2)
    report = export(source.path, to, f"--angles={','.join(map(str, ANGLES))}", *probe)
    check_counts(report, source)
    data = pyuff_ustb.Uff(str(to)).read("channel_data")
    shots = source.side_by_side()
    first, last = min(shots), max(shots)
    elements = 2 * source.channels
    frames = -(-(last - first + 1) // 3)
    found = data.data
    assert found.shape == (source.samples, elements, 3, frames)
    for number in range(first, first + 3 * frames):
        shot = found[:, :, (number - first) % 3, (number - first) // 3]
        if number not in shots:
            assert np.isnan(shot).all(), f"shot {number} was not sent or is lost"
            continue
        samples, missing = shots[number]
        assert np.array_equal(np.isnan(shot), missing), f"shot {number}"
        assert np.array_equal(shot[~missing], samples[~missing]), f"shot {number}"
    assert (data.sampling_frequency, data.sound_speed) == (source.rate, 1500)
    assert data.initial_time == pytest.approx(2e-6) and data.pulse.center_frequency == 5.2e6
    assert (data.probe.N, data.probe.pitch) == (elements, pytest.approx(0.23e-3))
    assert np.diff(data.probe.x) == pytest.approx(0.23e-3) and data.probe.x.sum() == pytest.approx(0, abs=1e-12)
    assert [wave.source.azimuth for wave in data.sequence] == pytest.approx(np.radians(ANGLES))
    assert all(wave.wavefront == pyuff_ustb.Wavefront.plane for wave in data.sequence)
    stamps = source.tables[0]["stamp_tai_ns"][source.tables[0]["stamp_tai_ns"] > 0]
    numbers = np.array(source.numbers())[source.tables[0]["stamp_tai_ns"] > 0]
    rate = (numbers[-1] - numbers[0]) * 1e9 / float(stamps[-1] - stamps[0])
    assert data.PRF == pytest.approx(rate)


def test_zea_validates_the_export_and_masks_missing_samples(tmp_path, source):
    to, npz = tmp_path / "run.hdf5", tmp_path / "read.npz"
    report = export(source.path, to, "--format", "zea", "--angles=-6,6", "--pitch-mm", 0.2)
    check_counts(report, source)
    summary = json.loads(zea("read", to, npz))
    assert summary["verdict"]["status"] == "success", summary
    read = np.load(npz)
    raw = read["raw_data"]
    shots = source.side_by_side()
    first = min(shots)
    frames = -(-(max(shots) - first + 1) // 2)
    assert raw.shape == (frames, 2, source.samples, 2 * source.channels, 1) and raw.dtype == np.int16
    mask = np.zeros(raw.shape[:-1], bool)
    for frame, wave, element, start, count in read["custom_missing"]:
        part = mask[frame, wave, :, element : element + source.channels].reshape(-1)
        part[start : start + count] = True
        mask[frame, wave, :, element : element + source.channels] = part.reshape(source.samples, -1)
    for link in range(2):
        part = np.s_[:, link * source.channels : (link + 1) * source.channels]
        for number, stamp, samples, missing, state in source.iterate_shots(link):
            at = (number - first) // 2, (number - first) % 2
            assert np.array_equal(raw[at][part][..., 0], samples), f"shot {number}"
            assert read["custom_shot_state"][(*at, link)] == state
            assert read["custom_stamp_tai_ns"][(*at, link)] == stamp
            assert state == 0 or np.array_equal(mask[at][part], missing), f"shot {number}"
    assert (read["sampling_frequency"], read["sound_speed"]) == (source.rate, 1540)
    assert read["polar_angles"] == pytest.approx(np.radians([-6, 6]))
    assert np.diff(read["probe_geometry"][:, 0]) == pytest.approx(0.2e-3)
    delays = read["t0_delays"]
    assert delays.min() == 0 and np.diff(delays[1]) == pytest.approx(0.2e-3 * np.sin(np.radians(6)) / 1540, rel=1e-3)
    # From the firing of the first element, one period before the peak of the pulse, until the wave passes the origin.
    assert read["initial_times"] == pytest.approx(delays.max(axis=1) / 2 + 1 / 5e6, rel=1e-5)


# --- radio -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("iq", [False, True], ids=["real", "iq"])
def test_digital_rf_has_every_sample_and_gaps_for_missing_ones(tmp_path, source, iq):
    to = tmp_path / "radio"
    report = export(source.path, to, "--format", "digital-rf", *RADIO, *(["--iq"] if iq else []))
    check_counts(report, source)
    reader = digital_rf.DigitalRFReader(str(to))
    assert reader.get_channels() == ["link0", "link1"]
    for link, name in enumerate(reader.get_channels()):
        properties = reader.get_properties(name)
        assert properties["samples_per_second"] == source.rate and properties["is_complex"] == iq
        assert properties["num_subchannels"] == source.channels // (2 if iq else 1)
        assert properties["center_frequency_hz"] == 1090e6
        samples_at = {}
        for start, block in reader.read(*reader.get_bounds(name), name).items():
            rows = block.view(np.int16).reshape(len(block), source.channels)
            samples_at.update(zip(range(int(start), int(start) + len(rows)), rows))
        last, expected = None, 0
        arrived = int(source.tables[link]["arrived_tai_ns"][0])
        for number, stamp, samples, missing, _ in source.iterate_shots(link):
            # docs/formats.md: a shot continues the one before if its stamp agrees to two samples; else its stamp gives
            # its position.
            stamp = stamp or (0 if last else arrived)
            stamped = ((stamp - source.tai_minus_utc_ns) * source.rate + 5 * 10**8) // 10**9 if stamp else None
            start = stamped
            if last:
                before, end = last
                following = end + (number - before - 1) * source.samples
                continues = stamped is None or abs(stamped - following) <= 2
                start = following if continues else max(stamped, end)
            last = number, start + source.samples
            for instant in np.flatnonzero(~missing.any(axis=1)):
                assert np.array_equal(samples_at[start + int(instant)], samples[instant]), f"shot {number} at {instant}"
                expected += 1
        assert len(samples_at) == expected, "only samples that were received may be in the file"


@pytest.mark.parametrize("iq", [False, True], ids=["real", "iq"])
def test_sigmf_is_valid_and_annotates_missing_samples(tmp_path, source, iq):
    report = export(source.path, tmp_path / "run.sigmf-meta", *RADIO, *(["--iq"] if iq else []))
    check_counts(report, source)
    for link in range(2):
        path = tmp_path / f"run-link{link}.sigmf-meta"
        read = sigmf.fromfile(str(path))  # checks the hash
        read.validate()
        assert read.get_global_info()["core:datatype"] == ("ci16_le" if iq else "ri16_le")
        assert read.get_global_info()["core:sample_rate"] == source.rate
        assert read.num_channels == source.channels // (2 if iq else 1)
        data = np.fromfile(path.with_suffix(".sigmf-data"), "<i2").reshape(-1, source.channels)
        shots = [shot for shot in source.iterate_shots(link) if shot[4] != 0]
        assert np.array_equal(data, np.concatenate([samples for _, _, samples, _, _ in shots]))
        annotated = np.zeros(len(data), bool)
        for annotation in read.get_annotations():
            if annotation["core:label"] == "missing":
                start = annotation["core:sample_start"]
                annotated[start : start + annotation["core:sample_count"]] = True
        assert np.array_equal(annotated, np.concatenate([missing.any(axis=1) for *_, missing, _ in shots]))
        numbered = [a for a in read.get_annotations() if a["core:label"].startswith("shot ")]
        assert [a["shotline:number"] for a in numbered] == [number for number, *_ in shots]
        assert [a["shotline:stamp_tai_ns"] for a in numbered] == [stamp for _, stamp, *_ in shots]
        lost = sum(a["shotline:lost"] for a in read.get_annotations() if a["core:label"] == "lost")
        assert lost == shots[-1][0] - shots[0][0] + 1 - len(shots)
        captures = read.get_captures()
        assert captures[0]["core:frequency"] == 1090e6 and captures[0]["core:datetime"].endswith("Z")
        indices = [(c["core:sample_start"], c["core:global_index"]) for c in captures]
        assert indices == sorted(indices), "captures must ascend, in the data and in time"


# --- zarr --------------------------------------------------------------------------------------------

LAYOUTS = {
    "default": (),
    "small shards": ("--shard", 7),
    "compressed": ("--zstd", 3, "--shard", 16),
    "chunks of parts": ("--chunk", "3,130,5", "--shard", 10, "--zstd", 1),
    "one shot a chunk": ("--chunk", "1,500,16", "--shard", 4),
}


def check_zarr(group, source):
    for link in range(len(source.links)):
        at = group[f"link{link}"]
        assert np.array_equal(at["rf"][:], source.rf[link])
        table = source.tables[link]
        for name in ("number", "stamp_tai_ns", "state", "valid_bytes", "placed", "flags", "arrived_tai_ns", "presence"):
            assert np.array_equal(at[name][:], table[name].astype(at[name].dtype)), name
        mask = np.zeros((len(table), source.samples * source.channels), bool)
        for row, start, count in at["missing"][:]:
            mask[row, start : start + count] = True
        mask[at["state"][:] == 0] = True
        assert np.array_equal(mask.reshape(source.rf[link].shape), source.missing_mask(link))
        assert at["rf"].attrs["sample_rate_hz"] == source.rate
        assert at["rf"].metadata.dimension_names == ("shot", "sample", "channel")
    causes = group["losses"].attrs["causes"]
    losses = [(int(s), causes[int(c)], int(f), int(n)) for s, c, f, n in group["losses/runs"][:]]
    assert losses == source.losses
    assert group.attrs["run"]["run_id"] == source.attributes["run_id"]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_zarr_reads_every_sample_and_every_column(tmp_path, source, layout):
    to = tmp_path / "run.zarr"
    check_counts(export(source.path, to, *layout), source)
    group = zarr.open_group(to, mode="r")
    check_zarr(group, source)
    if "--chunk" in layout:
        shape = tuple(map(int, layout[layout.index("--chunk") + 1].split(",")))
        assert group["link0/rf"].chunks == shape and group["link0/rf"].shards[0] % shape[0] == 0


def test_a_zarr_export_imports_as_the_same_recording(tmp_path, source):
    export(source.path, tmp_path / "run.zarr", "--chunk", "3,130,5", "--shard", 10, "--zstd", 1)
    report = import_file(tmp_path / "run.zarr", tmp_path / "again.h5")
    again = Source(tmp_path / "again.h5")
    verdict = verify(again.path)
    assert verdict["pattern"], "test patterns must be recognised"
    assert report["omitted_samples"] == 0 and sorted(again.losses) == sorted(source.losses)
    for link in range(2):
        assert np.array_equal(again.rf[link], source.rf[link])
        for name in ("number", "stamp_tai_ns", "state", "valid_bytes", "placed", "flags", "presence", "record_good"):
            assert np.array_equal(again.tables[link][name], source.tables[link][name]), name


def test_a_partial_zarr_export_with_lost_shots_is_imported(tmp_path, lossy):
    numbers = lossy.numbers()
    for name, part in (("first", ("--shots", 20)), ("middle", ("--from", numbers[20], "--shots", 20))):
        export(lossy.path, tmp_path / f"{name}.zarr", *part)
        import_file(tmp_path / f"{name}.zarr", tmp_path / f"{name}.h5")
        verify(tmp_path / f"{name}.h5")
        again = Source(tmp_path / f"{name}.h5")
        assert set(again.numbers()) <= set(numbers[:20] if name == "first" else numbers[20:40])


@pytest.fixture(scope="module")
def store():
    with object_store() as store:
        yield store


def test_zarr_makes_a_round_trip_through_an_object_store(tmp_path, lossy, store, monkeypatch):
    settings, client = store
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    to = "s3://runs/a/7"
    first = run("export", lossy.path, to, "--format", "zarr", "--shard", 8, "--zstd", 1, "--json")
    if "--features s3" in first.stderr:
        pytest.skip("this program was built without object stores: cargo build --features s3, as make test does")
    check_counts(first.succeeded(), lossy)
    for key in objects(client):
        client.download_file("runs", key, str(with_parent_folder(tmp_path / "got" / key)))
    check_zarr(zarr.open_group(tmp_path / "got" / "a" / "7", mode="r"), lossy)
    import_file(to, tmp_path / "again.h5")
    assert np.array_equal(Source(tmp_path / "again.h5").joined, lossy.joined)

    assert "exists already" in run("export", lossy.path, to, "--format", "zarr").refused()
    others = ["a/7/notes.txt", "a/7/links", "a/70", "b/zarr.json"]
    for key in others:
        client.put_object(Bucket="runs", Key=key, Body=b'{"zarr_format": 3, "node_type": "group"}')
    export(lossy.path, to, "--format", "zarr", "--shots", 2, "--force")
    assert set(others) <= set(objects(client)), "objects that do not belong to the export must stay"
    another = run("export", lossy.path, "s3://runs/b", "--format", "zarr", "--force")
    assert "exists already" in another.refused(), "arrays of another program must stay, also with --force"
    assert not [key for key in objects(client) if "/c/1/" in key], "objects of the replaced export must be gone"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "AWS_ENDPOINT_URL" in run("export", lossy.path, to, "--format", "zarr").refused()


def with_parent_folder(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


# --- imports -----------------------------------------------------------------------------------------


def test_an_import_follows_no_reference_out_of_its_source(tmp_path, whole):
    folder, secret = with_parent_folder(tmp_path / "in" / "run").parent, tmp_path / "secret"
    export(whole.path, folder / "run.uff")
    export(whole.path, folder / "run.sigmf-meta", "--links", 0)
    with h5py.File(folder / "run.uff") as file:
        data = file["channel_data/data"][...]
    data.tofile(secret)
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["data"] = data
    layout = h5py.VirtualLayout(data.shape, data.dtype)
    layout[...] = h5py.VirtualSource(tmp_path / "secret.h5", "data", data.shape)
    references = {
        "linked": lambda group: group.update({"data": h5py.ExternalLink("../secret.h5", "data")}),
        "virtual": lambda group: group.create_virtual_dataset("data", layout),
        "external": lambda group: group.create_dataset(
            "data", data.shape, data.dtype, external=[(secret, 0, data.nbytes)]
        ),
    }
    for way, add_reference in references.items():
        shutil.copy(folder / "run.uff", folder / f"{way}.uff")
        with h5py.File(folder / f"{way}.uff", "r+") as file:
            del file["channel_data/data"]
            add_reference(file["channel_data"])
        message = run("import", folder / f"{way}.uff", tmp_path / "x.h5").refused()
        assert "in others" in message, message
    (folder / "link").symlink_to(secret)
    for name in ("../secret", str(secret), "link"):
        meta = json.loads((folder / "run.sigmf-meta").read_text())
        meta["global"]["core:dataset"] = name
        (folder / "other.sigmf-meta").write_text(json.dumps(meta))
        message = run("import", folder / "other.sigmf-meta", tmp_path / "x.h5").refused()
        assert "within the folder" in message and name in message, message
    assert not (tmp_path / "x.h5").exists()


def test_missing_samples_survive_uff_zea_and_sigmf_round_trips(tmp_path, lossy):
    # Tolerance of a stamp in ns; UFF has no stamps. In SigMF a shot that continues the one before may be two samples
    # away from the position that its stamp gives, and both are rounded to a sample.
    tolerance_ns = {"run.uff": float("inf"), "run.hdf5": 0, "run.sigmf-meta": 3e9 / lossy.rate + 1}
    for name, flags in (("run.uff", ()), ("run.hdf5", ("--format", "zea")), ("run.sigmf-meta", ())):
        export(lossy.path, tmp_path / name, "--links", 0, *flags)
        report = import_file(tmp_path / name, tmp_path / f"{name}.h5")
        again = Source(tmp_path / f"{name}.h5")
        verify(again.path)
        expected = {number: shot for number, *shot in lossy.iterate_shots(0) if shot[3] != 0}
        first = min(expected) if name != "run.sigmf-meta" else 0
        omitted = 0
        for number, stamp, samples, missing, state in again.iterate_shots(0):
            original_stamp, original, original_missing, original_state = expected.pop(number + first)
            assert original_stamp == 0 or abs(stamp - original_stamp) <= tolerance_ns[name], name
            if name == "run.sigmf-meta":
                original_missing = np.broadcast_to(
                    original_missing.any(axis=1, keepdims=True), original_missing.shape
                )  # annotations apply to instants
            assert state == original_state and not (original_missing & ~missing).any(), (
                "missing samples must stay missing"
            )
            omitted += int((missing & ~original_missing).sum())
            assert np.array_equal(samples[~missing], original[~missing])
        assert not expected and report["omitted_samples"] == omitted, report


def test_numpy_arrays_are_imported_as_shots(tmp_path):
    samples = np.random.default_rng(1).integers(-30000, 30000, (5, 700, 6), np.int16)
    np.save(tmp_path / "rf.npy", samples)
    import_file(tmp_path / "rf.npy", tmp_path / "run.h5", "--sample-rate-hz", 40_000_000)
    verify(tmp_path / "run.h5")
    read = Source(tmp_path / "run.h5")
    assert np.array_equal(read.joined, samples) and read.rate == 40_000_000
    np.save(tmp_path / "rf.npy", samples / 3e4)
    report = import_file(tmp_path / "rf.npy", tmp_path / "scaled.h5")
    scaled = Source(tmp_path / "scaled.h5")
    assert np.array_equal(scaled.joined, np.rint(samples / 3e4 * report["scale"]).astype(np.int16))
    assert f"scale = {report['scale']}" in scaled.attributes["config"] and any(
        "multiplied" in n for n in report["notes"]
    )


# --- real data --------------------------------------------------------------------------------------------

needs_data = pytest.mark.skipif(DATA is None, reason="no shared/data next to the repository: real data were not tested")


@needs_data
def test_the_sigmf_logo_makes_an_unchanged_round_trip(tmp_path):
    logo = DATA / "iq" / "sigmf_logo.sigmf-meta"
    import_file(logo, tmp_path / "run.h5")
    verify(tmp_path / "run.h5")
    export(tmp_path / "run.h5", tmp_path / "again.sigmf-meta")
    before, after = sigmf.fromfile(str(logo)), sigmf.fromfile(str(tmp_path / "again.sigmf-meta"))
    for name in ("core:sha512", "core:datatype", "core:sample_rate", "core:num_channels"):
        assert before.get_global_info()[name] == after.get_global_info()[name]
    assert after.get_captures()[0]["core:datetime"] == "2021-06-18T23:17:51.163959000Z"
    assert len(after.get_captures()) == 1, "consecutive shots must form one capture"


@needs_data
def test_ads_b_samples_make_a_byte_exact_round_trip(tmp_path):
    data = tmp_path / "adsb.sigmf-data"
    shutil.copy(DATA / "iq" / "dump1090_modes1_cu8_2MSps_1090MHz.bin", data)
    meta = sigmf.SigMFFile(
        data_file=str(data),
        global_info={"core:datatype": "cu8", "core:sample_rate": 2_000_000, "core:version": "1.2.0"},
    )
    meta.add_capture(0, {"core:frequency": 1090e6})
    meta.tofile(str(tmp_path / "adsb.sigmf-meta"))
    import_file(tmp_path / "adsb.sigmf-meta", tmp_path / "run.h5")
    verify(tmp_path / "run.h5")
    export(tmp_path / "run.h5", tmp_path / "again.sigmf-meta", "--iq", *RADIO)
    assert (tmp_path / "again.sigmf-data").read_bytes() == data.read_bytes()
    export(tmp_path / "run.h5", tmp_path / "radio", "--iq", "--format", "digital-rf")
    reader = digital_rf.DigitalRFReader(str(tmp_path / "radio"))
    blocks = reader.read(*reader.get_bounds("link0"), "link0")
    assert len(blocks) == 1 and next(iter(blocks.values())).tobytes() == data.read_bytes()


@pytest.fixture(scope="module")
def haystack(tmp_path_factory):
    if DATA is None:
        pytest.skip("no shared/data next to the repository: real data were not tested")
    folder = tmp_path_factory.mktemp("haystack")
    with tarfile.open(DATA / "iq" / "digital_rf_data.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "data"


def test_a_digital_rf_example_makes_an_unchanged_round_trip(tmp_path, haystack):
    import_file(haystack / "example", tmp_path / "run.h5")
    verify(tmp_path / "run.h5")
    export(tmp_path / "run.h5", tmp_path / "radio", "--iq", "--format", "digital-rf")
    before, after = (digital_rf.DigitalRFReader(str(path)) for path in (haystack / "example", tmp_path / "radio"))
    assert before.get_bounds("ch0") == after.get_bounds("link0"), "every sample must keep its index"
    bounds = before.get_bounds("ch0")
    (start, was), (again, found) = (
        next(iter(r.read(*bounds, c).items())) for r, c in ((before, "ch0"), (after, "link0"))
    )
    assert start == again and was.tobytes() == found.tobytes()


def test_digital_rf_gaps_become_losses_and_every_sample_is_kept(tmp_path, haystack):
    name = "sc16_x1_n200_d3_10s_1000ms_c0"
    reader = digital_rf.DigitalRFReader(str(haystack / "synthetic"))
    blocks = reader.read(*reader.get_bounds(name), name)
    report = import_file(haystack / "synthetic", tmp_path / "run.h5", "--channel", name, "--samples", 50)
    verify(tmp_path / "run.h5")
    source = Source(tmp_path / "run.h5")
    shots = source.iterate_shots(0)
    for block in blocks.values():
        samples = block.view(np.int16).reshape(-1, 2)
        for at in range(0, len(samples), 50):
            _, _, found, _, _ = next(shots)
            part = samples[at : at + 50]
            assert np.array_equal(found[: len(part)], part) and not found[len(part) :].any()
    ends = [start + -(-len(block) // 50) * 50 for start, block in blocks.items()]
    lost = sum(max(0, -(-(start - end) // 50)) for start, end in zip(list(blocks)[1:], ends))
    assert next(shots, None) is None and report["omitted_samples"] == 0 and report["lost"] == lost > 0
    assert sum(count for *_, count in source.losses) == lost and {cause for _, cause, *_ in source.losses} == {
        "wire_gap"
    }


@needs_data
def test_integer_ultrasound_data_makes_an_exact_uff_round_trip(tmp_path):
    with h5py.File(DATA / "ultrasound" / "muscle_rf_real_192ch.hdf5") as file:
        shots = np.stack([file[f"data/rf_data/frame_{n}/shot_1"][...] for n in (1, 2)])  # frame, channel, time
        rate = float(file["data/f_sampling"][()])
    point = pyuff_ustb.Point(distance=np.inf, azimuth=0.0, elevation=0.0)
    probe = pyuff_ustb.LinearArray(N=192, pitch=0.23e-3, element_width=0.2e-3, element_height=5e-3, origin=point)
    data = pyuff_ustb.ChannelData(
        sampling_frequency=rate,
        initial_time=0.0,
        sound_speed=1540.0,
        modulation_frequency=0.0,
        sequence=pyuff_ustb.Wave(wavefront=pyuff_ustb.Wavefront.plane, source=point, origin=point),
        probe=probe,
        data=np.ascontiguousarray(shots[:, None]).T,
    )
    data.write(str(tmp_path / "muscle.uff"), "channel_data", ignore_missing_compulsory_fields=True)
    report = import_file(tmp_path / "muscle.uff", tmp_path / "run.h5")
    verify(tmp_path / "run.h5")
    assert report["scale"] == 1, "integers stored as floating-point numbers must not be scaled"
    assert np.array_equal(Source(tmp_path / "run.h5").joined, shots.transpose(0, 2, 1))
    export(tmp_path / "run.h5", tmp_path / "again.uff", "--pitch-mm", 0.23)
    again = pyuff_ustb.Uff(str(tmp_path / "again.uff")).read("channel_data")
    assert np.array_equal(again.data, data.data) and again.sampling_frequency == rate


@needs_data
def test_three_simulated_plane_waves_make_a_zea_round_trip(tmp_path):
    with h5py.File(DATA / "ultrasound" / "pybf_rf_sim_192ch_3pw.hdf5") as file:
        shots = np.stack([file[f"data/rf_data/frame_1/shot_{n}"][...] for n in (1, 2, 3)])
    raw = np.ascontiguousarray(shots.transpose(0, 2, 1))[None, ..., None]  # frame, wave, time, element, 1
    np.savez(tmp_path / "in.npz", raw_data=raw)
    zea("write", tmp_path / "sim.hdf5", tmp_path / "in.npz")
    import_file(tmp_path / "sim.hdf5", tmp_path / "run.h5")
    verify(tmp_path / "run.h5")
    export(tmp_path / "run.h5", tmp_path / "again.hdf5", "--format", "zea", "--angles=-12,0,12")
    zea("read", tmp_path / "again.hdf5", tmp_path / "out.npz")
    assert np.array_equal(np.load(tmp_path / "out.npz")["raw_data"], raw)


# --- large, interrupted and refused transfers --------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A recording of 146 MiB, imported with 64 MiB of memory."""
    folder = tmp_path_factory.mktemp("large")
    shots = np.lib.format.open_memmap(folder / "rf.npy", "w+", np.int16, (200, 2000, 192))
    shots[:] = np.random.default_rng(2).integers(-2000, 2000, (2000, 192), np.int16)
    shots.flush()
    run_with_memory_limit(64 << 20, "import", folder / "rf.npy", folder / "run.h5", "--sample-rate-hz", 1_000_000)
    (folder / "rf.npy").unlink()
    yield folder / "run.h5"
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["run.uff", "run.sigmf-meta", "run.zarr", "run.hdf5", "radio"])
def test_an_export_needs_no_more_memory_for_a_longer_run(tmp_path, large, name):
    flags = {"run.hdf5": ("--format", "zea"), "radio": ("--format", "digital-rf")}.get(name, ())
    run_with_memory_limit(128 << 20, "export", large, tmp_path / name, *flags)
    shutil.rmtree(tmp_path)


def test_an_interrupted_export_leaves_no_files(tmp_path, large):
    with Process("export", large, tmp_path / "run.zarr", "--zstd", 12) as process:
        until(lambda: (tmp_path / ".run.zarr.partial").exists(), what="the export's beginning")
        refused = process.interrupt().refused()
    assert "stopped" in refused and not list(tmp_path.iterdir())


def test_a_concurrent_export_to_the_same_name_is_refused(tmp_path, large):
    arguments = ("export", large, tmp_path / "run.zarr", "--json")
    with Process(*arguments) as process:
        until(lambda: (tmp_path / ".run.zarr.partial" / "run.zarr" / "link0").exists(), what="the export's beginning")
        process.signal(signal.SIGSTOP)
        assert "in use" in run(*arguments).refused()
        process.signal(signal.SIGCONT)
        process.end().succeeded()
    assert [path.name for path in tmp_path.iterdir()] == ["run.zarr"]
    shutil.rmtree(tmp_path)


def test_unsupported_exports_and_imports_are_refused(tmp_path, whole):
    (tmp_path / "there").mkdir()
    (tmp_path / "run.uff").write_text("old")
    for arguments, words in [
        (("export", whole.path, tmp_path / "run.uff"), "exists already"),
        (("export", whole.path, tmp_path / "run.bin"), "--format"),
        (("export", whole.path, tmp_path / "a.zarr", "--links", "2"), "no link 2"),
        (("export", whole.path, tmp_path / "a.zarr", "--chunk", "1,501,16"), "501"),
        (("export", tmp_path / "run.uff", tmp_path / "a.zarr"), "run.uff"),
        (("import", tmp_path / "run.uff", tmp_path / "a.h5"), "expected SigMF"),
        (("import", tmp_path / "there", tmp_path / "a.h5"), "Digital RF"),
        (("import", whole.path, tmp_path / "a.h5"), "channel_data of UFF or raw_data of zea"),
        (("import", tmp_path / "no.sigmf-meta", tmp_path / "a.h5"), "No such file"),
    ]:
        assert words in run(*arguments).refused(), arguments
    assert (tmp_path / "run.uff").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"there", "run.uff"}


def test_a_range_of_shot_numbers_is_exported(tmp_path, whole):
    report = export(whole.path, tmp_path / "a.zarr", "--from", 10, "--shots", 20, "--links", 1)
    assert (report["complete"], report["links"]) == (20, 1)
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert group["link1/number"][:].tolist() == list(range(10, 30)) and "link0" not in group
    assert np.array_equal(group["link1/rf"][:], whole.rf[1][10:30])


def test_nexus_readers_find_the_default_data(whole):
    with h5py.File(whole.path) as file:
        assert file.attrs["NX_class"] == "NXroot"
        entry = file[file.attrs["default"]]
        assert entry.attrs["NX_class"] == "NXentry" and entry["program_name"][()].decode().startswith("shotline")
        data = entry[entry.attrs["default"]]
        assert data.attrs["NX_class"] == "NXdata" and list(data.attrs["axes"]) == ["."] * 3
        assert np.array_equal(data[data.attrs["signal"]][...], whole.rf[0])
