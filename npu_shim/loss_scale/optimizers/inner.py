"""Lets a wrapped optimizer build its ops in a branch of a conditional without changing names or collections."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Iterable, Iterator

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.managers.graph_ops import control_flow_v1, outer_graph, state_here
from npu_shim.rewriter.errors import ConfigError

# where the optimizers of TensorFlow and of the BERT scripts keep their learning rate, tensors before numbers
RATE_ATTRIBUTES = ("_lr_t", "_learning_rate_tensor", "_lr", "_learning_rate", "learning_rate")


class SlotsOfInner:
    """The part of the tf.train.Optimizer contract that a wrapper delegates to its wrapped optimizer `_opt`."""

    def __getattr__(self, name):
        if name == "_opt":  # not there yet while a copy or a pickle is being made
            raise AttributeError(name)
        return getattr(self._opt, name)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Returns the wrapped optimizer's gradients."""
        return self._opt.compute_gradients(*args, **kwargs)

    def get_slot(self, var: Any, name: str) -> Any:
        """Returns the wrapped optimizer's slot of that name."""
        return _with_slots(self._opt).get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Returns the names of the wrapped optimizer's slots."""
        return _with_slots(self._opt).get_slot_names()

    def variables(self) -> list[Any]:
        """Returns the wrapped optimizer's variables, then those of this wrapper: Keras initializes no others."""
        return [*_with_slots(self._opt).variables(), *state_here(self).get("variables", ())]

    def _keep_variables(self, variables: Iterable[Any]) -> None:
        """Adds variables of this wrapper, in this graph."""
        known = state_here(self).setdefault("variables", [])
        known += [variable for variable in variables if not any(variable is other for other in known)]


def chain(opt: Any) -> list[Any]:
    """Returns the optimizer and the optimizers it wraps, outermost first."""
    optimizers = []
    while opt is not None and not any(opt is known for known in optimizers):
        optimizers.append(opt)
        own = getattr(opt, "__dict__", {})
        opt = own.get("_opt") or own.get("_optimizer")
    return optimizers


def _with_slots(opt):
    """Returns the first optimizer of the chain with slots: a class that skips Optimizer.__init__ has none."""
    for inner in chain(opt):
        if not isinstance(inner, tf.train.Optimizer) or "_slots" in vars(inner):
            return inner
    return opt


def make_hyperparameters(opt: Any, scope: str | None = None) -> None:
    """Makes the hyperparameter tensors (`_lr_t`) of a step, outside of the branch in which it is applied.

    They are made where the optimizer itself makes them: a rate that is a variable is read after what the step waits
    for, and in a loop once in each iteration.

    Args:
        opt: optimizer.
        scope: name scope of those of `opt` itself; None is one of its name.
    """
    for inner in chain(opt):
        if _prepares(inner):
            with tf.name_scope(scope if scope and inner is opt else _name_of(inner)):
                inner._prepare()


@contextlib.contextmanager
def keep_hyperparameters(opt: Any) -> Iterator[None]:
    """Scope in which the optimizer applies with the tensors of `make_hyperparameters`."""
    # one that is wrapped twice is keep_hyperparameters already while the outer wrapper applies
    wrapped = [inner for inner in chain(opt) if _prepares(inner) and "_prepare" not in vars(inner)]
    for inner in wrapped:
        inner._prepare = lambda: None
    try:
        yield
    finally:
        for inner in wrapped:
            del inner._prepare


def learning_rate(opt: Any) -> tf.Tensor | None:
    """Returns the first learning rate found in the chain as a scalar tensor that can be fetched, or None."""
    with tf.init_scope():
        for inner in chain(opt):
            for name in RATE_ATTRIBUTES:
                value = getattr(inner, "__dict__", {}).get(name)
                if value is not None and not _is_elsewhere(value):
                    return tf.convert_to_tensor(value() if callable(value) else value)
    return None


def _is_elsewhere(value):
    """Whether a value is a tensor of another graph, or of a branch, a loop or a function of this one."""
    if not tf.is_tensor(value):
        return False
    return value.graph is not tf.get_default_graph() or value.op._get_control_flow_context() is not None


