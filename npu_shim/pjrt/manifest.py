"""An exported step as a folder: the program, its initial state, and a manifest that describes them.

    manifest.json        names, shapes, dtypes of arguments and results, in the program's order; plan; versions
    program.stablehlo    the step as a StableHLO portable artifact, as jax.export makes it
    program.cpu.stablehlo    the same for CPUs, where that is another one
    state.npz            initial values by variable name; absent when they were not exported

The folder appears whole or not at all. The standard library and numpy are enough to read and write it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Iterable, Mapping

from npu_shim.pjrt import arrays, atomic_write
from npu_shim.rewriter.errors import ConfigError

FORMAT = 2
FILE = "manifest.json"
STATE = "state.npz"
HOLDS = "npu_shim/bounds_hold"  # a fetch, bool: that a step kept to its bounds; of a loop, that all its steps did
CHECKED = "npu_shim/checks_hold"  # a fetch, bool: that what functions check holds, else the state is as it was
ROWS = "npu_shim/rows/"  # and a fetch's name: a fetch, int32, how many rows of that there are
PROGRAM, FOR_CPUS = "program.stablehlo", "program.cpu.stablehlo"
KIND = "stablehlo"


@dataclass(frozen=True)
class Tensor:
    """One argument or result of the program.

    Attributes:
        kind: "feed" or "state" for an argument, "fetch" or "state" for a result; "passed" for what stays on the device
            for other programs of the same step, or comes from there.
        name: the variable's name for state, the tensor's otherwise.
        shape: a tuple of sizes.
        dtype: its name, as numpy and ml_dtypes have it.
        role: of state, "parameter", "optimizer" or "other"; "" otherwise.
    """

    kind: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str = ""

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        count = 2 if self.dtype == "bfloat16" else {"bool": 1}.get(self.dtype) or int(_bits(self.dtype)) // 8
        for length in self.shape:
            count *= length
        return count


def _bits(dtype: str) -> str:
    return dtype.lstrip("abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True)
class Manifest:
    """Describes an exported step.

    Attributes:
        arguments: feeds and state, in the program's order.
        results: fetches and new state, in the program's order.
        kind: of the program's file, KIND; earlier releases wrote others.
        sha256: file name to the SHA-256 of its bytes.
        float32_products: "highest" or "default": float32 matrix products and convolutions in float32, or in what the
            device uses for them by default (TF32 on NVIDIA GPUs since Ampere).
        iterations: most steps in a run of the program; if above 1, it takes feeds with a first dimension of that size.
        options: the precision options, as given.
        plan: counts of the rewrite and of its reasons.
        versions: of the software that wrote it.
        attention: name of a function of the program that computes attention to its `attention.spec.Spec` as JSON; a
            card that has a kernel for it runs that.
        slices: name of a partitioned variable's part to (the variable's name, the part's place in it), as TensorFlow's
            checkpoints have them.
        ranks: of a program that several ranks run together: the numbers of their processes, in order; else ().
        own_rows: name of a feed of which each of several hosts gives rows of its own, to the number of one host's.
    """

    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    kind: str = KIND
    sha256: dict[str, str] = field(default_factory=dict)
    float32_products: str = "default"
    iterations: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    slices: dict[str, Any] = field(default_factory=dict)
    attention: dict[str, str] = field(default_factory=dict)
    ranks: tuple[int, ...] = ()
    own_rows: dict[str, int] = field(default_factory=dict)

    @property
    def feeds(self) -> tuple[Tensor, ...]:
        """The feeds: tuple of Tensor."""
        return tuple(t for t in self.arguments if t.kind == "feed")

    @property
    def taken(self) -> tuple[Tensor, ...]:
        """The feeds as a run takes them, of `iterations` steps, of this host's rows: tuple of Tensor."""
        leading = (self.iterations,) if self.iterations > 1 else ()
        return tuple(replace(tensor, shape=leading + self._own(tensor)) for tensor in self.feeds)

    def _own(self, tensor: Tensor) -> tuple[int, ...]:
        rows = self.own_rows.get(tensor.name)
        return tensor.shape if rows is None else (rows, *tensor.shape[1:])

    @property
    def state(self) -> tuple[Tensor, ...]:
        """The input state: tuple of Tensor."""
        return tuple(t for t in self.arguments if t.kind == "state")

    @property
    def kept(self) -> tuple[Tensor, ...]:
        """What a run finds on the device and does not replace: tuple of Tensor."""
        return tuple(t for t in self.arguments if t.kind in ("state", "passed") and t.name not in self.donated)

    @property
    def donated(self) -> frozenset[str]:
        """Names of the state that a step replaces, whose memory the new state takes: frozenset of str."""
        return frozenset(t.name for t in self.results if t.kind == "state") & {t.name for t in self.state}


