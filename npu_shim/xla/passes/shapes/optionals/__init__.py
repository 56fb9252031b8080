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

    origins.find (which value is taken where) -> inference.Inferred (dtypes and shapes, inside of functions too)
    -> payloads.find (which tensors hold one value) -> apply.apply
"""

from __future__ import annotations

from typing import Any

from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.shapes.optionals import apply, origins, payloads
from npu_shim.xla.passes.shapes.optionals.inference import Inferred

OPS = payloads.OPTIONALS


def lower(module: Module, context: Any = None) -> None:
    """Replaces the Optionals of a graph and of the functions that it calls.

    Args:
        module: has Placeholders of full shapes.
        context: not used.

    Raises:
        PlanError: the shape of a value is not known.
    """
    if OPS.isdisjoint(module.ops()):
        return
    put_by = origins.find(module)
    inferred = Inferred(module, {taking: putting.inputs[0] for taking, putting in put_by.items()})
    apply.apply(inferred.graphs, payloads.find(inferred, put_by))
