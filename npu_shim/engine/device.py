"""How programs run: the narrow seam between the engine, which knows sessions, and PJRT, which knows devices.

A device holds programs and the values of variables by name. Whatever runs programs has these methods: `load`, `put`,
`run`, `get`, `drop`. Nothing of TensorFlow crosses: bytes, manifests, numpy arrays and names.
"""

import threading
from signal import SIGINT, getsignal, signal

import numpy as np

from npu_shim.pjrt import jax_door
from npu_shim.pjrt.program import Program


class InProcess:
    """A device of JAX's in this process.

    On accelerators a step gives its state's memory to the next one. On CPUs it does not: so a step that fails or is
    interrupted leaves the state of the one before.

    Attributes:
        platform: "cpu", "gpu", ...

    Raises:
        ImportError: JAX is not installed.
        ConfigError: its release cannot be used.
    """

    def __init__(self):
        self._jax = jax_door.require()
        self._device = jax_door.device(self._jax)
        self.platform = self._device.platform
        self._values = {}
        self._programs = []  # (compiled program, names of the state that a step replaces, names of what it keeps)
        self._pending, self._before = None, {}  # what the last step computes, and what it replaced

    def load(self, manifest, hlo):
        """Compiles a program.

        Args:
            manifest: pjrt.manifest.Manifest.
            hlo: bytes of an HloModuleProto.

        Returns:
            What `run` takes for it.

        Raises:
            ConfigError: StableHLO cannot express it.
            RuntimeError: XLA cannot compile it.
        """
        program = Program(
            self._jax, manifest, jax_door.stablehlo(hlo), self._device, donate=self.platform != "cpu"
        )  # fmt: skip
        replaced = tuple(t.name for t in manifest.state if t.name in manifest.donated)
        kept = tuple(t.name for t in manifest.state if t.name not in manifest.donated)
        self._programs.append((program.compile(), replaced, kept))
        return len(self._programs) - 1

    def put(self, values):
        """Takes values of variables: dict of name to array_like, which may be changed once this returns."""
        with self._jax.enable_x64(True):
            placed = {
                name: self._jax.device_put(np.asarray(value), self._device, may_alias=False)
                for name, value in values.items()
            }
            self._jax.block_until_ready(placed)
        self._values.update(placed)

    def run(self, number, feeds):
        """Runs a program on the variables, which have their new values then.

        Args:
            number: what `load` returned.
            feeds: dict of tensor name to np.ndarray of the program's dtype and shape; they are copied.

        Returns:
            dict of fetch name to array, for `np.asarray`, which waits for it.
        """
        self.settle()
        compiled, *names = self._programs[number]
        given = {name: np.array(value) for name, value in feeds.items()}
        replaced, kept = ({name: self._values[name] for name in each} for each in names)
        with self._jax.enable_x64(True), _uninterrupted():
            new, fetched = compiled(replaced, kept, given)
            self._pending, self._before = new, replaced
            self._values.update(new)
        return fetched

    def settle(self):
        """Waits for the last step. Where it fails, and its state was not given away, the one before holds again.

        Raises:
            RuntimeError: it failed.
        """
        pending, before = self._pending, self._before
        self._pending, self._before = None, {}
        try:
            self._jax.block_until_ready(pending)
        except RuntimeError:
            self._values.update(before)
            raise

    def get(self, names):
        """Returns the values of variables: dict of name to np.ndarray; errors as `settle`."""
        self.settle()
        return {name: np.array(self._values[name]) for name in names}

    def drop(self, names=None):
        """Forgets the values of variables, None for everything."""
        for name in list(self._values) if names is None else names:
            self._values.pop(name, None)


class _uninterrupted:
    """Scope in which Ctrl-C waits: between a step and the moment when its state is kept, the state is nowhere."""

    def __enter__(self):
        self._handler = getsignal(SIGINT)
        self._noted = []
        self._defers = threading.current_thread() is threading.main_thread() and callable(self._handler)
        if self._defers:
            signal(SIGINT, lambda *arguments: self._noted.append(arguments))

    def __exit__(self, *_):
        if self._defers:
            signal(SIGINT, self._handler)
            if self._noted:
                self._handler(*self._noted[-1])


def as_result(value):
    """Returns a fetched array as Session.run gives it: writable, a scalar for shape ()."""
    return np.array(value)[()]
