"""A step of a graph as a JAX function with its state by variable name: for programs that leave TensorFlow."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

from npu_shim.pjrt import arrays
from npu_shim.xla import step_function
from npu_shim.xla.sources import Source

GRAPH = "npu_shim/graph"  # as in `step.functions`, which needs JAX


def as_jax(
    source: Any, fetches: Any, feeds: Any = (), values: Mapping[str, Any] | None = None, **options: Any
) -> Any:  # fmt: skip
    """Returns a step as a function of (state, feeds) that gives (new state, fetches), where JAX is beside TensorFlow.

    Args:
        source: tf.Session, whose variables' values are the state; or tf.Graph, or GraphDef.
        fetches: tensors, operations or their names, as for sess.run.
        feeds: tensors or their names that each call feeds.
        values: variable name -> np.ndarray, the state; None takes a Session's.
        **options: as for `npu_shim.rewrite`.

    Returns:
        `step.functions.Step`.

    Raises:
        ImportError: JAX is not installed.
        ConfigError: a fetch, feed or option is invalid.
        PlanError: the graph cannot be rewritten.
    """
    from npu_shim.step import functions

    return functions.of(*_packed(source, fetches, feeds, values, options))


def write_jax(
    source: Any, fetches: Any, feeds: Any, out: str, values: Mapping[str, Any] | None = None, **options: Any
) -> None:  # fmt: skip
    """Writes a step to one file, which `npu_shim.step.functions.load` reads where JAX is, without TensorFlow.

    Args:
        source: as of `as_jax`.
        fetches: likewise.
        feeds: likewise.
        out: path of the file, .npz.
        values: as of `as_jax`.
        **options: likewise.

    Raises:
        ConfigError or PlanError: as `as_jax`; or the file cannot be written.
    """
    content, state = _packed(source, fetches, feeds, values, options)
    arrays.write(out, [(GRAPH, np.frombuffer(content, np.uint8)), *state.items()])


def _packed(source: Any, fetches: Any, feeds: Any, values: Any, options: Any) -> tuple[bytes, dict[str, Any]]:
    """(A step's packed graph, its state)."""
    source = Source.of(source).of_step(fetches)
    prepared = step_function.prepare(source, fetches, feeds, None, values, None, **options)
    return prepared.packed, {variable.name: variable.value for variable in prepared.state}
