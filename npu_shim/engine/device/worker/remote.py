"""Our side of a device in a worker.

    put, load, run ->  arrays into shared memory, then one message
    get            <-  the kept values, in shared memory as well: a worker that dies does not take them along

Where that is cheap (`keeping`), the worker copies the state after each step, and the kept values are those of the last
completed one. Elsewhere, as over an accelerator's bus, a copy is made so often that it takes a twentieth of the time.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from dataclasses import asdict
from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np

from npu_shim.engine.device.feeding import MAIN, Staged, Turns, among, fill, rows_of
from npu_shim.engine.device.programs import Loading
from npu_shim.engine.device.worker import starting
from npu_shim.engine.device.worker.channel import Channel, Closed
from npu_shim.engine.device.worker.double_buffer import DoubleBuffer
from npu_shim.engine.device.worker.memory import Block, Tensor
from npu_shim.engine.device.worker.serving import (
    NO_BLOCK,
    Exchanged,
    exchange_size,
    exchanged,
    require,
    staged_places,
    turned,
)
from npu_shim.pjrt.arrays import size_of
from npu_shim.pjrt.interrupts import uninterrupted
from npu_shim.pjrt.manifest import Manifest
from npu_shim.pjrt.ranks import Job


class Worker:
    """A JAX device in a worker, with the methods of `programs.InProcess`.

    Args:
        interpreter: path of a Python with JAX.
        exact: whether the state is kept after each step; None: where that is cheap.
        devices: how many run each program together, or "all".
        shard_state: as of `InProcess`.
        job: the `ranks.Job` that the worker joins, None for none.

    Attributes:
        platform: "cpu", "gpu", ...
        where: the platform and the interpreter, in words.
        job: the Job that it has joined, None for none.

    Raises:
        ConfigError: the interpreter is none, its JAX cannot be used, or sees fewer devices.
        ImportError: it has no JAX.
    """

    def __init__(
        self, interpreter: str, exact: bool | None = None, devices: int | str = 1, shard_state: str = "off",
        job: Job | None = None,
    ) -> None:  # fmt: skip
        self.job = job
        self._lock = threading.RLock()
        self._kept = DoubleBuffer()
        self._changed: set[str] = set()  # names of the variables whose newest value only the worker has
        self._behind = 0  # completed steps that the kept values lack
        self._programs: dict[int, Exchanged] = {}
        self._staging = threading.Lock()  # of the next two, and of the channel aside
        self._staged: tuple[int, Any] = (NO_BLOCK, None)  # the block for feeds that are staged
        self._places: dict[int, tuple[int, Any]] = {}  # place -> what is staged there: (number of its block, arrays)
        self._turns = Turns()
        self._exchange: tuple[int, Any] = (NO_BLOCK, None)  # the block for feeds and fetches of programs to come
        self._blocks = itertools.count()
        self._then: Callable[[Any], Any] | None = None  # what to do with the answer that is awaited
        hosts = [] if job is None else list(job.hosts)
        self._adopts = bool(hosts) and job is not None and job.rank > 0  # the first host's values
        opening = {
            "exact": exact, "devices": devices, "shard_state": shard_state, "hosts": hosts, "adopts": self._adopts
        }  # fmt: skip
        try:
            opened = self._connect(interpreter, opening, job)
        except starting.Gone:  # another session's, which has just ended
            if job is not None:
                raise
            opened = self._connect(interpreter, opening, job)
        self.platform: str = opened["platform"]
        self.where = "%s, in a worker (%s)" % (opened["where"], interpreter)

    def _connect(self, interpreter: str, opening: Mapping[str, Any], job: Job | None) -> dict[str, Any]:
        """Connects to the worker; returns what it has opened."""
        self.started = starting.worker(interpreter, opening["devices"], job)
        self._channel, self._aside = self.started.connect(opening)
        self._closing = weakref.finalize(self, _close, self.started, self._channel, self._aside)
        self._closing.atexit = False  # a script may save its variables at exit
        self._then = dict
        return dict(self.settle())

    def lower(self, content: bytes, asked: Mapping[str, Any], cache: str = "") -> Any:
        """Lowers a step's graph, see `InProcess.lower`."""
        with self._lock:
            self.settle()
            return self._ask(lambda answer: answer, {"do": "lower", "asked": asked, "cache": cache}, content)

    def load(self, manifest: Manifest, content: bytes, cache: str = "") -> Loading:
        """Compiles a program, see `InProcess.load`. Raises memory.NoRoom as well: its feeds have no place."""
        with self._lock:
            self.settle()
            exchange = self._exchange
            fits = exchange[1] is not None and exchange[1].size >= exchange_size(manifest)
            if not fits:
                exchange = next(self._blocks), Block.of(exchange_size(manifest))

            def loaded(answer: Any) -> Loading:
                self._exchange = exchange
                number = int(answer["number"])
                self._programs[number] = exchanged(exchange, manifest)
                told = {name: answer[name] for name in ("cache_hit", "warning", "undivided", "share")}
                told.update((name, tuple(answer[name])) for name in ("composites", "exchanges"))  # JSON makes lists
                return Loading(number, **told)

            message = {"do": "load", "manifest": asdict(manifest), "cache": cache, "block": exchange[0]}
            loading: Loading = self._ask(loaded, message, content, [] if fits else [exchange[1]])
            return loading

    def unload(self, number: int) -> None:
        """Frees a program, see `InProcess.unload`."""
        with self._lock:
            self.settle()
            self._ask(lambda _: self._programs.pop(number), {"do": "unload", "number": number})

    def put(self, values: Mapping[str, Any]) -> None:
        """Copies values of variables, see `InProcess.put`. Raises memory.NoRoom as well."""
        arrays = {name: np.asarray(value) for name, value in values.items()}
        with self._lock:
            self.settle()
            tensors = [Tensor(name, array.dtype.name, array.shape) for name, array in arrays.items()]
            new = [tensor for tensor in tensors if self._kept.lacks(tensor)]
            blocks = [Block.of(self._kept.size_of(new))] if new else []
            kept = self._kept.extended(blocks[0], new) if new else self._kept
            for name, array in arrays.items():
                np.copyto(kept.next(name), array)

            def done(_: Any) -> None:
                kept.swap(arrays)
                self._kept = kept
                turned(self._changed, arrays, self._adopts)
                self._behind = self._behind if self._changed else 0

            self._ask(done, {"do": "put", "names": list(arrays), "new": new}, b"", blocks)

    def run(
        self, number: int, *steps: Mapping[str, Any], staged: Staged | None = None,
        meanwhile: Callable[[], Any] = lambda: None,
    ) -> dict[str, Any]:  # fmt: skip
        """Runs a program, see `InProcess.run`. The results are the worker's memory, until the next call."""
        with self._lock:
            self.settle()
            program, place = self._programs[number], self._turns.take(number, staged)
            there = [] if place == MAIN else among(staged, steps[0])
            block, places = (program.block, program.places) if place == MAIN else self._places[place]
            fill(rows_of(places, program.iterations), steps, there)

            def done(answer: Any) -> None:
                self._changed.update(program.changed)
                self._behind += len(steps) if program.changed else 0
                if answer["kept"]:
                    self._swap_kept()

            message = {"do": "run", "number": number, "steps": len(steps)}
            self._send(done, {**message, "block": block, "place": place, "there": there})
            meanwhile()
            if program.fetches:
                self.settle()
            return dict(program.fetches)

    @property
    def is_busy(self) -> bool:
        """Whether a step runs, see `InProcess.is_busy`."""
        with self._lock:
            return self._then is not None and not self._channel.wait(0)

    def stage(self, number: int, values: Mapping[str, Any]) -> Staged | None:
        """Copies feeds of a program's next step to the device, see `InProcess.stage`."""
        program = self._programs.get(number)
        if program is None or program.iterations > 1 or self.job is not None or not self.started.is_ours:
            return None
        values = {name: values[name] for name in program.places if name in values}
        expected = contextlib.suppress(TypeError, ValueError, RuntimeError, Closed, OSError)
        with self._staging, uninterrupted(), expected:  # an answer that nobody takes would be that of the next message
            place, since, new = self._turns.begin(values), time.monotonic(), []
            if self._staged[0] == NO_BLOCK or self._staged[1].size < 2 * size_of(program.feeds):
                self._staged = next(self._blocks), Block.of(2 * size_of(program.feeds))
                new = [self._staged[1].descriptor]
            block = self._staged[0]
            places = staged_places(self._staged[1], program.feeds, place)
            self._places[place] = block, places
            fill([{name: places[name] for name in values}], [values])
            self._aside.send({"number": number, "place": place, "block": block, "names": list(values)}, b"", new)
            if "error" not in self._aside.receive()[0]:
                return Staged(number, values, since, time.monotonic())
        return None

    def meet(self, members: Sequence[int], numbers: Sequence[int]) -> Any:
        """Waits for other ranks, see `InProcess.meet`."""
        with self._lock:
            self.settle()
            message = {"do": "meet", "members": list(members), "numbers": list(numbers)}
            return self._ask(lambda answer: answer["told"], message)

    def abandon(self) -> None:
        """Ends the worker, whatever it does: a step that waits for ranks that do not come."""
        self.started.kill()

    def settle(self) -> Any:
        """Waits for what the worker does. Ctrl-C ends the waiting only: what it does is done when it is asked again.

        Raises:
            RuntimeError: it failed, or speaks of another generation; starting.Gone: the worker has ended.
        """
        with self._lock:
            if self._then is None:
                return None
            try:
                self._channel.wait()
                with uninterrupted():
                    then, self._then = self._then, None
                    answer = self._channel.receive()[0]
                    if "error" not in answer:
                        result = then(answer)
                    require("generation", answer["generation"], self._kept.generation)
                    if "error" not in answer:
                        return result
            except Closed:
                raise self.started.gone() from None
            raise starting.ERRORS.get(answer["error"], RuntimeError)(answer["text"])

    def get(self, names: Iterable[str]) -> dict[str, Any]:
        """Returns the values of variables: dict of name to np.ndarray; errors as `settle`."""
        names = list(names)
        with self._lock:
            self.settle()
            newer = self._changed.intersection(names)
            if newer:
                self._ask(dict, {"do": "show", "names": sorted(newer)})
            return {n: np.array(self._kept.next(n) if n in newer else self._kept.value(n)) for n in names}

    def recover(self) -> int:
        """After a failure: makes `get` return what is left, and returns how many completed steps that lacks."""
        with self._lock:
            with contextlib.suppress(RuntimeError):
                self.settle()
            with contextlib.suppress(RuntimeError):
                if self._changed:
                    self._ask(lambda _: self._swap_kept(), {"do": "keep"})
            self._changed.clear()  # what the worker does not give is lost
            return self._behind

    def close(self) -> None:
        """Drops everything."""
        self._closing()

    def _swap_kept(self) -> None:
        self._kept.swap(self._changed)
        self._changed.clear()
        self._behind = 0

    def _ask(self, then: Callable[[Any], Any], message: Any, data: bytes = b"", blocks: Iterable[Block] = ()) -> Any:
        """Sends a message and returns what `then` makes of the answer."""
        self._send(then, message, data, blocks)
        return self.settle()

    def _send(self, then: Callable[[Any], Any], message: Any, data: bytes = b"", blocks: Iterable[Block] = ()) -> None:
        if not self.started.is_ours:
            raise RuntimeError("the engine's worker belongs to the process that this one was forked from")
        try:
            with uninterrupted():
                message = {**message, "generation": self._kept.generation}
                self._channel.send(message, data, [block.descriptor for block in blocks])
                self._then = then
        except (Closed, OSError) as error:
            raise self.started.gone() from error


def _close(started: starting.Started, *channels: Channel) -> None:
    for channel in channels if started.is_ours else ():
        channel.close()
