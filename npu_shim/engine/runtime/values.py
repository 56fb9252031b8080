"""Reads and writes a session's variables, without adding to its graph where possible."""

from __future__ import annotations

import functools
from typing import Any, Iterable, Mapping

from npu_shim.checkpoint import assignments
from npu_shim.rewriter.errors import PlanError
from npu_shim.session.interception import interceptors
from npu_shim.xla.sources import Source


class SessionValues:
    """Reads and writes variables of one session.

    Args:
        session: tf.Session.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._source = Source(session.graph, None, None, session)
        self._reads: dict[str, Any] = {}  # variable's name -> tensor
        self._writes: dict[str, assignments.Assignment] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}  # those that programs are made for

    def know(self, handles: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Finds how to read and write variables.

        Args:
            handles: dict of a variable's name to its node's.
            shapes: of the same variables, those that a step's programs are made for.

        Raises:
            PlanError or ConfigError: nothing in a finalized graph reads a variable, or assigns to it; or it has another
                shape than in other steps.
        """
        for name, node in handles.items():
            if name not in self._reads:
                read = self._source.read_of(node)
                variable = self._session.graph.get_operation_by_name(node)
                self._writes[name] = assignments.assignment_of(variable)
                self._reads[name] = read
            self._require_shape(name, shapes[name], self._shapes.setdefault(name, shapes[name]))

    def read(self, names: Iterable[str]) -> dict[str, Any]:
        """Returns the values of variables in the session: dict of name to np.ndarray.

        Raises:
            tf.errors.FailedPreconditionError: a variable is not initialized.
            PlanError: a variable has another shape than programs are made for.
        """
        values: dict[str, Any] = interceptors.plain_run(self._session, {name: self._reads[name] for name in names})
        for name, value in values.items():
            self._require_shape(name, value.shape, self._shapes[name])
        return values

    def write(self, values: Mapping[str, Any]) -> None:
        """Assigns values to variables of the session; dict of name to array."""
        pairs = [(self._writes[name], value) for name, value in values.items()]
        assignments.assign(functools.partial(interceptors.plain_run, self._session), pairs)

    @staticmethod
    def _require_shape(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        if shape != wanted:
            text = "variable '%s' has shape %s, and steps were compiled for %s"
            raise PlanError(text % (name, list(shape), list(wanted)))
