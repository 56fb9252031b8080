"""compile_step on PJRT: its programs on a device of the engine, in this process or in a worker."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from npu_shim.engine import sessions
from npu_shim.engine.device.programs import require_bounds, results_of
from npu_shim.engine.device.worker import memory, starting
from npu_shim.export import programs, traced
from npu_shim.options import engine
from npu_shim.rewriter.errors import ConfigError, PlanError
from npu_shim.session import lines
from npu_shim.xla import known_feeds, recent
from npu_shim.xla.step_function import Prepared


class Running:
    """Compiles and runs a step's programs on PJRT; the methods are those of `xla.compiled_step.Running`.

    The variables stay on the device between calls. The device is opened at the first one.

    Args:
        prepared: step_function.Prepared.
        count: steps in one call.
        device: "CPU" or "GPU", which JAX must find first; None for what it finds.
        cache: path of a folder that keeps compiled programs for later processes, "" for none.
        most: how many programs are kept; one that gives way is freed on the device.

    Attributes:
        recomputation, attention: as those of `CompiledStep`.

    Raises:
        ConfigError: there is no JAX.
    """

    def __init__(
        self, prepared: Prepared, count: int, device: str | None, cache: str = "", most: int = recent.MOST
    ) -> None:
        engine.require()
        self.recomputation: Any = None
        self.attention: Any = None
        self._prepared, self._count, self._wanted, self._cache, self._most = prepared, count, device, cache, most
        self._known = known_feeds.Known(prepared, count)
        self._updated = [variable for variable in prepared.state if variable.updated]
        self._told = set()  # names of the feeds whose values are part of the interpreter's programs
        self._lock = threading.RLock()
        self._forget_device()

    def run(self, arrays: Any, shapes: Any) -> list[Any]:
        """Runs a call's steps: takes the feeds and their shapes in a step, and returns the fetched values.

        Raises:
            ConfigError: the device is not the wanted one.
            PlanError: XLA cannot compile the step.
            RuntimeError: the device failed; the error says which state the variables have.
            PassedBound: a loop did not keep to its bound; the state is wrong.
        """
        names = [feed.name for feed in self._prepared.feeds.values()]
        stacked = zip(*arrays) if arrays and self._count > 1 else [arrays] * self._count
        steps = [dict(zip(names, row)) for row in stacked]
        with self._lock:
            try:
                number = self._loaded(shapes, arrays)
                if not self._is_there:
                    self._device.put({variable.name: variable.variable.numpy() for variable in self._prepared.state})
                    self._is_there = True
                self._is_newer = True
                fetched = self._device.run(number, *steps)
                require_bounds(fetched)
                results = results_of(fetched)
                return [results[fetch.name] for fetch in self._prepared.fetches if not isinstance(fetch, str)]
            except RuntimeError as error:
                raise self._recovered(error) from error

    def to_variables(self) -> None:
        """Gives the variables of the Prepared their newest values; errors as `run`."""
        with self._lock:
            if not self._is_newer:
                return
            try:
                values = self._device.get([variable.name for variable in self._updated])
            except RuntimeError as error:
                raise self._recovered(error) from error
            self._assign(values)

    def from_variables(self) -> None:
        """Takes the values of the variables of the Prepared for the newest."""
        with self._lock:
            self._is_there = self._is_newer = False

    def _forget_device(self):
        self._device = None
        # shapes of the feeds, and values of those that are known -> number on the device
        self._programs = recent.Recent(self._most, lambda number: self._device.unload(number))
        self._is_there = self._is_newer = False  # whether the device has the variables, and newer values of them

    def _assign(self, values):
        for variable in self._updated:
            variable.variable.assign(values[variable.name])
        self._is_newer = False

    def _loaded(self, shapes, arrays):
        device = self._opened()
        key = (shapes, *self._known.key(arrays))
        number = self._programs.get(key)
        if number is None and self._prepared.before is not None:
            number = self._interpreted(shapes, arrays)
        if number is None:
            try:
                step = self._known.prepared(arrays).on(device.platform).for_shapes(shapes)
                described, hlo = programs.of(step, self._cache)
            except PlanError:
                if not self._known.more():
                    raise
                return self._loaded(shapes, arrays)
            self.recomputation, self.attention = step.recomputation, step.attention
            number = self._load(described, hlo)
            self._programs.add(key, number)
        return number

    def _load(self, described, content):
        """The number of a program on the device."""
        try:
            loading = self._device.load(replace(described, iterations=self._count), content, self._cache)
        except (memory.NoRoom, starting.Gone):
            raise
        except RuntimeError as reason:
            raise PlanError("the step cannot be compiled by XLA on %s: %s" % (self._device.where, reason)) from reason
        for line in loading.lines():
            lines.once(line)
        return loading.number

    def _interpreted(self, shapes, arrays):
        """The number of a program of the interpreter's for these feeds; None where TensorFlow's converter is to try."""
        names = [feed.name for feed in self._prepared.feeds.values()]
        while True:
            known = {name: array for name, array in zip(names, arrays) if name in self._told}
            key = (shapes, *(value.tobytes() for value in known.values()), "interpreted")
            number = self._programs.get(key)
            if number is not None:
                return number
            try:
                described, step = traced.of(self._prepared, shapes, known, self._device, cache=self._cache)
            except traced.Refused as reason:
                if self._count > 1 or self._told.issuperset(reason.feeds):
                    lines.once("the step is converted by TensorFlow: %s" % reason.why)
                    return None
                self._told.update(reason.feeds)
                continue
            self.recomputation, self.attention = step.recomputation, step.attention
            number = self._load(described, step.content)
            self._programs.add(key, number)
            return number

    def _opened(self):
        if self._device is None:
            try:
                device = sessions.open_device()
            except ImportError as reason:
                raise ConfigError("engine 'pjrt' is not available: %s" % reason) from reason
            if self._wanted is not None and self._wanted.lower() != device.platform:
                raise ConfigError("device is '%s', and JAX finds %s" % (self._wanted, device.where))
            self._device = device
        return self._device

    def _recovered(self, error):
        """An error that says what state is left, after which the next call opens the device anew."""
        device, behind, state = self._device, 0, "the step has the state of the last completed call"
        try:
            if self._is_newer:
                behind = device.recover()
                self._assign(device.get([variable.name for variable in self._updated]))
            if behind:
                state = "the step has the state of %d steps before the last completed one" % behind
        except Exception as lost:
            state = "the values on the device are lost (%s): load a checkpoint" % lost
        self._forget_device()
        return RuntimeError("engine 'pjrt' failed on %s: %s; %s" % (device.where, error, state))
