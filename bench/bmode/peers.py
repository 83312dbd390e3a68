"""A peer of `bench/bmode.py`, in a process of its own: `peers.py FOLDER PEER`.

Reads `case.npz` from the folder, writes the image as `PEER.npy` (columns, rows) and the word "ready". For each line that it
then reads, it computes the image once and writes the seconds of its processor time. Everything that does not depend on the samples is computed
beforehand, and the samples are already in the layout and type that the peer prefers.
"""

import os
import sys
import time
from pathlib import Path

for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
    os.environ[f"{name}_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["KERAS_BACKEND"] = "jax"

import numpy as np

PATCHES = (1024, 4096, 16384)  # pixels at a time, of which the fastest count


class Case:
    """Samples, by wave, element and sample, and geometry. Pixels are in columns; distances are in samples of path."""

    def __init__(self, folder):
        values = np.load(folder / "case.npz")
        self.rf, self.f_number = values["rf"], float(values["f_number"])
        scale = self.scale = float(values["rate"] / values["speed"])
        self.angles = values["angles"]
        self.elements, self.x, self.z = (values[name] * scale for name in ("elements", "x", "z"))
        pixel_x, pixel_z = np.meshgrid(self.x, self.z, indexing="ij")
        self.shape = pixel_x.shape
        self.pixels = np.stack([pixel_x.ravel(), pixel_z.ravel()], 1)

    def transmit(self):
        return np.stack([self.pixels @ [np.sin(angle), np.cos(angle)] for angle in self.angles])

    def receive(self):
        return np.hypot(self.elements[:, None] - self.pixels[:, 0], self.pixels[:, 1])

    def mask(self):
        """Returns which elements are in the aperture of each pixel."""
        offsets = np.abs(self.elements[:, None] - self.pixels[:, 0])
        return 2 * self.f_number * offsets <= self.pixels[:, 1]


def fastest(ways):
    """Returns the fastest of several functions, each called twice before."""

    def seconds(way):
        way()
        way()
        start = time.process_time()
        way()
        return time.process_time() - start

    return min(ways, key=seconds)


def zea(case):
    """Receive distances and interpolation of zea, compiled by JAX over patches of pixels.

    Its transmit delays are those of a finite aperture; here they are those of an unlimited plane wave.
    """
    import jax
    import jax.numpy as jnp
    from zea.beamform.beamformer import apply_delays, compute_receive_distances

    count = len(case.pixels)
    grid = jnp.asarray(np.insert(case.pixels, 1, 0, axis=1), jnp.float32)
    probe = jnp.asarray(np.stack([case.elements, 0 * case.elements, 0 * case.elements], 1), jnp.float32)
    data = jnp.asarray(case.rf.transpose(0, 2, 1)[..., None])
    transmit = jnp.asarray(case.transmit().T, jnp.float32)
    weights = jnp.asarray(case.mask().T, jnp.float32) if case.f_number else jnp.ones((count, 1), jnp.float32)
    samples = case.rf.shape[2]

    def patch(inputs):
        grid, transmit, weights, data = inputs
        receive = compute_receive_distances(grid, probe)
        wave = lambda data, transmit: apply_delays(data, receive + transmit[:, None], 0, samples - 1)[..., 0]
        return (jax.vmap(wave, in_axes=(0, 1))(data, transmit).sum(0) * weights).sum(1)

    def compiled(size):
        def image(data):
            parts = [values.reshape(count // size, size, -1) for values in (grid, transmit, weights)]
            return jax.lax.map(lambda part: patch((*part, data)), tuple(parts)).reshape(case.shape)

        image = jax.jit(image)
        return lambda: image(data).block_until_ready()

    return fastest([compiled(size) for size in PATCHES if count % size == 0])


def vbeam(case):
    """The kernel of vbeam and its transformations, compiled by JAX."""
    import jax
    import jax.numpy as jnp
    from spekk import Spec
    from vbeam.fastmath import backend_manager

    backend_manager.active_backend = "jax"
    from vbeam.apodization import NoApodization
    from vbeam.beamformers.building_blocks import sum_over_dimensions, vectorize_over_datacube
    from vbeam.core import Apodization, ElementGeometry, WaveData, signal_for_point
    from vbeam.core.wavefront import ReflectedWavefront
    from vbeam.data_importers import SignalForPointSetup
    from vbeam.fastmath.traceable import traceable_dataclass
    from vbeam.interpolation import FastInterpLinspace
    from vbeam.util.transformations import Reduce, compose
    from vbeam.wavefront import PlaneWavefront

    @traceable_dataclass(("f_number",))
    class Boxcar(Apodization):
        f_number: float

        def __call__(self, sender, point, receiver, wave_data):
            offset = jnp.abs(point[0] - receiver.position[0])
            return jnp.where(2 * self.f_number * offset <= point[2], 1.0, 0.0)

    number = lambda values: jnp.asarray(values, jnp.float32)
    elements = number(np.stack([case.elements, 0 * case.elements, 0 * case.elements], 1))
    points = number(np.insert(case.pixels, 1, 0, axis=1))
    waves = len(case.angles)
    setup = SignalForPointSetup(
        sender=ElementGeometry(jnp.zeros(3)),
        point_position=points,
        receiver=ElementGeometry(elements),
        signal=number(case.rf),
        transmitted_wavefront=PlaneWavefront(),
        reflected_wavefront=ReflectedWavefront(),
        speed_of_sound=1.0,
        wave_data=WaveData(azimuth=number(case.angles), elevation=jnp.zeros(waves), t0=jnp.zeros(waves)),
        interpolate=FastInterpLinspace(0.0, 1.0, case.rf.shape[2]),
        modulation_frequency=None,
        apodization=Boxcar(case.f_number) if case.f_number else NoApodization(),
        spec=Spec(
            {
                "signal": ["transmits", "receivers", "signal_time"],
                "receiver": ["receivers"],
                "point_position": ["points"],
                "wave_data": ["transmits"],
            }
        ),
    )
    beamformer = compose(
        lambda **data: signal_for_point(**data, modulation_frequency=None),
        vectorize_over_datacube(setup, ignore=["transmits"]),
        sum_over_dimensions(setup, keep={"points", "transmits"}),
        Reduce.Sum("transmits"),
    ).build(setup.spec)
    fixed = {name: value for name, value in setup.data.items() if value is not None}

    def compiled(size):
        patch = lambda points, signal: beamformer(**{**fixed, "point_position": points, "signal": signal})

        @jax.jit
        def image(signal):
            patches = points.reshape(-1, size, 3)
            return jax.lax.map(lambda points: patch(points, signal), patches).reshape(case.shape)

        return lambda: image(setup.signal).block_until_ready()

    return fastest([compiled(size) for size in PATCHES if len(points) % size == 0])


def ultraspy(case):
    """The kernel of ultraspy for CPUs, compiled by numba. A plane wave is one of a very distant virtual source.

    Its time zero is when the wave reaches the first element, so the samples begin later by that time, a whole number of
    samples.
    """
    from ultraspy.cpu.kernels.numba_cores.das import delay_and_sum

    waves, elements, samples = case.rf.shape
    rf = np.zeros_like(case.rf)
    steering = np.zeros((waves, 3))
    far = 1e9
    for wave, angle in enumerate(case.angles):
        late = abs(np.sin(angle)) * case.elements[-1]
        assert abs(late - round(late)) < 1e-4
        rf[wave, :, round(late) :] = case.rf[wave, :, : samples - round(late)]
        steering[wave] = -far * np.array([np.sin(angle), 0, np.cos(angle)])
    probe = np.zeros((3, waves, elements))
    probe[0] = case.elements
    zeros = np.zeros((waves, elements))
    x, z = np.ascontiguousarray(case.pixels.T)
    f_number = np.full(2, case.f_number)
    options = {"interpolation": 1, "reduction": 0, "window": 0, "alpha": 0.0}
    return lambda: delay_and_sum(
        *(rf, False, probe, probe, zeros, zeros, steering, 1, 1.0, 0.25, 0.0, 1.0, f_number),
        *(x, np.zeros_like(x), z, *options.values(), 0, 1, 1, True),
    )[0, 0].real.reshape(case.shape)


def fastdas(case):
    """The native kernel of fast-DAS, in double precision, of analytic signals.

    Its own transform passes integers of a wrong type with the present numpy. That of scipy is not counted.
    """
    import importlib.resources
    import types

    import scipy.signal

    # It looks for its library with a module that is no longer part of setuptools.
    finder = types.ModuleType("pkg_resources")
    finder.resource_filename = lambda package, name: str(importlib.resources.files(package) / name)
    sys.modules["pkg_resources"] = finder
    from fastDAS import delay_and_sum

    das = delay_and_sum.DAS()
    analytic = np.ascontiguousarray(scipy.signal.hilbert(case.rf.astype(np.float64), 2048))
    transmit = np.ascontiguousarray(case.transmit().reshape(-1, *case.shape))
    receive = np.ascontiguousarray(case.receive().reshape(-1, *case.shape))
    return lambda: das.delay_and_sum(analytic, transmit, receive).sum(0).real


def matrix(case):
    """Product with a sparse matrix in single precision by scipy: the method of PyMUST for several frames.

    The matrix of PyMUST itself is in double precision, for the waves of a finite aperture.
    """
    from scipy import sparse

    _, elements, samples = case.rf.shape
    receive = case.receive()
    weights = case.mask() if case.f_number else np.ones((1, 1), bool)
    matrices = []
    for transmit in case.transmit():
        time = (receive + transmit).T
        whole = np.floor(time).astype(np.int32)
        used = (whole >= 0) & (whole < samples - 1) & weights.T
        fraction = (time - whole)[used].astype(np.float32)
        rows = np.concatenate([[0], np.cumsum(used.sum(1))])
        places = (whole + np.arange(elements, dtype=np.int32) * samples)[used]
        columns = np.stack([places, places + 1], 1).ravel()
        values = np.stack([1 - fraction, fraction], 1).ravel()
        shape = (len(case.pixels), elements * samples)
        matrices.append(sparse.csr_matrix((values, columns, 2 * rows.astype(np.int32)), shape=shape))
    signals = [np.ascontiguousarray(rf.ravel()) for rf in case.rf]
    return lambda: sum(m @ signal for m, signal in zip(matrices, signals, strict=True)).reshape(case.shape)


def loops(case):
    """Plain loops in single precision, compiled by gcc, with the fastest of its vectors."""
    import ctypes
    import subprocess
    import tempfile

    number = lambda values: np.ascontiguousarray(values, np.float32)
    directions = number(np.stack([np.sin(case.angles), np.cos(case.angles)], 1))
    out = np.zeros(case.shape, np.float32)
    names = ("WAVES", "ELEMENTS", "SAMPLES", "COLUMNS", "ROWS")
    sizes = [f"-D{name}={size}" for name, size in zip(names, (*case.rf.shape, *case.shape), strict=True)]
    arrays = [case.rf, number(case.elements), number(case.x), number(case.z), directions, out]
    pointers = [ctypes.c_void_p(values.ctypes.data) for values in arrays]

    def compiled(*flags):
        with tempfile.TemporaryDirectory() as folder:
            library = f"{folder}/loops.so"
            flags = ["-O3", "-march=native", "-ffast-math", *sizes, *flags]
            source = Path(__file__).parent / "loops.c"
            subprocess.run(["gcc", "-shared", "-fPIC", *flags, source, "-o", library, "-lm"], check=True)
            image = ctypes.CDLL(library).image
        image.restype = None

        def once():
            # The arrays are named here, so that they live as long as the pointers to them.
            image(*pointers[: len(arrays)], ctypes.c_float(case.f_number))
            return out

        return once

    # gcc avoids gathers unless it tunes for other processors.
    return fastest([compiled(), compiled("-mprefer-vector-width=512"), compiled("-mtune=skylake-avx512")])


PEERS = {
    "zea": zea,
    "vbeam": vbeam,
    "ultraspy": ultraspy,
    "fast-das": fastdas,
    "matrix": matrix,
    "loops": loops,
}


def main():
    folder, name = Path(sys.argv[1]), sys.argv[2]
    run = PEERS[name](Case(folder))
    np.save(folder / f"{name}.npy", np.asarray(run(), np.float32))
    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        run()
        print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    main()
