"""Runs programs: the narrow interface between the engine, which knows sessions, and PJRT, which knows devices.

A device holds programs and the values of variables by name. There are two, with the same methods: `InProcess` here
and `worker.remote.Worker`. They pass bytes, manifests, numpy arrays and names, and no objects of TensorFlow.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

import numpy as np

from npu_shim.engine.device import keeping
from npu_shim.engine.device.feeding import MAIN, STAGED, Staged, Turns, among, as_they_are, fill, rows_of
from npu_shim.pjrt import arrays, jax_compat, placement, products, ranks
from npu_shim.pjrt.attention.spec import KERNEL
from npu_shim.pjrt.interrupts import uninterrupted
from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.pjrt.program import Program, held_by_all
from npu_shim.step import lowered
from npu_shim.step.counters import BOUNDS, CHECKED, ROWS

# why a step is the session's after all, see `stopped`
STOPPED = "numbers are not finite, or sizes that depend on data are others than its program can take"


class Loaded(NamedTuple):
    """A compiled program.

    Attributes:
        call: function of the state that it replaces, the state that it keeps, the feeds and the number of steps; it
            returns the new state and the fetches.
        feeds: its feeds.
        places: arrays for them, by name: in MAIN, and in the places for feeds that are staged once there are any.
        rows: the parts of those in MAIN for each step of a run.
        replaced, kept: names of the variables that a step replaces, and of what it only reads.
        passed: names of what it leaves here for other programs of the same step.
        together: the ranks that run it, None for this process alone.
        shardings: by which feeds that are staged are placed, by name; none where none can be.
        fetches: whether it fetches anything.
    """

    call: Callable[..., Any]
    feeds: Sequence[Tensor]
    places: dict[int, dict[str, Any]]
    rows: Sequence[dict[str, Any]]
    replaced: tuple[str, ...]
    kept: tuple[str, ...]
    passed: tuple[str, ...]
    together: ranks.Ranks | None = None
    shardings: Mapping[str, Any] = MappingProxyType({})
    fetches: bool = False


class Loading(NamedTuple):
    """What `load` did.

    Attributes:
        number: of the program, for `run`.
        cache_hit: whether it came from the folder for compiled programs.
        warning: why that folder did not serve, "" if it did.
        composites: why attention stays as the graph has it, each reason once.
        undivided: what each of several devices has as a whole, though it has dimensions, "" if there is nothing.
        share: how much of the state each of several devices has, "" where it has all.
        exchanges: of a program of several ranks: what it does when it meets the others, in its order.
    """

    number: int
    cache_hit: bool = False
    warning: str = ""
    composites: Sequence[str] = ()
    undivided: str = ""
    share: str = ""
    exchanges: Sequence[str] = ()

    def lines(self) -> list[str]:
        """What a user is told of it."""
        why = ["attention stays as the graph has it on this device: %s" % reason for reason in self.composites]
        return [line for line in (self.warning, *why, self.undivided, self.share) if line]


class InProcess:
    """A JAX device in this process, or several that run each program together.

    A step donates its state's memory to the next one, but where `keeping` says that a failed step leaves the state.

    Args:
        devices: how many, or "all".
        shard_state: which variables each of them has a part of, a key of `placement.SHARDED`.
        hosts: the name of each process's host, where their devices run programs together; () for this process's alone.

    Attributes:
        platform: "cpu", "gpu", ...
        where: the same, in words.
        job: the `ranks.Job` of processes that run programs together, None here: see `runtime.together`.

    Raises:
        ImportError: JAX is not installed.
        ConfigError: its release cannot be used, its products are wrong, or it sees fewer devices.
    """

    def __init__(self, devices: int | str = 1, shard_state: str = "off", hosts: Sequence[str] = ()) -> None:
        self.job: Any = None
        self._jax = jax_compat.require()
        placement.provide(self._jax, devices)
        self._placement = placement.of(self._jax, devices, shard_state, hosts)
        products.require(self._jax, self._jax.local_devices()[0] if hosts else self._placement.devices[0])
        self.platform = self._placement.platform
        self._has_own_memory = self.platform != "cpu"
        count = len(self._placement.devices)
        self.where = self.platform if count == 1 else "%d devices (%s)" % (count, self.platform)
        if hosts:
            self.where = "%d devices (%s) of %d hosts" % (count, self.platform, len(hosts))
        self._values: dict[str, Any] = {}
        self._spread: dict[str, Any] = {}  # name of a value that is a part of all ranks' array -> own (shape, sharding)
        self._roles: dict[str, str] = {}  # of variables, as the first program has them: all must find them in one place
        self._programs: dict[int, Loaded] = {}
        self._lowered: dict[bytes, Any] = {}  # graph -> what `lowering` made of it, of the last that was lowered
        self._meetings: dict[Any, Any] = {}  # ranks -> function by which they tell each other numbers
        self._numbers = itertools.count()
        # for feeds, by place: fresh memory of that size would cost more than the copy
        self._memory = {place: np.zeros(0, np.uint8) for place in (MAIN, *STAGED)}
        self._turns = Turns()
        self._staging = threading.Lock()  # one thread at a time stages
        self._on_device: dict[int, dict[str, Any]] = {}  # feeds that are staged, by their place
        self._pending: Any = None  # what the last step computes
        self._before: dict[str, Any] = {}  # the state that it replaces

    def load(self, manifest: Manifest, content: bytes, cache: str = "") -> Loading:
        """Compiles a program, a loop of steps if `manifest.iterations` is above 1.

        Args:
            manifest: pjrt.manifest.Manifest.
            content: the graph that `lower` was given last.
            cache: path of a folder that keeps compiled programs for later processes, "" for none.

        Raises:
            KeyError: it is another graph.
            RuntimeError: XLA cannot compile it.
        """
        done = self._lowered.pop(content)
        manifest = self._in_place(manifest)
        written = [t for t in manifest.state if t.name in manifest.donated]
        replaced, is_kept = tuple(t.name for t in written), keeping.is_cheap(self.platform, arrays.size_of(written))
        program = Program(self._jax, manifest, done.artifact, self._placement, not is_kept, cache)
        kept = tuple(t.name for t in manifest.kept)
        call, places = _steps_of(program), self._places(MAIN, manifest.taken)
        meets = manifest.ranks or self._placement.hosts > 1
        devices = len(self._placement.devices) if manifest.ranks else 1
        exchanges = (*done.assumed, *ranks.met(program.compile().as_text(), devices)) if meets else ()
        passed = tuple(t.name for t in manifest.results if t.kind == "passed")
        number, rows = next(self._numbers), rows_of(places, manifest.iterations)
        of_feeds, fetches = self._stageable(manifest), any(t.kind == "fetch" for t in manifest.results)
        self._programs[number] = Loaded(
            call, manifest.taken, {MAIN: places}, rows, replaced, kept, passed, program.ranks, of_feeds, fetches
        )
        composites = tuple(sorted({said for said in program.attention.values() if said != KERNEL}))
        told = placement.undivided(manifest, self._placement), placement.shares(manifest, self._placement)
        return Loading(number, program.is_old, program.trouble, composites, *told, exchanges)

    def lower(self, content: bytes, asked: Mapping[str, Any], cache: str = "") -> dict[str, Any]:
        """Lowers a step's graph, which `load` takes then.

        Args:
            content: what `step.packing.packed` returns.
            asked: feeds, state, known and products, as of `step.lowering.lowered`.
            cache: path of a folder that keeps lowered steps for later processes, "" for none.

        Returns:
            `step.lowered.Lowered.answer()`, and as "trouble" why that folder did not serve, "" if it did.
        """
        own = {"devices": len(self._placement.devices)} if len(self._placement.devices) > 1 else {}
        done, trouble = lowered.of(content, {**asked, **own, "platform": self.platform}, cache)
        self._lowered = {content: done}
        return {**done.answer(), "trouble": trouble}

    def unload(self, number: int) -> None:
        """Frees a program, which is not run again; errors as `settle`."""
        self.settle()
        del self._programs[number]

    def _places(self, place: int, feeds: Sequence[Tensor]) -> dict[str, Any]:
        """Arrays for a program's feeds, in memory that all programs share since one runs at a time."""
        size = arrays.size_of(feeds) + arrays.ALIGNMENT
        if self._memory[place].nbytes < size:
            self._memory[place] = np.zeros(size, np.uint8)
        memory = self._memory[place]
        return arrays.laid_out(memory, feeds, -memory.ctypes.data % arrays.ALIGNMENT)

    def _stageable(self, manifest: Manifest) -> dict[str, Any]:
        """The shardings of feeds that may be staged, by name: of programs of one step, of this process alone."""
        if manifest.iterations > 1 or manifest.ranks or self._placement.hosts > 1:
            return {}
        return {t.name: self._placement.of_feed(t.shape) for t in manifest.taken}

    def _in_place(self, manifest: Manifest) -> Manifest:
        """The manifest with the roles by which its variables are placed."""

        def placed(tensor: Tensor) -> Tensor:
            is_state = tensor.kind == "state"
            return replace(tensor, role=self._roles.setdefault(tensor.name, tensor.role)) if is_state else tensor

        arguments, results = ([placed(tensor) for tensor in part] for part in (manifest.arguments, manifest.results))
        return replace(manifest, arguments=tuple(arguments), results=tuple(results))

    def _sharding(self, name: str, value: Any) -> Any:
        role = self._roles.setdefault(name, "other")
        return self._placement.of_state(Tensor("state", name, np.shape(value), value.dtype.name, role))

    def put(self, values: Mapping[str, Any]) -> None:
        """Copies values of variables: dict of name to array_like, which may be changed once this returns."""
        copied = np.asarray if self._has_own_memory else np.array  # on CPUs JAX makes no copy
        whole = {name: copied(value) for name, value in values.items()}
        places = {name: self._sharding(name, value) for name, value in whole.items()}
        with self._jax.enable_x64(True):
            if self._placement.hosts > 1:  # all hosts put the same variables, and get the first one's values
                placed = self._placement.of_first(whole, places)
            else:
                placed = {n: self._jax.device_put(value, places[n], may_alias=False) for n, value in whole.items()}
            self._jax.block_until_ready(placed)
        self._values.update(placed)
        for name in placed:
            self._spread.pop(name, None)

    def _held(self, names: Iterable[str], of: ranks.Ranks | None) -> dict[str, Any]:
        """Values of variables as a program of this process, or of these ranks, takes them; they stay so."""
        for name in names:
            value, spread = self._values[name], self._spread.get(name)
            if of is None and spread is not None:
                self._values[name] = ranks.own_part(self._jax, value, *self._spread.pop(name))
            elif of is not None and (spread is None or value.sharding.mesh != of.mesh):
                own = value if spread is None else ranks.own_part(self._jax, value, *spread)
                self._spread[name], self._values[name] = (own.shape, own.sharding), of.spread(own)
        return {name: self._values[name] for name in names}

    def run(
        self, number: int, *steps: Mapping[str, Any], staged: Staged | None = None,
        meanwhile: Callable[[], Any] = lambda: None,
    ) -> dict[str, Any]:  # fmt: skip
        """Runs a program on the variables and updates them.

        Args:
            number: what `load` returned.
            steps: for each step, of `manifest.iterations` at most, a dict of tensor name to np.ndarray of the program's
                dtype and shape.
            staged: of one step: what `stage` has returned; of its arrays those count that are in `steps`.
            meanwhile: called when the program has begun.

        Returns:
            dict of fetch name to array, of the last step; `np.asarray` waits for its value.
        """
        self.settle()
        program, place = self._programs[number], self._turns.take(number, staged)
        there = [] if place == MAIN else among(staged, steps[0])
        given = self.placed(place, there)
        rest = {name: where for name, where in program.places[place].items() if name not in there}
        lent = {} if len(steps) > 1 else self._lent(program, rest, steps[0])
        fill(program.rows if place == MAIN else [program.places[place]], steps, [*there, *lent])
        given = {**program.places[place], **given, **lent}
        if lent and not self._has_own_memory:
            return self._run_on_lent(number, given, meanwhile)
        results = self.run_placed(number, given, len(steps))
        meanwhile()
        self._jax.block_until_ready(lent)  # the script may change its arrays now
        return results

    def _lent(self, program: Loaded, places: Mapping[str, Any], feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds that are not copied here: devices with memory of their own begin to bring them there.

        A program on CPUs reads them where they are, if it fetches something: its run waits for its end anyway.
        """
        if self._has_own_memory and program.shardings:
            large = as_they_are(places, feeds)
            with self._jax.enable_x64(True):
                return {name: self._jax.device_put(value, program.shardings[name]) for name, value in large.items()}
        return as_they_are(places, feeds, arrays.ALIGNMENT) if program.shardings and program.fetches else {}

    def _run_on_lent(self, number: int, given: Mapping[str, Any], meanwhile: Callable[[], Any]) -> dict[str, Any]:
        """Runs a step that reads the script's own arrays, and waits for its end, Ctrl-C or not."""
        with uninterrupted():
            results = self.run_placed(number, given, 1)
            try:
                meanwhile()
            finally:
                self.settle()  # the script may change its arrays now
        return results

    def run_placed(self, number: int, places: Mapping[str, Any], count: int) -> dict[str, Any]:
        """Runs a program on feeds that are in place, see `run`.

        Args:
            number: what `load` returned.
            places: dict of name to np.ndarray as `manifest.taken` says, which do not change until the steps are done;
                or to what `placed` returns.
            count: steps.
        """
        self.settle()
        program = self._programs[number]
        for name in program.passed:  # of the step before; it would take memory beside the new ones
            self._values.pop(name, None)
        replaced, kept = (self._held(names, program.together) for names in (program.replaced, program.kept))
        with self._jax.enable_x64(True), uninterrupted():
            new, fetched = program.call(replaced, kept, places, count)
            self._pending, self._before = (new, fetched), replaced
            self._values.update(new)
        results: dict[str, Any] = fetched
        return results

    @property
    def is_busy(self) -> bool:
        """Whether a step runs."""
        first = next(iter(self._jax.tree.leaves(self._pending)), None)  # all that a program computes is ready at once
        return first is not None and not first.is_ready()

    def stage(self, number: int, values: Mapping[str, Any]) -> Staged | None:
        """Copies feeds of a program's next step to the device, while it runs another step.

        Args:
            number: of the program.
            values: dict of tensor name to np.ndarray, which may change again once this returns.

        Returns:
            what `run` takes; None where they must wait for their step, as those of another shape.
        """
        program = self._programs.get(number)
        if program is not None and not self._has_own_memory:  # what its step will read where it is
            lent = self._lent(program, program.places[MAIN], values)
            values = {name: value for name, value in values.items() if name not in lent}
        values = {} if program is None else {name: values[name] for name in program.shardings if name in values}
        if program is None or not values:
            return None
        with self._staging, contextlib.suppress(KeyError, TypeError, ValueError, RuntimeError):
            place, since = self._turns.begin(values), time.monotonic()
            if place not in program.places:
                program.places[place] = self._places(place, program.feeds)
            row = {name: program.places[place][name] for name in values}
            large = as_they_are(row, values) if self._has_own_memory else {}
            fill([row], [values], large)
            self.place(number, place, {**row, **large})
            return Staged(number, values, since, time.monotonic())
        return None

    def place(self, number: int, place: int, feeds: Mapping[str, Any]) -> None:
        """Brings feeds of a program's next step to the device, while it runs another step.

        Args:
            number: of the program.
            place: that of the step's feeds.
            feeds: dict of tensor name to np.ndarray as `manifest.taken` says, which do not change until it is done.

        Raises:
            RuntimeError: there is no room for them, or they must wait for their step.
        """
        shardings = self._programs[number].shardings
        if not shardings:
            raise RuntimeError("feeds of program %d are not staged" % number)
        self._on_device.pop(place, None)
        with self._jax.enable_x64(True):
            there = {name: self._jax.device_put(value, shardings[name]) for name, value in feeds.items()}
            self._on_device[place] = self._jax.block_until_ready(there)

    def placed(self, place: int, names: Iterable[str]) -> dict[str, Any]:
        """Returns feeds that are on the device, of those that `place` has brought there; none is kept here."""
        there = self._on_device.pop(place, {})
        return {name: there[name] for name in names}

    def meet(self, members: Sequence[int], numbers: Sequence[int]) -> list[list[int]]:
        """Waits for other ranks, and returns the numbers that each of them has brought.

        Args:
            members: the numbers of the processes, in one order on all of them.
            numbers: as many on all of them, of 63 bits.
        """
        self.settle()
        key = tuple(members), len(numbers)
        if key not in self._meetings:
            first = placement.Placement(self._placement.devices[:1])
            self._meetings[key] = ranks.meeting(ranks.of(self._jax, members, first))
        told: list[list[int]] = self._meetings[key](numbers).tolist()
        return told

    def settle(self) -> None:
        """Waits for the last step. If it fails and its state was not donated, the previous state is restored.

        Raises:
            RuntimeError: the step failed.
        """
        pending, before = self._pending, self._before
        self._pending, self._before = None, {}
        try:
            self._jax.block_until_ready(pending)
        except RuntimeError:
            self._values.update(before)
            raise

    def get(self, names: Iterable[str]) -> dict[str, Any]:
        """Returns the values of variables: dict of name to np.ndarray; errors as `settle`."""
        self.settle()
        return {name: np.array(placement.own(value)) for name, value in self._held(list(names), None).items()}

    def copy_to(self, places: Mapping[str, Any]) -> None:
        """Copies values of variables into arrays: dict of name to np.ndarray; errors as `settle`."""
        self.settle()
        for name, place in places.items():
            np.copyto(place, placement.own(self._held([name], None)[name]))

    def recover(self) -> int:
        """After a failure: returns how many completed steps the values lack that `get` returns from then on."""
        with contextlib.suppress(RuntimeError):
            self.settle()
        return 0

    def close(self) -> None:
        """Drops everything."""
        self._values.clear()
        self._spread.clear()
        self._programs.clear()
        self._on_device.clear()
        self._pending, self._before = None, {}


def _steps_of(program: Program) -> Callable[..., Any]:
    """Returns the `call` of a Loaded. Where loops are slow, the steps of a run go one after the other."""
    if program.ranks is not None:
        return _step_of_ranks(program, program.ranks)
    if program.manifest.iterations == 1:
        one = program.compile()
        return lambda replaced, kept, places, count: one(replaced, kept, program.placed(places))
    if not program.has_slow_loops:
        loop = program.compile_loop()
        return lambda replaced, kept, places, count: loop(replaced, kept, program.placed(places, 1), np.int32(count))
    one = program.compile()

    def call(state: Any, kept: Any, places: Any, count: int) -> Any:
        fetched: dict[str, Any] = {}
        for number in range(count):
            before = fetched
            feeds = {name: place[number] for name, place in places.items()}
            state, fetched = one(state, kept, program.placed(feeds))
            fetched = held_by_all(before, fetched)
        return state, fetched

    return call


def _step_of_ranks(program: Program, of: ranks.Ranks) -> Callable[..., Any]:
    one, shapes = program.compile(), {tensor.name: tensor.shape for tensor in program.manifest.results}
    where = {feed.name: of.placement.of_feed(feed.shape) for feed in program.manifest.taken}
    whole = of.placement.whole

    def call(replaced: Any, kept: Any, places: Any, count: int) -> Any:
        new, fetched = one(replaced, kept, {name: of.spread(place, where[name]) for name, place in places.items()})
        return new, {name: ranks.own_part(of.jax, value, shapes[name], whole) for name, value in fetched.items()}

    return call


class PassedBound(Exception):
    """A loop of a step ran too often, or an index was out of range: the state of the step is wrong."""


def require_bounds(fetched: Mapping[str, Any]) -> None:
    """Raises PassedBound if what a program fetches says so."""
    if not np.all(fetched.get(BOUNDS, True)):
        raise PassedBound(
            "npu_shim: a loop of the step ran more often, or kept more, than was known when the step was compiled, "
            "or an index was out of range of a TensorArray or list; "
            "the values of its variables are wrong: restore a checkpoint; train with NPU_SHIM_ENGINE=session"
        )


def stopped(fetched: Mapping[str, Any], is_part: bool) -> bool:
    """Whether a program has left its state as it was, since what it checks does not hold.

    Raises PassedBound where the session has but a part of the step's input, for which it might hold.
    """
    holds = bool(np.all(fetched.get(CHECKED, True)))
    if is_part and not holds:
        raise PassedBound("npu_shim: in a step %s" % STOPPED)
    return not holds


def results_of(fetched: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a program fetches as Session.run gives it, each with the rows that it has."""
    counts = {name: int(value) for name, value in fetched.items() if name.startswith(ROWS)}
    return {
        name: as_result(np.asarray(value)[: counts[ROWS + name]] if ROWS + name in counts else value)
        for name, value in fetched.items() if name not in counts
    }  # fmt: skip


def as_result(value: Any) -> Any:
    """Returns a fetched array as Session.run gives it: writable, a scalar for shape ()."""
    return np.array(value)[()]
