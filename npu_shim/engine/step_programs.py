"""The programs of one compiled step on a device of the engine, in this process or in the worker."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, Mapping, NamedTuple, Sequence

from npu_shim.engine import sessions
from npu_shim.engine.device.programs import require_bounds, results_of
from npu_shim.engine.device.worker import memory, starting
from npu_shim.engine.runtime import hosts
from npu_shim.export import traced
from npu_shim.rewriter.errors import ConfigError, PlanError
from npu_shim.session import lines
from npu_shim.xla import recent
from npu_shim.xla.step_function import Prepared

IN_SESSION = "run the step in a session"
EACH_VALUE = "the step is compiled for each value of feed '%s': %s"
MANY = 16  # programs for values of feeds of floats, which hardly come twice
TOO_MANY = (
    "the step was compiled for %d values of feed '%s', which holds floating-point numbers: %s; make it one of "
    "`constants`, or run the step in a session"
)
DIFFERING = (
    "feed '%s' must have one value in the %d steps of a call, for which the step is compiled: %s; leave out "
    "iterations_per_loop"
)


class _Opened(NamedTuple):
    """A device that is open.

    Attributes:
        device: `InProcess` or a `Worker`, of this step alone; all Workers of a process are connections to one worker.
        programs: shapes of the feeds, and values of those that are known -> number on the device.
    """

    device: Any
    programs: recent.Recent


class StepPrograms:
    """Compiles and runs a step's programs. Its variables stay on the device between calls.

    The device is opened at the first one, and again after a failure.

    Args:
        prepared: step_function.Prepared.
        count: steps in one call.
        device: "CPU" or "GPU", which JAX must find first; None for what it finds.
        cache: path of a folder that keeps compiled programs for later processes, "" for none.
        most: how many programs are kept; one that gives way is freed on the device.

    Attributes:
        recomputation, attention: as those of `CompiledStep`.
    """

    def __init__(
        self, prepared: Prepared, count: int, device: str | None, cache: str = "", most: int = recent.MOST
    ) -> None:
        self.recomputation: Any = None
        self.attention: Any = None
        self._prepared, self._count, self._wanted, self._cache, self._most = prepared, count, device, cache, most
        self._names = [feed.name for feed in prepared.feeds.values()]
        self._updated = [variable for variable in prepared.state if variable.updated]
        self._told: dict[str, str] = {}  # name of a feed whose value is part of programs -> why
        self._of_floats = 0  # how many programs were made for values of feeds of floats
        self._lock = threading.RLock()
        self._opened: _Opened | None = None
        self._is_there = self._is_newer = False  # whether the device has the variables, and newer values of them

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Runs a call's steps: takes the feeds, stacked where there are several steps; returns the fetched values.

        Raises:
            ConfigError: the device is not the wanted one, or there is none.
            PlanError: the step cannot be compiled.
            RuntimeError: the device failed; the error says which state the variables have.
            PassedBound: a loop did not keep to its bound; the state is wrong.
        """
        stacked = zip(*arrays) if arrays and self._count > 1 else [arrays] * self._count
        steps = [dict(zip(self._names, row)) for row in stacked]
        with self._lock:
            try:
                device, number = self._open().device, self._loaded(arrays)
                if not self._is_there:
                    device.put({variable.name: variable.value for variable in self._prepared.state})
                    self._is_there = True
                self._is_newer = True
                fetched = device.run(number, *steps)
                require_bounds(fetched)
                results = results_of(fetched)
                return [results[fetch.name] for fetch in self._prepared.fetches if not isinstance(fetch, str)]
            except RuntimeError as error:
                raise self._recovered(error) from error

    def to_variables(self) -> None:
        """Gives the variables of the Prepared their newest values; errors as `run`."""
        with self._lock:
            if self._is_newer:
                try:
                    self._assign(self._open().device)
                except RuntimeError as error:
                    raise self._recovered(error) from error

    def from_variables(self, values: Mapping[str, Any]) -> None:
        """Gives variables of the Prepared these values, and takes those of all of them for the newest."""
        with self._lock:
            for variable in self._prepared.state:
                if variable.name in values:
                    variable.assign(values[variable.name])
            self._is_there = self._is_newer = False

    def _open(self) -> _Opened:
        if self._opened is None:
            try:
                hosts.refuse("compile_step")
                device = sessions.open_device()
            except ImportError as reason:
                raise ConfigError("there is no JAX: %s" % reason) from reason
            if self._wanted is not None and self._wanted.lower() != device.platform:
                raise ConfigError("device is '%s', and JAX finds %s" % (self._wanted, device.where))
            self._opened = _Opened(device, recent.Recent(self._most, device.unload))
        return self._opened

    def _forget_device(self) -> None:
        self._opened, self._is_there, self._is_newer = None, False, False

    def _assign(self, device: Any) -> None:
        values = device.get([variable.name for variable in self._updated])
        for variable in self._updated:
            variable.assign(values[variable.name])
        self._is_newer = False

    def _loaded(self, arrays: Sequence[Any]) -> Any:
        """The number of the program for these feeds."""
        programs, shapes = self._open().programs, tuple(array.shape[self._count > 1 :] for array in arrays)
        while True:
            known = self._known(arrays)
            key = (shapes, *(value.tobytes() for value in known.values()))
            number = programs.get(key)
            if number is None:
                try:
                    number = self._load(shapes, known)
                except traced.Refused as reason:
                    if self._told.keys() >= set(reason.feeds):
                        raise PlanError("%s; %s" % (reason.why, IN_SESSION)) from reason
                    for name in reason.feeds:
                        self._told.setdefault(name, reason.why)
                        lines.once(EACH_VALUE % (name, reason.why))
                    continue
                programs.add(key, number)
            return number

    def _known(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """The values of feeds that are part of the program, by name."""
        known = {name: array for name, array in zip(self._names, arrays) if name in self._told}
        if self._count == 1:
            return known
        for name, array in known.items():
            if len({row.tobytes() for row in array}) > 1:
                raise PlanError(DIFFERING % (name, self._count, self._told[name]))
        return {name: array[0] for name, array in known.items()}

    def _load(self, shapes: Any, known: Mapping[str, Any]) -> Any:
        """Compiles the program for feeds of these shapes and values; returns its number."""
        floating = [name for name, value in known.items() if value.size > 1 and value.dtype.kind not in "iub"]
        self._of_floats += bool(floating)
        if self._of_floats > MANY:
            raise PlanError(TOO_MANY % (MANY, floating[0], self._told[floating[0]]))
        device = self._open().device
        described, step = traced.of(self._prepared, shapes, known, device, cache=self._cache)
        try:
            loading = device.load(replace(described, iterations=self._count), step.content, self._cache)
        except (memory.NoRoom, starting.Gone):
            raise
        except RuntimeError as reason:
            raise PlanError("the step cannot be compiled by XLA on %s: %s" % (device.where, reason)) from reason
        for line in loading.lines():
            lines.once(line)
        self.recomputation, self.attention = step.recomputation, step.attention
        return loading.number

    def _recovered(self, error: BaseException) -> RuntimeError:
        """An error that says what state is left, after which the next call opens the device anew."""
        device, behind, state = self._open().device, 0, "the step has the state of the last completed call"
        try:
            if self._is_newer:
                behind = device.recover()
                self._assign(device)
            if behind:
                state = "the step has the state of %d steps before the last completed one" % behind
        except Exception as lost:
            state = "the values on the device are lost (%s): load a checkpoint" % lost
        self._forget_device()
        return RuntimeError("npu_shim: compile_step failed on %s: %s; %s" % (device.where, error, state))