def write(
    folder: str,
    program: bytes | Mapping[str, bytes],
    manifest: Manifest,
    state: Iterable[tuple[str, Any]] | None = None,
) -> Manifest:
    """Writes an exported step.

    Args:
        folder: path; it must not exist, or be empty.
        program: the artifact; or platform -> artifact, of which the first is for all platforms but "cpu", if that is
            another key.
        manifest: Manifest; `sha256` is filled in here.
        state: iterable of (variable name, array), or None to export without values.

    Returns:
        The Manifest that was written.

    Raises:
        ConfigError: the folder is in use or cannot be written.
    """
    require_unused(folder)
    with atomic_write.folder(folder, parents=True) as unfinished:
        return _fill(unfinished, program, manifest, state)


def require_unused(folder: str) -> None:
    """Raises ConfigError where something is at the path of a folder, but for an empty one."""
    folder = os.path.abspath(folder)
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise ConfigError("'%s' exists; an export goes to a new or empty folder" % folder)


def _fill(
    folder: str, program: bytes | Mapping[str, bytes], manifest: Manifest, state: Iterable[tuple[str, Any]] | None
) -> Manifest:
    artifacts = [program] if isinstance(program, bytes) else [*program.values()]
    names = [PROGRAM, FOR_CPUS][: len(artifacts)]
    for name, artifact in zip(names, artifacts):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(artifact)
    if state is not None:
        members: Iterable[tuple[str, Any]] = itertools.chain(state, arrays.slices_member(manifest.slices))
        arrays.write(os.path.join(folder, STATE), members)
        names.append(STATE)
    manifest = replace(manifest, sha256={name: _sha256(os.path.join(folder, name)) for name in names})
    with open(os.path.join(folder, FILE), "w", encoding="utf-8") as f:
        values = dict(asdict(manifest), format=FORMAT)
        json.dump(dict(values, digest=_digest(values)), f, indent=1, sort_keys=True)
        f.write("\n")
    return manifest


def read(folder: str) -> Manifest:
    """Reads the manifest of an exported step.

    Raises:
        ConfigError: there is none, it cannot be read, was changed, or was written in another format.
    """
    path = os.path.join(folder, FILE)
    try:
        with open(path, encoding="utf-8") as f:
            values = json.load(f)
        version, digest = values["format"], values.pop("digest", None)
        if version == FORMAT and _digest(values) != digest:
            raise ConfigError("'%s' is not the manifest that was exported: its SHA-256 differs" % path)
        if values.pop("format") != FORMAT:
            raise ConfigError("'%s' has format %s; this npu_shim reads format %d" % (path, version, FORMAT))
        return decoded(values)
    except OSError as reason:
        raise ConfigError("'%s' is not an exported step: %s" % (folder, reason.strerror or reason)) from reason
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise ConfigError("'%s' is not the manifest of an exported step (%s)" % (path, reason)) from reason


def decoded(values: Mapping[str, Any]) -> Manifest:
    """Returns the Manifest that JSON made of `dataclasses.asdict` of one. Raises KeyError or TypeError for another."""
    tensors = {
        part: tuple(Tensor(**dict(value, shape=tuple(value["shape"]))) for value in values[part])
        for part in ("arguments", "results")
    }
    return Manifest(**{**values, **tensors, "ranks": tuple(values.get("ranks", ()))})


def program(folder: str, manifest: Manifest, platform: str = "") -> bytes:
    """Returns the artifact for a platform, as JAX names it.

    Raises:
        ConfigError: the bytes are not the ones that were exported, or are HLO, as earlier releases wrote it.
    """
    if manifest.kind != KIND:
        text = "'%s' holds %s of an earlier release of npu_shim, which this one does not read: export it again"
        raise ConfigError(text % (folder, manifest.kind.upper()))
    name = FOR_CPUS if platform == "cpu" and FOR_CPUS in manifest.sha256 else PROGRAM
    with open(checked(folder, manifest, name), "rb") as f:
        return f.read()


def state(folder: str, manifest: Manifest) -> dict[str, Any] | None:
    """Returns the exported initial values: dict of variable name to array, or None when there are none.

    Raises:
        ConfigError: the file is not the one that was exported.
    """
    if STATE not in manifest.sha256:
        return None
    values = arrays.read(checked(folder, manifest, STATE))
    values.pop(arrays.SLICES, None)
    return values


def checked(folder: str, manifest: Manifest, name: str) -> str:
    """Returns the path of a file of the folder after comparing its bytes with the manifest."""
    path = os.path.join(folder, name)
    try:
        digest = _sha256(path)
    except OSError as reason:
        raise ConfigError("'%s' cannot be read: %s" % (path, reason.strerror or reason)) from reason
    if digest != manifest.sha256.get(name):
        raise ConfigError("'%s' is not the file that was exported: its SHA-256 differs from the manifest's" % path)
    return path


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
