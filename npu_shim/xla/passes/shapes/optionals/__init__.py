"""Replaces the Optionals of version 2 conditionals, for which XLA has no kernels, by their values.

A conditional of version 2 hands each value that its gradient needs out of the branch that computes it, as an Optional
that the other branch leaves empty. The gradient's branch takes the value out again. The value itself does as well, with
zeros that nothing reads where it is empty:

    then:  y = OptionalFromValue(x)                 then:  y = x
    else:  y = OptionalNone()           becomes     else:  y = zeros of x's shape
    then, of the gradient:  OptionalGetValue(y)     then, of the gradient:  y

Values pass through conditionals, loops and calls, and a loop's gradient keeps them in lists. All tensors that may hold
one value have one dtype and one shape, which follow from the shapes of the step's feeds. Branches share their outputs,
so that one may put a bool where the other puts a matrix: then the tensor holds the bytes of either.

    views.of (graph and functions as flat graphs) -> origins.taken (which value is taken where)
    -> places.find (which tensors are one place) -> apply.apply
"""

from __future__ import annotations

from typing import Any, Iterable

from npu_shim.xla.passes.shapes.optionals import apply, origins, places, views

OPS = places.OPTIONALS


def lower(graph_def: Any, keep: Iterable[str] = ()) -> Any:
    """Returns a GraphDef without Optionals; the same object if it has none.

    Args:
        graph_def: tf.compat.v1.GraphDef with Placeholders of full shapes; it is not changed.
        keep: names of the nodes that are fetched or run; all stay.

    Raises:
        PlanError: the shape of a value is not known.
    """
    if not views.have_any(graph_def, places.OPTIONALS):
        return graph_def
    seen = views.of(graph_def)
    seen = views.of(graph_def, origins.taken(seen))
    return apply.apply(graph_def, seen, places.find(seen))