@contextlib.contextmanager
def names_as_outside(outer: str | None = None) -> Iterator[Callable[[], ContextManager[None]]]:
    """Gives variables made in a branch the names they would have outside it; yields the scope of the branch.

    Args:
        outer: str, the name scope outside; None is the current one.
    """
    outer = name_scope() if outer is None else outer
    branch = []

    def creator(next_creator, **kwargs):
        scope = name_scope()
        if not branch or not scope.startswith(branch[-1]):
            return next_creator(**kwargs)
        # gan/apply_if_finite/branch/Adam -> gan/Adam
        plain = "/".join(part for part in (outer, scope[len(branch[-1]) :].strip("/")) if part)
        with tf.name_scope(plain + "/" if plain else None):
            return next_creator(**kwargs)

    @contextlib.contextmanager
    def inside():
        # a name of its own tells what is made here from get_variable, which names its variables in full
        with tf.name_scope("branch"):
            branch.append(name_scope())
            try:
                yield
            finally:
                branch.pop()

    with contextlib.ExitStack() as scopes:
        scopes.enter_context(tf.variable_creator_scope(creator))
        if outer_graph() not in (None, tf.get_default_graph()):
            # out of a function, init_scope takes the wrapped optimizer to a graph that has creators of its own
            with tf.init_scope():
                scopes.enter_context(tf.variable_creator_scope(creator))
        yield inside


def run_if(applied: tf.Tensor | None, build: Callable[[], Any]) -> tf.Operation:
    """Returns an op that runs what `build()` returns (an op) where a step is applied.

    Args:
        applied: bool scalar tensor, or None where the graph has no step yet.
        build: function without arguments; the variables that it makes have the names that they have outside.

    Raises:
        ConfigError: there is no step yet.
    """
    if applied is None:
        raise ConfigError("when_finite is called after minimize or apply_gradients, expected the training op first")
    with control_flow_v1(), names_as_outside() as inside:

        def run():
            with inside():
                return tf.group(build())

        return tf.cond(applied, run, tf.no_op)


def pairs_with_gradients(grads_and_vars: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Returns the pairs that have a gradient: Tensor or IndexedSlices, also where an array or a number is given.

    Raises:
        ValueError: none has, as from tf.train.Optimizer.
    """
    pairs = tuple(grads_and_vars)
    given = [(as_tensor(gradient), variable) for gradient, variable in pairs if gradient is not None]
    if not given:
        raise ValueError("npu_shim: no gradients provided for any variable: %s" % [str(v) for _, v in pairs])
    return given


def as_tensor(gradient: Any) -> Any:
    """Returns a gradient as an optimizer of TensorFlow reads it: a number or an array is a constant.

    Raises:
        TypeError, ValueError: it is no such thing, as from tf.convert_to_tensor.
    """
    known = tf.is_tensor(gradient) or isinstance(gradient, tf.IndexedSlices)
    return gradient if known else tf.convert_to_tensor(gradient)


@contextlib.contextmanager
def train_ops_replaced() -> Iterator[list[tf.Operation]]:
    """Yields a list that replaces, in TRAIN_OP, the ops added meanwhile, which cannot be run on their own."""
    collection = tf.get_collection_ref(tf.GraphKeys.TRAIN_OP)
    before, own = list(collection), []
    yield own
    collection[:] = before + [op for op in own if op is not None]  # None: it has run already, in eager code


def _name_of(opt):
    # a class that skips Optimizer.__init__, as tensor2tensor's ConditionalOptimizer does, has no name
    return vars(opt).get("_name") or type(opt).__name__


def name_scope() -> str:
    """Returns the current name scope; "" at the top of a graph."""
    return tf.get_default_graph().get_name_scope() or ""  # None at the top of a graph of TensorFlow 1.15


def _prepares(opt):
    """Whether an optimizer has a `_prepare` without arguments: those of tf.contrib.optimizer_v2 pass it their state."""
    return isinstance(opt, tf.train.Optimizer) and not hasattr(opt, "_get_or_create_state")
