"""One class for the tensors of a graph, and for the name `tf.Tensor`, as in 1.15.

    type(tf.placeholder(tf.float32)) is tf.Tensor

In TensorFlow 2 the tensors of graphs are of a subclass, SymbolicTensor, and those of eager execution of another, so
that code which compares classes finds no tensor. Here the tensors of graphs are of a subclass of SymbolicTensor that is
called Tensor; it counts eager tensors as its instances, as 1.15's class does.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals


def install() -> None:
    """Makes tf.Tensor the class of the tensors that graphs get from now on; a second call does nothing."""
    ops = tf_internals.python_module("framework.ops")
    if not hasattr(ops, "SymbolicTensor") or issubclass(tf.Tensor, ops.SymbolicTensor):
        return
    Tensor = _class(tf.Tensor, ops.SymbolicTensor)
    Tensor.__module__ = ops.__name__  # where 1.15 has it, and pickle looks for it
    new = ops.Operation.__new__

    def of_class(cls: Any, c_op: Any, tensor_class: Any) -> Any:
        return new(cls, c_op, Tensor if tensor_class is ops.SymbolicTensor else tensor_class)

    ops.Operation.__new__ = of_class
    ops.Tensor = tf.Tensor = Tensor


def _class(every: Any, symbolic: Any) -> Any:
    """A subclass of `symbolic`, of which the instances and subclasses of `every` are those, too."""

    class Kind(type(symbolic)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, every) if cls is Tensor else super().__instancecheck__(instance)

        def __subclasscheck__(cls, subclass: Any) -> bool:
            return issubclass(subclass, every) if cls is Tensor else super().__subclasscheck__(subclass)

    class Tensor(symbolic, metaclass=Kind):  # type: ignore[misc]
        __qualname__, __doc__ = "Tensor", every.__doc__

        def __new__(cls, op: Any, value_index: int, dtype: Any, unique_id: Any = None) -> Any:
            # TensorFlow's own makes a SymbolicTensor of any class, and numbers what it makes itself
            given = symbolic(op, value_index, dtype) if unique_id is None else None
            number = given._id if given is not None else unique_id
            return symbolic.__bases__[0].__new__(cls, op, value_index, tf.as_dtype(dtype), number)

    return Tensor
