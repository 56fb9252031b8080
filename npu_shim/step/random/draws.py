"""Random ops: stateful ones draw from their seeds and a counter in the state, stateless ones from their inputs.

The state of a step's random ops is one variable (`counters`). An op whose seeds are both zero has seeds that are drawn
when that is made.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.pjrt.attention.spec import SEED
from npu_shim.step import guards
from npu_shim.step.counters import BLOCKS, blocks_of
from npu_shim.step.graph import Node
from npu_shim.step.packing import DRAWING, place
from npu_shim.step.random import distributions, rejected
from npu_shim.step.random.philox import Generator, blocks, of_seeds
from npu_shim.step.refusals import Unknown, Unsupported
from npu_shim.step.rules.table import Attrs, Effect, Rule
from npu_shim.step.values import Dims, Rows, Size, Turned, ints, is_known, is_tensor, whole

IN_ORDER = frozenset(["RandomUniform", "RandomStandardNormal"])  # whose first numbers do not depend on how many follow
ANY = 3  # an algorithm that the device may choose, which on CPUs is Philox
PHILOX = 1


def _cell(run: Any, number: int) -> str:
    return "%s/%d" % (run.counters, number)


def opened(run: Any) -> None:
    """Gives each op a counter of its own among the cells."""
    if run.counters in run.cells:
        held = run.cells[run.counters]
        run.cells.update((_cell(run, number), held[number, 2]) for number in run.draws.values())


def closed(run: Any) -> None:
    """Puts the counters back into the state."""
    if run.draws and run.counters in run.cells:
        used = [jnp.asarray(run.cells[_cell(run, number)], np.int64) for number in run.draws.values()]
        run.cells[run.counters] = jnp.asarray(run.cells[run.counters]).at[:, 2].set(jnp.stack(used))


def _place(scope: Any) -> str:
    """What `packing.draws` calls the call that a scope is."""
    calls = [scope.run.name_of(scope.schedule.graph)]
    while scope.caller is not None:
        scope, node = scope.caller
        calls.append(node.name)
    return place(calls[::-1])


def _reserved(scope: Any, node: Node, shape: Any) -> Generator:
    """The generator of a stateful op for a run, which gives a tensor of this shape or Dims, or shuffles these Rows."""
    run = scope.run
    if isinstance(shape, Dims):
        numbers = [size.count if isinstance(size, Size) else size for size in shape.sizes]
        used = math.prod(np.int64(n) if isinstance(n, int) else n.astype(np.int64) for n in numbers) * np.int64(BLOCKS)
    elif isinstance(shape, Rows):
        used = lax.div(jnp.maximum(shape.count.astype(np.int64), 1) + np.int64(2), np.int64(4))
    else:
        used = np.int64(blocks_of(node.op, shape))
    number = run.draws.get((_place(scope), node.name))
    if number is None or run.counters not in run.cells:
        raise Unsupported("the step has no state for what it draws")
    seeds: Any = (node.attrs["seed"], node.attrs["seed2"])
    if not any(seeds):
        seeds = run.before[run.counters][number, 0], run.before[run.counters][number, 1]
    key, high = (jnp.asarray(np.int64(seed) if isinstance(seed, int) else seed).astype(np.uint64) for seed in seeds)
    cell, guard = _cell(run, number), scope.guard(node.name)
    old = run.cells[cell]
    new = old + used
    run.cells[cell] = guards.chosen(scope.predicates, guard, new, old) if guard else new
    return Generator(key, old.astype(np.uint64), high)


def _shape(scope: Any, inputs: Sequence[Any]) -> tuple[int, ...]:
    shape = scope.value(inputs[0])
    if not is_known(shape):
        raise Unknown(0)
    return ints(shape) if shape.size else ()


def _filled(draw: Callable[[Generator, Sequence[int], Any], Any]) -> Effect:
    def filled(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
        open_shape = scope.value(inputs[0])
        if isinstance(open_shape, Dims) and node.op in IN_ORDER:
            return _of_rows(scope, node, open_shape, draw)
        shape = _shape(scope, inputs)
        generator = _reserved(scope, node, shape)
        return draw(generator, shape, node.attrs["dtype"])

    return Effect(filled)


def _of_rows(scope: Any, node: Node, shape: Dims, draw: Callable[[Generator, Sequence[int], Any], Any]) -> Any:
    """As many rows as data says, of those for which there is room: the numbers of the first ones are the same."""
    at = next(at for at, size in enumerate(shape.sizes) if isinstance(size, Size))
    if {*shape.sizes[:at]} - {1} or any(isinstance(size, Size) for size in shape.sizes[at + 1 :]):
        raise Unknown(0)
    room = [size.most if isinstance(size, Size) else size for size in shape.sizes]
    count = shape.sizes[at].count
    array = draw(_reserved(scope, node, shape), room, node.attrs["dtype"])
    return Turned(array, count, at) if at else Rows(array, count)


def dropout_seed(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """What stands where an attention kernel's dropout was drawn: int32 [2] of the block that would come first."""
    first = blocks(_reserved(scope, node, _shape(scope, inputs)), np.zeros((), np.uint64))
    return lax.bitcast_convert_type(first[:2], np.int32)


