"""tf.contrib.opt's optimizers outside of the graph: SciPy asks the session for losses and gradients (as of 1.15.5)."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

OURS = ("jac", "callback", "constraints")


class ExternalOptimizerInterface:
    """Minimizes a loss over variables, seen as one vector; a subclass writes `_minimize`.

    Args:
        loss: scalar tensor.
        var_list: list of variables, the trainable ones by default.
        equalities: list of scalar tensors that are to be 0.
        inequalities: list of scalar tensors that are to be at least 0.
        var_to_bounds: dict of variable -> (low, high), each broadcast to the variable's shape; None is no bound.
        **optimizer_kwargs: what `_minimize` gets as `optimizer_kwargs`.

    Raises:
        ValueError: a bound does not fit its variable.
    """

    def __init__(
        self, loss: Any, var_list: Any = None, equalities: Any = None, inequalities: Any = None,
        var_to_bounds: Any = None, **optimizer_kwargs: Any,
    ) -> None:  # fmt: skip
        self.optimizer_kwargs = optimizer_kwargs
        self._vars = list(tf.trainable_variables() if var_list is None else var_list)
        self._bounds = (
            None if var_to_bounds is None else [pair for v in self._vars for pair in bounds(v, var_to_bounds)]
        )
        self._loss = (loss, self._gradient(loss))
        self._equalities = [(value, self._gradient(value)) for value in equalities or ()]
        self._inequalities = [(value, self._gradient(value)) for value in inequalities or ()]
        self._initial = flat(self._vars)
        self._new = [tf.placeholder(v.dtype.base_dtype, v.shape) for v in self._vars]
        self._updates = [tf.assign(v, new) for v, new in zip(self._vars, self._new)]

    def minimize(
        self, session: Any = None, feed_dict: Any = None, fetches: Any = None, step_callback: Any = None,
        loss_callback: Any = None, **run_kwargs: Any,
    ) -> None:  # fmt: skip
        """Runs the minimization, and gives the variables the values that it found.

        Args:
            session: tf.Session, the default one if None.
            feed_dict: dict, of every run.
            fetches: list of tensors that `loss_callback` gets as arguments.
            step_callback: function of the vector, called after each step.
            loss_callback: function that is called whenever the loss is computed.
            **run_kwargs: of the run that sets the variables.
        """
        session = session or tf.get_default_session()
        fetches = list(fetches or ())

        def at(what: Any, told: Any = None) -> Callable[[np.ndarray], Any]:
            """The function of the vector that computes `what`."""

            def value(vector: np.ndarray) -> Any:
                feeds = {**self._placed(session, vector), **(feed_dict or {})}
                values, others = session.run([what, fetches], feeds)
                if told is not None:
                    told(*others)
                return values

            return value

        pairs = [
            [[at(row[part]) for row in rows] for part in (0, 1)] for rows in (self._equalities, self._inequalities)
        ]
        vector = self._minimize(
            initial_val=session.run(self._initial),
            loss_grad_func=at(self._loss, loss_callback),
            equality_funcs=pairs[0][0], equality_grad_funcs=pairs[0][1],
            inequality_funcs=pairs[1][0], inequality_grad_funcs=pairs[1][1],
            packed_bounds=self._bounds, step_callback=step_callback or (lambda vector: None),
            optimizer_kwargs=self.optimizer_kwargs,
        )  # fmt: skip
        session.run(self._updates, dict(zip(self._new, self._parts(vector))), **run_kwargs)

    def _minimize(
        self, initial_val: Any, loss_grad_func: Any, equality_funcs: Any, equality_grad_funcs: Any,
        inequality_funcs: Any, inequality_grad_funcs: Any, packed_bounds: Any, step_callback: Any,
        optimizer_kwargs: Any,
    ) -> np.ndarray:  # fmt: skip
        """Returns the best vector; a subclass writes it.

        Args:
            initial_val: [n], where to begin.
            loss_grad_func: function of a vector; returns the loss and its gradient [n].
            equality_funcs: functions of a vector, and so on: one for each constraint.
            equality_grad_funcs: their gradients.
            inequality_funcs: as for equalities.
            inequality_grad_funcs: their gradients.
            packed_bounds: list of n pairs (low, high), or None.
            step_callback: function of the vector.
            optimizer_kwargs: dict, of the constructor.
        """
        raise NotImplementedError("a subclass of ExternalOptimizerInterface implements _minimize")

    def _gradient(self, value):
        gradients = tf.gradients(value, self._vars)
        return flat([tf.zeros_like(v) if g is None else g for g, v in zip(gradients, self._vars)])

    def _parts(self, vector: np.ndarray) -> Sequence[np.ndarray]:
        """The vector, cut into the values of the variables."""
        shapes = [v.shape.as_list() for v in self._vars]
        cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(vector, cuts), shapes)]

    def _placed(self, session: Any, vector: np.ndarray) -> dict[Any, np.ndarray]:
        """Lets the variables be the vector in the next run: reference variables are fed, resources are assigned."""
        rows = list(zip(self._vars, self._new, self._updates, self._parts(vector)))
        resources = [row for row in rows if row[0].op.type == "VarHandleOp"]
        if resources:
            session.run([update for _, _, update, _ in resources], {new: part for _, new, _, part in resources})
        return {v: part for v, _, _, part in rows if v.op.type != "VarHandleOp"}


class ScipyOptimizerInterface(ExternalOptimizerInterface):
    """`scipy.optimize.minimize` over a session; `method` is L-BFGS-B unless given, other arguments are SciPy's.

    Raises:
        ValueError: at `minimize`, where an argument is one that the interface sets itself.
    """

    _DEFAULT_METHOD = "L-BFGS-B"

    def _minimize(
        self, initial_val, loss_grad_func, equality_funcs, equality_grad_funcs, inequality_funcs,
        inequality_grad_funcs, packed_bounds, step_callback, optimizer_kwargs,
    ):  # fmt: skip
        if "bounds" in optimizer_kwargs:
            raise ValueError("bounds: say them as var_to_bounds={variable: (low, high)}")
        for name in OURS:
            if name in optimizer_kwargs:
                raise ValueError("%s: ScipyOptimizerInterface sets it itself" % name)
        kwargs = {"method": self._DEFAULT_METHOD, **optimizer_kwargs}
        constraints = [
            {"type": kind, "fun": doubles(value), "jac": doubles(gradient)}
            for kind, values, gradients in (
                ("eq", equality_funcs, equality_grad_funcs),
                ("ineq", inequality_funcs, inequality_grad_funcs),
            )
            for value, gradient in zip(values, gradients)
        ]

        def loss_and_gradient(vector):
            loss, gradient = loss_grad_func(vector)
            return float(loss), np.float64(gradient)

        from scipy import optimize

        result = optimize.minimize(
            loss_and_gradient, np.float64(initial_val), jac=True, callback=step_callback, constraints=constraints,
            bounds=packed_bounds, **kwargs,
        )  # fmt: skip
        tf.logging.info("Optimization ended: %s; loss %g", result.message, result.fun)
        return result["x"]


def doubles(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function with results in float64: SciPy's algorithms take nothing else."""
    return lambda vector: np.float64(function(vector))


def bounds(variable: Any, var_to_bounds: Any) -> list[tuple[Any, Any]]:
    """A (low, high) for each element of a variable."""
    given = next((pair for key, pair in var_to_bounds.items() if key is variable), (None, None))
    shape = variable.shape.as_list()
    low, high = (
        np.broadcast_to(end if side is None else side, shape).ravel() for side, end in zip(given, (-np.inf, np.inf))
    )
    return list(zip(low, high))


def flat(tensors: Sequence[Any]) -> tf.Tensor:
    """Tensors as one vector."""
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
