"""Loads and runs an exported step: state stays on the device, each step's new state reuses the memory of the old."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from dataclasses import replace
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from npu_shim.pjrt import (  # fmt: skip
    arrays,
    jax_compat,
    manifest,
    merged_rows,
    narrow_gathers,
    products,
    program_cache,
    rank_sums,
    ranks,
    table_gradients,
)
from npu_shim.pjrt.interrupts import uninterrupted
from npu_shim.pjrt.manifest import HOLDS, Manifest, Tensor
from npu_shim.pjrt.placement import Placement
from npu_shim.rewriter.errors import ConfigError, nearest

LOG = logging.getLogger("npu_shim")


def load(folder: str, device: Any = None, state: Any = None, cache: str | None = None) -> Program:
    """Loads an exported step.

    Args:
        folder: what `npu-shim export` wrote.
        device: "cpu", "cuda", a jax device, or None for JAX's default.
        state: initial values, dict of variable name to array, or the path of a file that `Program.save` wrote; default:
            the exported ones.
        cache: path of a folder that keeps compiled programs for later processes; default: $NPU_SHIM_XLA_CACHE, if set.

    Returns:
        Program.

    Raises:
        ImportError: JAX is not installed.
        ConfigError: the folder, device, state or JAX's release cannot be used, or the device's products are wrong.
    """
    jax = jax_compat.require()
    described = manifest.read(folder)
    placed = jax_compat.device(jax, device)
    code = manifest.program(folder, described, placed.platform)
    if state is None:
        state = manifest.state(folder, described)
        if state is None:
            raise ConfigError("'%s' was exported without values; give them as `state`" % folder)
    products.require(jax, placed)
    program = Program(jax, described, code, Placement((placed,)), cache=program_cache.folder(cache))
    program.restore(state)
    return program


class Program:
    """An exported step on its devices, made by `load`. Threads may share it: their steps run one after another.

    Attributes:
        manifest: the step's Manifest.
        device: the jax device, the first of several.
        is_old: whether what was compiled last was loaded from the folder for compiled programs.
        trouble: why that folder did not serve, "" if it did.
        attention: name of a function that computes attention to "kernel", or why it has none; of what was compiled.
        ranks: the `ranks.Ranks` that run it together, None for a program of this process alone.
    """

    def __init__(
        self, jax: Any, described: Manifest, artifact: bytes, placement: Placement, donate: bool = True, cache: str = ""
    ) -> None:
        self.manifest = described
        self.device = placement.devices[0]
        self._placement = replace(placement, ranks=max(len(described.ranks), 1))
        self.ranks = ranks.of(jax, described.ranks, self._placement) if described.ranks else None
        self._jax = jax
        self._artifact = artifact
        self._compiled: dict[int | None, Any] = {}
        self._donate, self._cache = donate, cache
        self.is_old, self.trouble = False, ""
        self.attention: dict[str, str] = {}
        self._narrow: set[str] = set()  # names of the parameters that travel in the dtype in which layers take them
        self._lock = threading.RLock()  # a step gives its state's memory to the next one
        self._donated: dict[str, Any] = {}
        self._kept: dict[str, Any] = {}
        self._holds: Any = True  # whether loops of all steps since `restore` had room for what they kept

    def run(self, feeds: Mapping[str, Any] | None = None, iterations: int | None = None) -> dict[str, Any]:
        """Runs one step, or several as one program.

        Args:
            feeds: dict of tensor name ("x:0", or "x") to array_like. The arrays may be changed once this returns.
            iterations: None for one step. N runs N steps in one XLA loop on the device; each feed then has a first
                dimension of N, one entry per step. On CPU, steps with convolutions run one after another, which is
                faster there.

        Returns:
            dict of fetch name to jax array, with a first dimension of N for N `iterations`. Their computation may still
            run when this returns; numpy.asarray waits for it. Ctrl-C leaves the state of a completed step. What a loop
            that did not keep to its bound has computed is NaN, and `state` and `save` are errors then.

        Raises:
            ConfigError: a feed is missing, unknown, or of another shape or dtype; iterations is no such number.
            RuntimeError: the step failed; the state is lost, see `restore`.
        """
        if iterations is not None and (not isinstance(iterations, (int, np.integer)) or iterations < 1):
            raise ConfigError("iterations is %r, expected None or a whole number, 1 or more" % (iterations,))
        given = self._checked(feeds or {}, iterations)
        with self._lock, self._jax.enable_x64(True):
            if iterations is None or not self.has_slow_loops:
                return self._call(given, iterations)
            fetched = [self._call({name: value[at] for name, value in given.items()}) for at in range(iterations)]
            return {name: self._jax.numpy.stack([outputs[name] for outputs in fetched]) for name in fetched[0]}

    def _call(self, given: Mapping[str, Any], iterations: int | None = None) -> dict[str, Any]:
        fetched: dict[str, Any]
        is_new = iterations not in self._compiled
        program = self.compile(iterations)
        if is_new and self.trouble:
            LOG.warning("npu_shim: %s", self.trouble)
        with uninterrupted():
            self._donated, fetched = program(self._donated, self._kept, given)
            if HOLDS in fetched:
                self._holds = self._jax.numpy.logical_and(self._holds, fetched.pop(HOLDS).all())
        return fetched

    @property
    def has_slow_loops(self) -> bool:
        """Whether steps run faster one after another: on CPU, XLA has fast convolutions outside of loops only."""
        return self.device.platform == "cpu" and b"convolution" in self._artifact

    def compile(self, iterations: int | None = None) -> Any:
        """Returns the program of `run`, as a compiled jax program, with cost_analysis() and memory_analysis()."""
        if self.has_slow_loops:
            iterations = None
        if iterations not in self._compiled:
            leading = () if iterations is None else (iterations,)
            with self._jax.enable_x64(True):
                feeds = {t.name: self._feed(t, leading) for t in self.manifest.feeds}
                step = _step(self._function(), self.manifest, self._whole)
                whole = step if iterations is None else _loop(self._jax, step, iterations)
                self._compiled[iterations] = self._lowered(whole, feeds)
        return self._compiled[iterations]

    def compile_loop(self) -> Any:
        """Returns a compiled jax program of up to `manifest.iterations` steps.

        It takes donated state, kept state, feeds as `manifest.taken` describes them, and how many steps to run (int32,
        1 or more), and returns the new state and the fetches of the last step; of `HOLDS` whether all steps have it.
        """
        fetches = [t for t in self.manifest.results if t.kind == "fetch"]
        with self._jax.enable_x64(True):
            leading = () if self.manifest.iterations == 1 else (self.manifest.iterations,)
            feeds = {t.name: self._feed(t, leading) for t in self.manifest.feeds}
            step = _step(self._function(), self.manifest, self._whole)
            count = self._jax.ShapeDtypeStruct((), np.int32)
            return self._lowered(_last_of_loop(self._jax, step, fetches), feeds, count)

    def _lowered(self, whole: Callable[..., Any], *arguments: Any) -> Any:
        donated = {t.name: self._aval(t) for t in self.manifest.state if t.name in self.manifest.donated}
        kept = {t.name: self._aval(t) for t in self.manifest.kept}
        if self.ranks is not None:
            return self._lowered_for_ranks(self.ranks, whole, donated, kept, *arguments)
        given: dict[str, Any] = {"donate_argnums": 0} if self._donate else {}
        if len(self._placement.devices) > 1:  # the new state is where the next step finds it
            of_hosts = self._placement.hosts > 1
            given["out_shardings"] = self._new_state(), self._placement.whole if of_hosts else None
        lowered = self._jax.jit(whole, **given).lower(donated, kept, *arguments)
        if self._placement.hosts > 1:
            return lowered.compile(compiler_options=self._options_of_several())
        stored = program_cache.compiled(self._jax, lowered, self._placement.devices, self._cache)
        executable, self.is_old, self.trouble = stored
        return executable

    def _lowered_for_ranks(self, of: ranks.Ranks, whole: Callable[..., Any], *given: Any) -> Any:
        described = self._jax.tree.map(of.described, given)
        options: dict[str, Any] = {"donate_argnums": 0} if self._donate else {}
        if len(self._placement.devices) > 1:
            new_state = {name: of.sharding(own) for name, own in self._new_state().items()}
            options["out_shardings"] = new_state, of.sharding(self._placement.whole)
        step = of.around(whole, given)
        return self._jax.jit(step, **options).lower(*described).compile(compiler_options=self._options_of_several())

    def _options_of_several(self) -> dict[str, Any]:
        """Compiler options of a program of several processes."""
        # each process finds its own kernels: one that compiles alone, for a batch of its own, would wait for the others
        alone = {} if self.device.platform == "cpu" else {"xla_gpu_shard_autotuning": False}
        return {**jax_compat.compiler_options(self.device.platform, len(self._placement.devices)), **alone}

    def placed(self, feeds: Mapping[str, Any], leading: int = 0) -> Mapping[str, Any]:
        """Feeds as a compiled program takes them: of several hosts each gives its devices their parts.

        Args:
            feeds: dict of name to np.ndarray, which do not change until the steps are done.
            leading: 1 for those of several steps, else 0.
        """
        if self._placement.hosts == 1:
            return feeds
        own = self.manifest.own_rows
        places = {t.name: self._placement.of_feed(t.shape, leading, t.name in own) for t in self.manifest.feeds}
        return {
            name: self._placement.placed_rows(value, places[name], leading) if name in own
            else self._placement.placed(value, places[name])
            for name, value in feeds.items()
        }  # fmt: skip

    def _function(self) -> Callable[..., Any]:
        signature = self.manifest.arguments, self.manifest.results
        pairs = [[(t.shape, arrays.dtype_of(t.dtype)) for t in part] for part in signature]
        artifact = self._artifact
        if self.manifest.attention:
            from npu_shim.pjrt.attention import substitution  # imports Pallas, which few programs need

            highest = self.manifest.float32_products == "highest"
            table = self.manifest.attention
            artifact, self.attention = substitution.for_devices(artifact, table, highest, self._placement)
        for rewritten in (merged_rows.for_devices, table_gradients.for_devices):
            artifact = rewritten(artifact, self.manifest.arguments, self._placement)
        artifact = rank_sums.for_devices(artifact, self._placement)
        divided = [number for number, t in enumerate(self.manifest.arguments) if self._is_divided(t)]
        narrow: Sequence[tuple[int, str]] = ()
        if divided:
            artifact, narrow = narrow_gathers.split(artifact, divided)
        self._narrow = {self.manifest.arguments[number].name for number, _ in narrow}
        more = [(self.manifest.arguments[number].shape, arrays.dtype_of(dtype)) for number, dtype in narrow]
        function = jax_compat.function(self._jax, artifact, pairs[0] + more, pairs[1], self.device.platform)
        return lambda *flat: function(*flat, *(self._gathered(flat[number], number, dtype) for number, dtype in narrow))

    def _gathered(self, value: Any, number: int, dtype: str) -> Any:
        """A parameter as a whole, in a dtype to which each device has cast its part."""
        own = self._constrained(value.astype(dtype), self._placement.of_state(self.manifest.arguments[number]))
        return self._constrained(own, self._placement.whole)

    def _constrained(self, value: Any, where: Any) -> Any:
        """A value of this process's devices in a sharding; of ranks, its axes are some of those of all ranks' mesh."""
        return self._jax.lax.with_sharding_constraint(value, where if self.ranks is None else where.spec)

    def _is_divided(self, tensor: Tensor) -> bool:
        is_parameter = tensor.kind == "state" and tensor.role == "parameter"
        return is_parameter and self._placement.divided(tensor) is not None

    def _new_state(self) -> dict[str, Any]:
        """The shardings of what a step leaves on the devices: those of what it found."""
        of = self._placement.of_state
        donated = {t.name: of(t) for t in self.manifest.state if t.name in self.manifest.donated}
        return {**donated, **{t.name: self._placement.whole for t in self.manifest.results if t.kind == "passed"}}

    def _whole(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values of variables with parameters as a whole: the partitioner would rather divide activations."""
        parts = [t for t in self.manifest.state if self._is_divided(t) and t.name not in self._narrow]
        gathered = (self._constrained(values[t.name], self._placement.whole) for t in parts)
        return {**values, **dict(zip((t.name for t in parts), gathered))}

    def _aval(self, tensor: Tensor) -> Any:
        dtype, placed = arrays.dtype_of(tensor.dtype), self._placement.of_state(tensor)
        return self._jax.ShapeDtypeStruct(tensor.shape, dtype, sharding=placed)

    def _feed(self, tensor: Tensor, leading: Sequence[int]) -> Any:
        placed = self._placement.of_feed(tensor.shape, len(leading), tensor.name in self.manifest.own_rows)
        shape = (*leading, *tensor.shape)
        return self._jax.ShapeDtypeStruct(shape, arrays.dtype_of(tensor.dtype), sharding=placed)

    def state(self) -> dict[str, Any]:
        """Returns the variables' values: dict of name to numpy array.

        Raises:
            RuntimeError: a loop of a step did not keep to its bound, so that they are wrong.
        """
        with self._lock:
            self._require_bounds()
            values = dict(self._kept, **self._donated)
            return {tensor.name: np.asarray(values[tensor.name]) for tensor in self.manifest.state}

    def save(self, path: str) -> None:
        """Writes the state as .npz; the file appears whole or not at all. Raises ConfigError when it cannot.

        Raises:
            RuntimeError: as `state`.
        """
        with self._lock:
            self._require_bounds()
            values = dict(self._kept, **self._donated)
            named = ((t.name, np.asarray(values[t.name])) for t in self.manifest.state)
            arrays.write(path, itertools.chain(named, arrays.slices_member(self.manifest.slices)))

    def _require_bounds(self) -> None:
        if not self._holds:
            raise RuntimeError(
                "npu_shim: a loop of a step ran more often, or kept more, than was known when the step was exported, "
                "or an index was out of range of a TensorArray or list; "
                "what it fetched is NaN, and the values of its variables are wrong: restore others"
            )

    def restore(self, state: Any) -> None:
        """Sets every variable: dict of name to array, or the path of a file that `save` wrote.

        Raises:
            ConfigError: a variable is missing, or a value has another shape or dtype.
        """
        if isinstance(state, (str, os.PathLike)):
            state = arrays.read(os.fspath(state))
        _require_names("state", state)
        missing = [t.name for t in self.manifest.state if t.name not in state]
        if missing:
            raise ConfigError("state lacks %d variables, '%s' first" % (len(missing), missing[0]))
        placed = {}
        with self._jax.enable_x64(True):
            for tensor in self.manifest.state:
                given = state[tensor.name]
                # a copy, of which JAX makes none of NumPy's arrays on CPUs: the caller may change its own memory
                given = given if isinstance(given, self._jax.Array) else arrays.copied(tensor.name, given)
                value = _fitted("variable", tensor, given, tensor.shape)
                placed[tensor.name] = self._jax.device_put(value, self._placement.of_state(tensor), may_alias=False)
            self._jax.block_until_ready(placed)  # from now on the caller may change the arrays
        with self._lock:
            self._donated = {name: value for name, value in placed.items() if name in self.manifest.donated}
            self._kept = {name: value for name, value in placed.items() if name not in self.manifest.donated}
            self._holds = True

    def _checked(self, feeds: Mapping[str, Any], iterations: int | None) -> dict[str, Any]:
        known = {t.name: t for t in self.manifest.feeds}
        _require_names("feeds", feeds)
        given = {}
        for name, value in feeds.items():
            full = name if ":" in name else name + ":0"
            if full not in known:
                raise ConfigError(
                    "feed '%s' is not one of the program's: %s%s" % (name, ", ".join(known), nearest(full, known))
                )
            if full in given:
                raise ConfigError("feed '%s' is given twice, with and without ':0'" % full)
            # a copy: the caller may fill the array again while the step runs; JAX's own arrays never change
            given[full] = value if isinstance(value, self._jax.Array) else arrays.copied("feed '%s'" % name, value)
        missing = sorted(set(known) - set(given))
        if missing:
            raise ConfigError("feeds lack %s" % ", ".join("'%s'" % name for name in missing))
        leading = () if iterations is None else (iterations,)
        fitted = {n: _fitted("feed", known[n], value, leading + known[n].shape) for n, value in given.items()}
        places = {name: self._placement.of_feed(known[name].shape, len(leading)) for name in fitted}
        with self._jax.enable_x64(True):
            placed: dict[str, Any] = self._jax.device_put(fitted, places)
        return placed


