"""Training steps as scripts/gpu_check carries them, and how they run on a device of the engine. JAX, no TensorFlow."""

import json
from dataclasses import asdict

import bench_xla_report
import numpy as np

from npu_shim.pjrt import arrays, atomic_write, jax_compat, manifest, placement, program_cache
from npu_shim.pjrt.program import Program

STEPS = 5
LOSSES = ("loss", "entropy", "cost")  # in a script's own words: the op L2Loss is often a part of one
SAMPLES = 256  # values of each variable that are compared
SMALL = 64  # values of a variable: so many always travel
MOST_STORED = 30 * 10**6  # bytes of variables that travel whole; of more, the large ones are drawn on both sides
STORED = "stored"  # a rule: the values are in the file


class Step:
    """A packed step.

    Attributes:
        content: as `step.packing.packed` returns it.
        asked: what a device is asked to lower, as of `lower`.
        manifest: its Manifest.
        rules: variable name -> rule of its values, as of `bench_xla_report.values`, or [STORED].
        stored: variable name -> np.ndarray of those.
        feeds: name -> np.ndarray.
        expected: name -> np.ndarray: "losses", "update/VARIABLE", "drawn/FETCH".
    """

    def __init__(self, content, asked, described, rules, stored, feeds, expected=None):
        self.content, self.asked, self.manifest, self.rules = content, asked, described, rules
        self.stored, self.feeds, self.expected = stored, feeds, expected or {}

    def expect(self, losses, updates):
        """Takes what `OnDevice.result` has returned for what is expected of other devices."""
        self.expected = {"losses": losses, **{"update/" + key: value for key, value in updates.items()}}

    def write(self, path):
        """Writes it to a file, which appears whole or not at all."""
        head = {"asked": self.asked, "manifest": asdict(self.manifest), "rules": self.rules}
        parts = {"feed": self.feeds, "state": self.stored, "expected": self.expected}
        named = {"%s/%s" % (kind, name): value for kind, part in parts.items() for name, value in part.items()}
        with atomic_write.file(path) as file:
            np.savez_compressed(file, head=json.dumps(head), content=np.frombuffer(self.content, np.uint8), **named)

    @classmethod
    def read(cls, path):
        """Reads what `write` wrote."""
        with np.load(path) as file:
            head = json.loads(str(file["head"]))
            parts = {"feed": {}, "state": {}, "expected": {}}
            for key in file.files:
                kind, _, name = key.partition("/")
                if name:
                    parts[kind][name] = file[key]
            described = manifest.decoded(head["manifest"])
            given = head["asked"], described, head["rules"], parts["state"], parts["feed"], parts["expected"]
            return cls(file["content"].tobytes(), *given)

    def values(self):
        """Variable name -> np.ndarray, as the step begins."""
        tensors = {
            t.name: (t.shape, arrays.dtype_of(t.dtype)) for t in self.manifest.state if t.name not in self.stored
        }
        return {**bench_xla_report.values(tensors, self.rules), **self.stored}

    @property
    def fetches(self):
        """Names of the fetches; that of a number is the first, one that is named as losses are before others."""

        def rank(tensor):
            is_number = tuple(tensor.shape) == () and "float" in tensor.dtype
            return not is_number, not any(word in tensor.name for word in LOSSES)

        return [t.name for t in sorted((t for t in self.manifest.results if t.kind == "fetch"), key=rank)]


class OnDevice:
    """A step on JAX's default device.

    Args:
        step: a Step.

    Attributes:
        step: the same.
        program: a `pjrt.program.Program`.

    Raises:
        RuntimeError: it is refused, or cannot be compiled.
    """

    def __init__(self, step):
        from npu_shim.step import lowering  # imports JAX, which a process that only records need not have

        self.step, self._jax = step, jax_compat.require()
        device = self._jax.devices()[0]
        done = lowering.lowered(step.content, platform=device.platform, **step.asked)
        if done.refusal:
            raise RuntimeError(done.refusal)
        where, cache = placement.Placement((device,)), program_cache.folder(None)
        self.program = Program(self._jax, step.manifest, done.artifact, where, cache=cache)
        self.program.restore(step.values())

    def run(self):
        """Runs one step; returns its fetches, np.ndarrays by name."""
        return {name: np.asarray(value) for name, value in self.program.run(self.step.feeds).items()}

    def result(self):
        """(losses of STEPS steps, samples of the updates of the first)."""
        losses, before, updates = [], self.step.values(), {}
        for number in range(STEPS):
            fetched = self.run()
            losses += [float(fetched[name]) for name in self.step.fetches[:1] if fetched[name].size == 1]
            if not number:
                after, written = self.program.state(), self.step.manifest.donated
                updates = samples(before, {name: value for name, value in after.items() if name in written})
        return np.array(losses), updates


def described_by(values):
    """(rules, stored) of variables' values, as of `Step`: where these are many, large ones of floats are drawn."""
    is_much = sum(value.nbytes for value in values.values()) > MOST_STORED
    drawn = {name for name, value in values.items() if is_much and value.size > SMALL and value.dtype.kind == "f"}
    rules = {
        name: ["normal", float(value.mean()), float(value.std())] if name in drawn else [STORED]
        for name, value in values.items()
    }
    return rules, {name: value for name, value in values.items() if name not in drawn}


def samples(before, after):
    """Name -> some values of each variable's update, of variables of floats."""
    picked = {}
    for name, value in after.items():
        if value.dtype.kind == "f" and value.size:
            at = np.random.RandomState(0).randint(0, value.size, min(value.size, SAMPLES))
            picked[name] = value.reshape(-1)[at].astype(float) - before[name].reshape(-1)[at].astype(float)
    return picked
