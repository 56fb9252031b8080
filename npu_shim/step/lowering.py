"""A packed step as a StableHLO artifact, for feeds and variables of given shapes; where JAX is."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from npu_shim.rewriter.collector import without_collector
from npu_shim.step import interpreter, narrowing, platforms
from npu_shim.step.lowered import Lowered
from npu_shim.step.masks import there
from npu_shim.step.meeting import Ranks
from npu_shim.step.refusals import Refusal
from npu_shim.step.unpacking import dtype_of, unpacked
from npu_shim.step.values import Rows

Described = list[Any]  # [name, dtype's name, shape]


@without_collector()
def lowered(
    content: bytes, feeds: list[Described], state: list[Described], known: Mapping[str, Any], platform: str,
    products: str, ranks: tuple[int, Mapping[str, Any]] = (1, {}), told: Mapping[str, Any] | None = None,
    narrow: Sequence[str] = (), devices: int = 1, counted: Sequence[Sequence[str]] = (),
) -> Lowered:  # fmt: skip
    """Lowers a step.

    Args:
        content: what `packing.packed` returns.
        feeds: [name, dtype's name, shape] of each.
        state: likewise of the variables.
        known: name of a feed -> [value as nested lists], for feeds whose values are part of the program.
        platform: "cpu", "gpu", ... as JAX names it.
        products: float32 products, "highest" or "default".
        ranks: how many run it together, and key of a group, as a str -> the numbers of its ranks among them.
        told: as of `interpreter.function`, of a tensor [dtype's name, value as nested lists]; None likewise.
        narrow: names of the dtypes to which the caller can round feeds for devices with memory of their own, see
            `narrowing`.
        devices: how many run it together, those of each rank where there are several.
        counted: names of feeds that are padded, and have equally many rows: as many as the first has indices that are
            not below zero, in front of the others.
    """
    count, groups = ranks
    meeting = Ranks(count, {int(key): members for key, members in groups.items()}, [], devices)
    program = unpacked(content)
    function = interpreter.function(program, meeting, _arrays(told))
    dtypes = {name: dtype_of(dtype) for name, dtype, _ in feeds}
    values = {name: np.array(value, dtypes[name]) for name, (value,) in known.items()}
    results: dict[str, Any] = {}

    def step(*arguments: Any) -> Any:
        given = {name: value for (name, _, _), value in zip(feeds, arguments)}
        held = {name: value for (name, _, _), value in zip(state, arguments[len(feeds) :])}
        new, fetched = function(held, {**given, **_rows(given, counted), **values})
        updated = [name for name, _, _ in state if name in new]
        results.update(updated=updated, fetches=[[n, v.dtype.name, list(v.shape)] for n, v in fetched.items()])
        return [*fetched.values(), *(new[name] for name in updated)]

    narrowed = narrowing.narrowed(program, narrow) if narrow and platforms.has_own_memory(platform) else {}
    narrowed = {name: dtype for name, dtype in narrowed.items() if name not in known}
    shapes = [jax.ShapeDtypeStruct(tuple(shape), narrowed.get(name, dtypes[name])) for name, _, shape in feeds]
    shapes += [jax.ShapeDtypeStruct(tuple(shape), dtype_of(dtype)) for _, dtype, shape in state]
    target = {"gpu": "cuda"}.get(platform, platform)
    try:
        with interpreter.traced_as_tensorflow(), _traced_for(platform, products):
            exported = export.export(jax.jit(step, keep_unused=True), platforms=[target])(*shapes)
    except Refusal as reason:
        return Lowered(b"", [], [], str(reason), reason.feeds, reason.asked)
    except Exception as reason:  # a fault of the interpreter must not stop the script
        text = "%s: %s" % (type(reason).__name__, str(reason).partition("\n")[0])
        return Lowered(b"", [], [], "the interpreter failed: %s" % text)
    results["narrow"] = {name: dtype.name for name, dtype in narrowed.items()}
    return Lowered(exported.mlir_module_serialized, assumed=tuple(dict.fromkeys(meeting.assumed)), **results)


def _rows(given: Mapping[str, Any], counted: Sequence[Sequence[str]]) -> dict[str, Rows]:
    """The feeds that are padded, as rows; in the place of those that are not there stands the first one."""
    rows: dict[str, Rows] = {}
    for indices, *others in counted:
        count = jnp.sum(given[indices][:, 0] >= np.int64(0), dtype=np.int32)
        for name in (indices, *others):
            value = given[name]
            first = jnp.where(count > 0, value[:1], jnp.zeros_like(value[:1]))
            is_there = there(value.shape[0], count).reshape(-1, *[1] * (value.ndim - 1))
            rows[name] = Rows(jnp.where(is_there, value, first), count)
    return rows


@contextlib.contextmanager
def _traced_for(platform: str, products: str) -> Iterator[None]:
    """Context for traces of programs for a platform, with float32 products of a precision."""
    with platforms.traced_for(platform), jax.default_matmul_precision(products), _without_sources():
        yield


@contextlib.contextmanager
def _without_sources() -> Iterator[None]:
    """Context in which programs name no files: the same step is the same bytes wherever it is made."""
    name = "jax_traceback_in_locations_limit"
    before = jax.config.values[name]
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, before)


def _arrays(told: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if told is None:
        return None
    return {
        name: value if isinstance(value, int) else np.array(value[1], dtype_of(value[0]))
        for name, value in told.items()
    }  # fmt: skip