def uniform_int(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """RandomUniformInt."""
    shape = _shape(scope, inputs)
    low, high = (scope.value(raw) for raw in inputs[1:])
    generator = _reserved(scope, node, shape)
    return distributions.uniform_int(generator, shape, low, high)


def multinomial(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """Multinomial."""
    logits, samples = (scope.value(raw) for raw in inputs)
    if not is_known(samples):
        raise Unknown(1)
    count = whole(samples)
    generator = _reserved(scope, node, (logits.shape[0], count))
    return distributions.multinomial(generator, logits, count, node.attrs["output_dtype"])


def _tried(draw: Callable[[Generator, int, Any, Any], Any]) -> Effect:
    """RandomGamma and RandomPoissonV2: of each of some parameters as many samples as a shape says."""

    def sampled(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
        shape, parameters = _shape(scope, inputs), scope.value(inputs[1])
        if not is_tensor(parameters):
            raise Unsupported("its rule takes no tensor whose rows depend on data")
        dims = (*shape, *parameters.shape)
        dtype = node.attrs["dtype" if "dtype" in node.attrs else "T"]
        if not math.prod(dims):
            return jnp.zeros(dims, dtype)
        generator = _reserved(scope, node, dims)
        return draw(generator, math.prod(shape), parameters, dtype).reshape(dims)

    return Effect(sampled)


def shuffle(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """RandomShuffle, of rows; of as many as data says too."""
    value = scope.value(inputs[0])
    if isinstance(value, Rows):
        if value.array.shape[0] <= 1:
            return value
        order = distributions.permutation(_reserved(scope, node, value), value.array.shape[0], value.count)
        return Rows(jnp.take(value.array, order, 0, mode="clip"), value.count)
    if np.ndim(value) == 0 or value.shape[0] <= 1:
        return value
    size = value.shape[0]
    generator = _reserved(scope, node, value.shape)
    return jnp.take(jnp.asarray(value), distributions.permutation(generator, size), 0, mode="clip")


# -- stateless ---------------------------------------------------------------------------------------------------------


def _stateless(draw: Callable[[Generator, Sequence[int], Any], Any]) -> Rule:
    def drawn(attrs: Attrs, shape: Any, seeds: Any) -> Any:
        return draw(of_seeds(seeds), ints(shape) if shape.size else (), attrs["dtype"])

    return Rule(drawn, known=(0,))


def _keyed(key: Any, counter: Any, algorithm: Any) -> Generator:
    if not is_known(algorithm) or whole(algorithm) not in (PHILOX, ANY):
        raise Unsupported("its algorithm is not Philox")
    return Generator(jnp.asarray(key)[0], jnp.asarray(counter)[0], jnp.asarray(counter)[1])


def _stateless_v2(draw: Callable[[Generator, Sequence[int], Any], Any]) -> Rule:
    def drawn(attrs: Attrs, shape: Any, key: Any, counter: Any, algorithm: Any) -> Any:
        return draw(_keyed(key, counter, algorithm), ints(shape) if shape.size else (), attrs["dtype"])

    return Rule(drawn, known=(0, 3))


def _stateless_int(attrs: Attrs, shape: Any, seeds: Any, low: Any, high: Any) -> Any:
    return distributions.uniform_int(of_seeds(seeds), ints(shape) if shape.size else (), low, high)


def _stateless_int_v2(
    attrs: Attrs, shape: Any, key: Any, counter: Any, algorithm: Any, low: Any, high: Any
) -> Any:  # fmt: skip
    dims = ints(shape) if shape.size else ()
    return distributions.uniform_int(_keyed(key, counter, algorithm), dims, low, high)


def _full_int(generator: Generator, shape: Sequence[int], dtype: Any) -> Any:
    return distributions.bits(generator, math.prod(shape), 8 * dtype.itemsize).astype(dtype).reshape(shape)


def _key_counter(attrs: Attrs, seeds: Any) -> Any:
    generator = of_seeds(seeds)
    return generator.key[None], jnp.stack([jnp.asarray(generator.low), generator.high])


def _key_counter_algorithm(attrs: Attrs, seeds: Any) -> Any:
    return (*_key_counter(attrs, seeds), np.int32(PHILOX))


def _stateless_multinomial(attrs: Attrs, logits: Any, samples: Any, seeds: Any) -> Any:
    return distributions.multinomial(of_seeds(seeds), logits, whole(samples), attrs["output_dtype"])


def _stateless_poisson(attrs: Attrs, shape: Any, seeds: Any, rates: Any) -> Any:
    return _broadcast(rejected.poisson, of_seeds(seeds), shape, rates, attrs["dtype"])


def _stateless_gamma(attrs: Attrs, shape: Any, seeds: Any, alpha: Any) -> Any:
    return _broadcast(rejected.gamma, of_seeds(seeds), shape, alpha, attrs["dtype"])


def _stateless_gamma_v3(attrs: Attrs, shape: Any, key: Any, counter: Any, algorithm: Any, alpha: Any) -> Any:
    return _broadcast(rejected.gamma, _keyed(key, counter, algorithm), shape, alpha, attrs["dtype"])


def _broadcast(draw: Callable[..., Any], generator: Generator, shape: Any, parameters: Any, dtype: Any) -> Any:
    """Of as many samples of each parameter as the dimensions in front of them say."""
    dims = ints(shape) if shape.size else ()
    rank = np.ndim(parameters)
    if not math.prod(dims):
        return jnp.zeros(dims, dtype)
    wide = jnp.broadcast_to(parameters, dims[len(dims) - rank :])
    return draw(generator, math.prod(dims[: len(dims) - rank]), wide, dtype).reshape(dims)


FILLS = {
    "RandomUniform": distributions.uniform,
    "RandomStandardNormal": distributions.normal,
    "TruncatedNormal": distributions.truncated_normal,
}
STATELESS = {
    "Uniform": distributions.uniform,
    "Normal": distributions.normal,
    "UniformFullInt": _full_int,
}

RULES = {
    **{op: _filled(draw) for op, draw in FILLS.items()},
    "RandomUniformInt": Effect(uniform_int),
    "Multinomial": Effect(multinomial),
    "RandomShuffle": Effect(shuffle),
    "RandomGamma": _tried(rejected.gamma),
    **dict.fromkeys(("RandomPoisson", "RandomPoissonV2"), _tried(rejected.poisson)),
    SEED: Effect(dropout_seed),
    **{"StatelessRandom" + name: _stateless(draw) for name, draw in STATELESS.items()},
    **{"StatelessRandom%sV2" % name: _stateless_v2(draw) for name, draw in STATELESS.items()},
    "StatelessTruncatedNormal": _stateless(distributions.truncated_normal),
    "StatelessTruncatedNormalV2": _stateless_v2(distributions.truncated_normal),
    "StatelessRandomUniformInt": Rule(_stateless_int, known=(0,)),
    "StatelessRandomUniformIntV2": Rule(_stateless_int_v2, known=(0, 3)),
    "StatelessRandomGetKeyCounter": Rule(_key_counter),
    "StatelessRandomGetKeyCounterAlg": Rule(_key_counter_algorithm),
    "StatelessRandomGetAlg": Rule(lambda attrs: np.int32(PHILOX)),
    "StatelessRandomPoisson": Rule(_stateless_poisson, known=(0,)),
    "StatelessRandomGammaV2": Rule(_stateless_gamma, known=(0,)),
    "StatelessRandomGammaV3": Rule(_stateless_gamma_v3, known=(0, 3)),
    "StatelessMultinomial": Rule(_stateless_multinomial, known=(1,)),
}

if not RULES.keys() >= DRAWING:
    raise ValueError("ops that have a state have no rule: %s" % sorted(DRAWING - RULES.keys()))
