"""The worker's side: serves each connection by a thread with a device of its own, until the parent ends."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import threading
import time
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

import numpy as np

from npu_shim.distributed.liveness.parent import die_with
from npu_shim.engine.device import keeping
from npu_shim.engine.device.feeding import MAIN, STAGED
from npu_shim.engine.device.programs import InProcess
from npu_shim.engine.device.worker.channel import Channel, Closed
from npu_shim.engine.device.worker.double_buffer import DoubleBuffer
from npu_shim.engine.device.worker.memory import Block, Tensor
from npu_shim.pjrt import arrays, driver, jax_compat, manifest, placement, ranks
from npu_shim.rewriter.errors import ConfigError

NO_BLOCK = -1  # number of the block of who has none
SHARE = 0.05  # of the time may go to copying the state back, where that is not done after each step


def main(descriptor: int, by_main_thread: bool, devices: int | str, job: Sequence[Any] = ()) -> None:
    """Serves the parent over a socket until it closes its end or ends.

    Args:
        descriptor: of the socket.
        by_main_thread: whether the thread that started this process lives as long as the parent.
        devices: how many JAX shall see where it makes them of a CPU, or "all".
        job: the fields of the `ranks.Job` that this process joins; () for none.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has its own way with Ctrl-C
    if by_main_thread:
        die_with(os.getppid())
    threading.Thread(target=_end_with_parent, args=[os.getppid()], daemon=True).start()
    control = Channel(socket.socket(fileno=descriptor))
    try:
        control.send(_answer(_about, devices, job))
        while True:
            message, _, ends = control.receive()
            channel, aside = (Channel(socket.socket(fileno=end)) for end in ends)
            # nothing but its threads hold it: what it has on the device is free when the connection is closed
            threading.Thread(target=_Served(channel, aside, message).serve, daemon=True).start()
    except Closed:
        os._exit(0)  # at once, whatever the threads do


