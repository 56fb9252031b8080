"""One counter for each random op of a session, whether the session runs the op or an interpreted step does.

A random op draws from its seeds and a counter of what it has drawn. In a session its kernel holds the counter, and
nothing reads or sets that; a step of `npu_shim.step` has the counters of its random ops in its state. So that both
draw what a session alone would draw,

- each run of the session adds what its random ops drew, by the sizes of what they gave;
- a step has its counters put in place where anything else has drawn since its last run;
- a random op that the session is to run after steps first runs alone, for as many numbers as the steps drew.

Open: ops in loops, conditionals and functions, whose runs in a session cannot be counted, and runs that fail.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Collection, Iterable, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from npu_shim.engine.partition import nodes as walks
from npu_shim.engine.partition.nodes import Node
from npu_shim.rewriter.graph.walks import reached
from npu_shim.session import lines
from npu_shim.session.interception import interceptors
from npu_shim.step import counters
from npu_shim.step.packing import DRAWING

Key = Tuple[str, str]  # (place of a call or "", node), as in `packing.draws`
AT_ONCE = 1 << 24  # numbers that an op draws in one of its own runs
MOST = 1 << 28  # numbers that it draws so in all; more take seconds
MOST_RUNS = 4096  # runs of its own
OF_PARAMETERS = ("RandomGamma", "RandomPoisson", "RandomPoissonV2")
OF_SHAPE = ("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal")


class Drawn(NamedTuple):
    """A random op of a run.

    Attributes:
        operation: tf.Operation.
        blocks: how many blocks a run of it uses, None if that depends on what it is given.
    """

    operation: Any
    blocks: int | None

    @property
    def key(self) -> Key:
        """What its counter is known by."""
        return "", self.operation.name

    @property
    def asked(self) -> Any:
        """The tensor that says how many blocks a run uses."""
        operation = self.operation
        return operation.outputs[0] if operation.type in ("Multinomial", *OF_PARAMETERS) else operation.inputs[0]

    def used(self, value: Any) -> int:
        """The blocks of a run in which `asked` had this value."""
        shape = tuple(value) if self.operation.type in OF_SHAPE else np.shape(value)
        return counters.blocks_of(self.operation.type, shape)


class Draws:
    """The counters of a session's random ops.

    Args:
        session: tf.Session.
        lock: held while the device is asked.

    Attributes:
        device: as in `residency.Residency`; None before the first step.
    """

    def __init__(self, session: Any, lock: Any) -> None:
        self.device: Any = None
        self._graph, self._lock = session.graph, lock
        self._run = lambda *arguments: interceptors.plain_run(session, *arguments)
        self._known: dict[Any, tuple[Drawn, ...]] = {}
        self._ops: tuple[int, frozenset[str]] = (-1, frozenset())  # version of the graph, its random ops
        self._guard = threading.Lock()  # of the tables
        self._used: dict[Key, int] = {}  # blocks that a session alone would have used
        self._kernel: dict[str, int] = {}  # blocks that the session's own op has used
        self._at: dict[Key, str] = {}  # whose newest counter a state on the device has -> that state
        self._rows: dict[str, list[Key]] = {}  # state on the device -> its rows
        self._last = ""  # the state of the last step, if nothing has drawn since

    def of_run(self, nodes: Iterable[str], feeds: Any) -> tuple[Drawn, ...]:
        """Returns the random ops of a run that can be counted.

        Args:
            nodes: names of the nodes that the run fetches or runs.
            feeds: dict of what it feeds, tensors or their names; or None.
        """
        if not self._random_ops():
            return ()
        key = tuple(nodes), frozenset(getattr(tensor, "name", tensor) for tensor in feeds or ())
        if key not in self._known:
            self._known[key] = self._random_ops_behind(*key)
        return self._known[key]

    def counted(self, drawn: Sequence[Drawn], once: Callable[..., Any], fetches: Any, *others: Any) -> Any:
        """Runs the session, counts what it draws, and returns what the fetches give.

        Args:
            drawn: what `of_run` returned.
            once: what runs the session.
            fetches: its first argument.
            others: its other ones.
        """
        asked = {one.operation.name: one.asked for one in drawn if one.blocks is None}
        results, values = once([fetches, asked], *others) if asked else (once(fetches, *others), {})
        with self._guard:
            for one in drawn:
                name = one.operation.name
                blocks = one.used(values[name]) if one.blocks is None else one.blocks
                self._used[one.key] = self._used.get(one.key, 0) + blocks
                self._kernel[name] = self._kernel.get(name, 0) + blocks
        return results

    def to_device(self, states: Mapping[str, tuple[Sequence[Any], Any]]) -> None:
        """Puts the counters of a step into place.

        Args:
            states: name of a state of the step -> (its random ops as `packing.draws` gives them, its first value).

        Raises:
            RuntimeError: as of the device.
        """
        for name, (draws, first) in states.items():
            if name != self._last:
                with self._guard:
                    self._put(name, [(place, node) for place, node, *_ in draws], first)
                self._last = name

    def release(self) -> None:
        """Has all of the session's own ops go on behind the steps; errors as of `catch_up`."""
        with self._guard:
            names = [node for place, node in self._at if not place]
        self.catch_up([one for name in names for one in self.of_run([name], ()) if one.operation.name == name])

    def drop(self) -> None:
        """Forgets the device: nobody asks for its counters any more."""
        with self._guard:
            self._at.clear()
            self._rows.clear()
            self._last = ""

    def catch_up(self, drawn: Sequence[Drawn]) -> None:
        """Has ops of the session go on behind the steps: each runs alone for what steps have drawn in its place.

        Raises:
            RuntimeError: as `get` of the device.
        """
        if not drawn or not self._rows:
            return
        with self._lock, self._guard:
            if any(one.key in self._at for one in drawn):
                self._to_host([one.key for one in drawn])
                self._last = ""
            for one in drawn:
                done = self._kernel.get(one.operation.name, 0)
                blocks = self._used.get(one.key, 0) - done
                if blocks > 0 and _has_seed(one.operation):
                    self._skip(one.operation, blocks)
                    self._kernel[one.operation.name] = done + blocks

    def _put(self, name: str, keys: list[Key], first: Any) -> None:
        if all(self._at.get(key) == name for key in keys):
            return
        self._to_host(keys)
        value = np.array(first)
        value[:, 2] = [self._used.get(key, 0) for key in keys]
        self.device.put({name: value})
        self._rows[name] = keys
        self._at.update(dict.fromkeys(keys, name))

    def _to_host(self, keys: Iterable[Key]) -> None:
        names = sorted({self._at[key] for key in keys if key in self._at})
        values = self.device.get(names) if names else {}
        for name in names:
            for key, (_, _, used) in zip(self._rows[name], values[name].tolist()):
                if self._at.get(key) == name:
                    self._used[key] = used
                    del self._at[key]

    def _skip(self, operation: Any, blocks: int) -> None:
        """Has an op of the session use so many blocks."""
        feeds, used = _alone(operation, blocks)
        if blocks > MOST * counters.BLOCKS or blocks > MOST_RUNS * used:
            text = "npu_shim: engine: the session draws other numbers for '%s' than without the engine: steps drew %d"
            lines.once(text % (operation.name, blocks // counters.BLOCKS))
            return
        while blocks > 0:
            self._run([operation], feeds)
            blocks -= used
            feeds, used = _alone(operation, blocks)

    def _random_ops(self) -> frozenset[str]:
        version = self._graph.version
        if self._ops[0] != version:
            names = (operation.name for operation in self._graph.get_operations() if operation.type in DRAWING)
            self._ops = version, frozenset(names)
        return self._ops[1]

    def _random_ops_behind(self, nodes: Iterable[str], fed: frozenset[str]) -> tuple[Drawn, ...]:
        def sources(operation: Any) -> list[Any]:
            return [*operation.control_inputs, *(x.op for x in operation.inputs if x.name not in fed)]

        reachable = list(reached(map(self._graph.get_operation_by_name, nodes), sources))
        if not any(operation.type in DRAWING for operation in reachable):
            return ()
        depths = walks.depths({operation.name: _node(operation, fed) for operation in reachable})
        chosen = (operation for operation in reachable if operation.type in DRAWING and not depths[operation.name])
        return tuple(Drawn(operation, _static_blocks(operation)) for operation in chosen)


def _node(operation: Any, fed: Collection[str]) -> Node:
    texts = [x.name for x in operation.inputs if x.name not in fed]
    return Node(operation.name, operation.type, (*texts, *("^" + waits.name for waits in operation.control_inputs)))


def _static_blocks(operation: Any) -> int | None:
    shape = operation.outputs[0].shape
    return counters.blocks_of(operation.type, shape.as_list()) if shape.is_fully_defined() else None


def _has_seed(operation: Any) -> bool:
    return bool(operation.get_attr("seed") or operation.get_attr("seed2"))


def _least(shape: Any) -> list[int]:
    """A shape in which each size that is not known is one."""
    return [] if shape.rank is None else [1 if size is None else size for size in shape.as_list()]


def _alone(operation: Any, blocks: int) -> tuple[dict[Any, Any], int]:
    """(What an op is fed so that it uses as many of these blocks as one run of it can, how many these are).

    What is fed has the shape that the graph says.
    """
    first, *others = operation.inputs
    sizes = _least(first.shape)
    numbers = min(blocks // counters.BLOCKS, AT_ONCE)
    fed: dict[Any, Any] = {}
    shape: Sequence[int]
    if operation.type == "RandomShuffle":
        if first.shape.rank is None or first.shape.as_list()[0] is None:
            sizes[:1] = [4 * blocks + 1]
        fed, shape = {first: np.zeros(sizes, first.dtype.as_numpy_dtype)}, sizes
    elif operation.type == "Multinomial":
        rows, _ = sizes = sizes or [1, 1]
        samples = max(4, numbers // (2 * rows) // 4 * 4)
        fed, shape = {first: np.zeros(sizes, first.dtype.as_numpy_dtype), others[0]: samples}, (rows, samples)
    elif operation.type in OF_PARAMETERS:
        (parameters,) = others
        given = np.ones(_least(parameters.shape), parameters.dtype.as_numpy_dtype)
        count = (sizes or [1])[0]
        shape = [max(1, numbers // max(given.size, 1)), *[1] * (count - 1)] if count else []
        fed, shape = {first: shape, parameters: given}, [*shape, *given.shape]
    else:
        count = (sizes or [1])[0]
        shape = [numbers, *[1] * (count - 1)] if count else []
        fed = {first: shape, **dict(zip(others, (0, 1)))}
    return fed, counters.blocks_of(operation.type, shape)