def _require_names(what: str, given: Any) -> None:
    """Raises ConfigError for what is no dict of names."""
    if not isinstance(given, Mapping):
        raise ConfigError("%s is %s, expected a dict of names to arrays" % (what, type(given).__name__))
    for name in given:
        if not isinstance(name, str):
            raise ConfigError("%s names %r, expected a str" % (what, name))


def _step(function: Callable[..., Any], described: Manifest, whole: Callable[..., Any]) -> Callable[..., Any]:
    """The program as a function: donated state, kept state, feeds -> new state, fetches; all are dicts by name.

    What is passed to other programs is part of the new state. `whole` is applied to the state first.
    """

    def step(donated: Any, kept: Any, feeds: Any) -> Any:
        state = whole(dict(kept, **donated))
        flat = [(feeds if t.kind == "feed" else state)[t.name] for t in described.arguments]
        results = list(zip(described.results, function(*flat)))
        new = {t.name: value for t, value in results if t.kind != "fetch" and (t.kind == "passed" or t.name in donated)}
        return new, {t.name: value for t, value in results if t.kind == "fetch"}

    return step


def _loop(jax: Any, step: Callable[..., Any], iterations: int) -> Callable[..., Any]:
    def loop(donated: Any, kept: Any, feeds: Any) -> Any:
        return jax.lax.scan(lambda state, feed: step(state, kept, feed), donated, feeds, length=iterations)

    return loop