def _end_with_parent(parent: int) -> None:
    """Ends this process when its parent ends, also if a forked process holds a copy of the parent's socket."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def _about(count: int | str, job: Sequence[Any]) -> Any:
    jax = jax_compat.require()
    if job:
        ranks.join(jax, ranks.Job(*job))
    placement.provide(jax, count)
    try:
        devices = jax.local_devices()
    except AssertionError:  # JAX's own, without a word
        asked = os.environ.get("JAX_PLATFORMS")
        raise ConfigError("JAX has no device of JAX_PLATFORMS=%r, expected platforms that it has" % asked) from None
    return {
        "python": platform.python_version(), "jax": jax.__version__,
        "platform": devices[0].platform, "devices": [str(device) for device in devices],
        "cuda": driver.kind_of_jax(),
    }  # fmt: skip


def _answer(function: Any, *arguments: Any) -> Any:
    """Returns what a function returns, or {"error": .., "text": ..}."""
    try:
        return function(*arguments)
    except ConfigError as error:
        return {"error": "ConfigError", "text": "\n".join(error.problems)}
    except (ImportError, RuntimeError) as error:
        return {"error": "ImportError" if isinstance(error, ImportError) else "RuntimeError", "text": str(error)}
    except Exception as error:
        return {"error": "RuntimeError", "text": "%s: %s" % (type(error).__name__, error)}


class _Served:
    """One connection: its programs and variables.

    Args:
        channel: for messages one after the other.
        aside: for feeds that are staged while a program runs.
        opening: what the connection was opened with.
    """

    def __init__(self, channel: Channel, aside: Channel, opening: Mapping[str, Any]) -> None:
        self._channel, self._aside, self._exact, self._opening = channel, aside, opening["exact"], opening
        self._kept = DoubleBuffer()
        self._changed: set[str] = set()  # names of the variables whose newest value is on the device only
        self._programs: dict[int, Exchanged] = {}
        self._staged: tuple[int, Any] = (NO_BLOCK, None)  # the block for feeds that are staged
        self._places: dict[int, tuple[int, Any]] = {}  # place -> what is staged there: (number of its block, arrays)
        self._exchange: tuple[int, Any] = (NO_BLOCK, None)  # the block for feeds and fetches of programs to come
        self._spent, self._since = 0.0, 0.0  # how long copying took, and when it ended

    def serve(self) -> None:
        """Answers until the connection is closed."""
        try:
            self._reply(_answer(self._open))
            threading.Thread(target=self._serve_aside, daemon=True).start()
            while True:
                self._reply(_answer(self._do, *self._channel.receive()))
        except Closed:
            self._channel.close()
            self._aside.close()

    def _serve_aside(self) -> None:
        with contextlib.suppress(Closed, OSError):  # it is closed here too
            while True:
                self._aside.send(_answer(self._place, *self._aside.receive()))

    def _reply(self, answer: Any) -> None:
        self._channel.send({**answer, "generation": self._kept.generation})

    def _do(self, message: Any, data: bytes, descriptors: Sequence[int]) -> Any:
        ways = {"lower": self._lower, "load": self._load, "unload": self._unload, "put": self._put, "run": self._run,
                "keep": self._keep, "show": self._show, "meet": self._meet}  # fmt: skip
        blocks = [Block(descriptor) for descriptor in descriptors]
        require("generation", message["generation"], self._kept.generation)
        return ways[message["do"]](message, data, blocks)

    def _open(self) -> Any:
        self._device = InProcess(*(self._opening[name] for name in ("devices", "shard_state", "hosts")))
        return {"platform": self._device.platform, "where": self._device.where}

    def _lower(self, message: Any, data: bytes, blocks: Sequence[Block]) -> Any:
        return self._device.lower(bytes(data), message["asked"], message["cache"])

    def _load(self, message: Any, data: bytes, blocks: Sequence[Block]) -> Any:
        exchange = (message["block"], blocks[0]) if blocks else self._exchange
        require("block", message["block"], exchange[0])
        described = manifest.decoded(message["manifest"])
        loading = self._device.load(described, bytes(data), message["cache"])
        self._exchange = exchange  # not before: where a program is refused, the other side forgets its new block too
        self._programs[loading.number] = exchanged(exchange, described)
        return loading._asdict()

    def _unload(self, message: Any, *_: Any) -> Any:
        self._device.unload(message["number"])
        del self._programs[message["number"]]
        return {}

    def _put(self, message: Any, _: bytes, blocks: Sequence[Block]) -> Any:
        names, kept = message["names"], self._kept
        if blocks:
            kept = kept.extended(blocks[0], tensors_of(message["new"]))
        self._device.put({name: kept.next(name) for name in names})
        kept.swap(names)
        self._kept = kept
        turned(self._changed, names, self._opening["adopts"])
        return {}

    def _place(self, message: Any, _: bytes, descriptors: Sequence[int]) -> Any:
        if descriptors:
            self._staged = message["block"], Block(descriptors[0])
        number, place = message["number"], message["place"]
        require("block", message["block"], self._staged[0])
        places = staged_places(self._staged[1], self._programs[number].feeds, place)
        self._places[place] = message["block"], places
        self._device.place(number, place, {name: places[name] for name in message["names"]})
        return {}

    def _run(self, message: Any, *_: Any) -> Any:
        number, place = message["number"], message["place"]
        program = self._programs[number]
        block, places = (program.block, program.places) if place == MAIN else self._places[place]
        fetches, changed = program.fetches, program.changed
        require("block", message["block"], block)
        given = {**places, **self._device.placed(place, message["there"])} if place != MAIN else places
        fetched = self._device.run_placed(number, given, message["steps"])
        self._device.settle()  # a step that failed ends here, and leaves no error for the next message
        self._changed.update(changed)
        for name, place in fetches.items():
            np.copyto(place, np.asarray(fetched[name]))
        now = time.monotonic()
        if not self._is_exact() and (now - self._since) * SHARE < self._spent:
            return {"kept": False}
        self._keep()
        self._since = time.monotonic()
        self._spent = self._since - now
        return {"kept": True}

    def _is_exact(self) -> bool:
        """Whether what has changed is copied after each step."""
        if self._exact is not None:
            return bool(self._exact)
        return keeping.is_cheap(self._device.platform, sum(self._kept.value(name).nbytes for name in self._changed))

    def _meet(self, message: Any, *_: Any) -> Any:
        return {"told": self._device.meet(message["members"], message["numbers"])}

    def _keep(self, *_: Any) -> Any:
        """Copies every changed value to its next place, and turns there."""
        self._show({"names": self._changed})
        self._kept.swap(self._changed)
        self._changed.clear()
        return {}

    def _show(self, message: Any, *_: Any) -> Any:
        """Copies values to their next places."""
        self._device.copy_to({name: self._kept.next(name) for name in message["names"]})
        return {}


def require(what: str, said: int, own: int) -> None:
    """Raises RuntimeError where a message speaks of another block or generation than the one that its receiver has."""
    if said != own:
        raise RuntimeError(
            "the engine and its worker disagree: %s %d is spoken of, and %d is there" % (what, said, own)
        )


def turned(changed: set[str], put: Iterable[str], adopts: bool) -> None:
    """Notes which variables the device has newer values of, after some were put there.

    Args:
        changed: their names, which are updated.
        put: names of those that were put.
        adopts: whether the device has other values of these now, those of the first of several hosts.
    """
    if adopts:
        changed.update(put)
    else:
        changed.difference_update(put)


def tensors_of(rows: Any) -> list[Tensor]:
    """Tensors that were sent as JSON."""
    return [Tensor(name, dtype, tuple(shape)) for name, dtype, shape in rows]


def updated(described: manifest.Manifest) -> tuple[str, ...]:
    """Names of the variables that a program writes."""
    return tuple(sorted(described.donated))


class Exchanged(NamedTuple):
    """What a program is given in shared memory, and gives.

    Attributes:
        feeds: its feeds.
        places: their arrays, by name.
        fetches: those of its fetches.
        changed: names of the variables that it writes.
        block: number of the block that the arrays are in.
        iterations: steps of a run, at most.
    """

    feeds: Sequence[manifest.Tensor]
    places: dict[str, Any]
    fetches: dict[str, Any]
    changed: tuple[str, ...]
    block: int
    iterations: int


def exchange_size(described: manifest.Manifest) -> int:
    """Bytes of a block for `exchanged`."""
    return arrays.size_of(described.taken) + arrays.size_of(_fetches(described))


def exchanged(exchange: tuple[int, Block], described: manifest.Manifest) -> Exchanged:
    """Returns the Exchanged of a program in a block, which comes with its number."""
    (number, block), feeds = exchange, described.taken
    fetches = block.arrays(_fetches(described), arrays.size_of(feeds))
    return Exchanged(feeds, block.arrays(feeds), fetches, updated(described), number, described.iterations)


def staged_places(block: Block, feeds: Sequence[manifest.Tensor], place: int) -> dict[str, Any]:
    """Returns the arrays of feeds that are staged, by name: one of the places for them is a half of the block."""
    return block.arrays(feeds, STAGED.index(place) * (block.size // 2))


def _fetches(described: manifest.Manifest) -> list[manifest.Tensor]:
    return [tensor for tensor in described.results if tensor.kind == "fetch"]