def _last_of_loop(jax: Any, step: Callable[..., Any], fetches: Sequence[Tensor]) -> Callable[..., Any]:
    def loop(donated: Any, kept: Any, feeds: Any, count: Any) -> Any:
        def body(carried: Any) -> Any:
            number, state, before = carried
            now = {name: jax.lax.dynamic_index_in_dim(stack, number, keepdims=False) for name, stack in feeds.items()}
            state, fetched = step(state, kept, now)
            return number + 1, state, held_by_all(before, fetched)

        start = {t.name: jax.numpy.full(t.shape, t.name == HOLDS, arrays.dtype_of(t.dtype)) for t in fetches}
        carried = np.int32(0), donated, start
        return jax.lax.while_loop(lambda state: state[0] < count, body, carried)[1:]

    return loop


def held_by_all(before: Mapping[str, Any], fetched: dict[str, Any]) -> dict[str, Any]:
    """What a step fetches, with `HOLDS` false where it was false in a step before it."""
    return {**fetched, HOLDS: fetched[HOLDS] & before[HOLDS]} if HOLDS in fetched and HOLDS in before else fetched


def _fitted(what: str, tensor: Tensor, value: Any, shape: Sequence[int]) -> Any:
    """Returns `value` in the tensor's dtype and shape, see `arrays.as_dtype`."""
    array = arrays.as_dtype("%s '%s'" % (what, tensor.name), value, arrays.dtype_of(tensor.dtype))
    if tuple(array.shape) != tuple(shape):
        raise ConfigError("%s '%s' has shape %s, expected %s" % (what, tensor.name, tuple(array.shape), tuple(shape)))
    return array
