"""The source of a step: a Graph, a Session or a GraphDef, with its names, options and values."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any, Iterable, Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.options.entrances import config_proto
from npu_shim.pjrt import arrays
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.graph.walks import givers, reached
from npu_shim.session.interception import session_options
from npu_shim.xla.passes.writers import VARIABLES, collected_names

CHECKS = ("VarIsInitializedOp", "IsVariableInitialized")
READS = ("ReadVariableOp", "Identity")
SAVES = ("SaveV2", "SaveSlices", "Save")


@dataclass(frozen=True)
class Argument:
    """A feed or a fetched tensor.

    Attributes:
        name: the tensor's name as the user's graph has it, "x:0".
        dtype: tf.DType.
        shape: tf.TensorShape, perhaps with unknown dimensions.
    """

    name: str
    dtype: Any
    shape: Any

    def with_shape(self, shape: Any = None, role: str = "feed") -> Argument:
        """Returns it with a full shape: its own merged with `shape`; `role` is what errors call it.

        Raises:
            ConfigError: the shapes do not fit, or dimensions stay open.
        """
        try:
            shape = tf.TensorShape(shape)
        except (TypeError, ValueError) as reason:
            raise ConfigError("%s '%s' has shape %r, expected sizes: %s" % (role, self.name, shape, reason)) from reason
        if not self.shape.is_compatible_with(shape):
            raise ConfigError("%s '%s' has shape %s, the graph expects %s" % (role, self.name, shape, self.shape))
        shape = self.shape.merge_with(shape)
        if not shape.is_fully_defined():
            raise ConfigError("%s '%s' has shape %s in the graph, expected a full one" % (role, self.name, shape))
        return replace(self, shape=shape)

    def array(self, value: Any, role: str = "feed") -> np.ndarray:
        """Returns an array_like as np.ndarray of its dtype. Raises ConfigError as `arrays.as_dtype` does."""
        what = "%s '%s'" % (role, self.name)
        try:
            return np.asarray(arrays.as_dtype(what, value, np.dtype(self.dtype.as_numpy_dtype)))
        except ConfigError:
            raise
        except ValueError as reason:  # rows of several lengths
            raise ConfigError("%s is not an array: %s" % (what, reason)) from reason


@dataclass(frozen=True)
class Source:
    """A graph that a step is taken from.

    Attributes:
        graph: tf.Graph; of a GraphDef its import.
        graph_def: tf.GraphDef.
        options: values of a Session's NpuOptimizer entry, None if it has none; empty for a graph.
        session: the tf.Session, or None.
        needed: names of the ops that the step needs; None where the graph has collections, or no step is known.
    """

    graph: Any
    graph_def: Any
    options: Any
    session: Any = None
    needed: frozenset[str] | None = None

    @classmethod
    def of(cls, given: Any) -> Source:
        """Makes a Source of a tf.Graph, a Session (plain, interactive, monitored) or a GraphDef.

        Raises:
            ConfigError: `given` is something else, or a GraphDef that TensorFlow cannot import.
        """
        if isinstance(given, tf.GraphDef):
            plain = _without_shapes(given)
            return cls(_imported(plain), plain, {})
        if isinstance(given, tf.Graph):
            return cls(given, given.as_graph_def(), {})
        session = given._tf_sess() if hasattr(given, "_tf_sess") else given
        if isinstance(getattr(session, "graph", None), tf.Graph):
            config = getattr(session, "_config", None)
            has_options = config is not None and config_proto.find_npu_optimizer(config) is not None
            options = session_options.of_config(config).values if has_options else None
            return cls(session.graph, session.graph.as_graph_def(), options, session)
        raise ConfigError("a step is taken from a tf.Graph, tf.Session or GraphDef, got %s" % type(given).__name__)

    def fetch(self, given: Any) -> Argument | str:
        """Returns a fetch as an Argument for a tensor or variable, as the name (str) of an operation.

        Raises:
            ConfigError: it is not in the graph.
        """
        element = self._element(given, "fetch")
        if isinstance(element, tf.Operation) and element.type in VARIABLES:
            element = element.outputs[0]
        return element.name if isinstance(element, tf.Operation) else _argument(element)

    def feed(self, given: Any, shape: Any = None, role: str = "feed") -> Argument:
        """Returns a feed as an Argument; `shape`, if given, must be full and fit the graph's; errors name the `role`.

        Raises:
            ConfigError: it is not a tensor of the graph, or the shape is invalid.
        """
        element = self._element(given, role)
        if isinstance(element, tf.Operation):
            if len(element.outputs) != 1:
                raise ConfigError("%s '%s' is an operation, expected a tensor" % (role, element.name))
            element = element.outputs[0]
        return _argument(element) if shape is None else _argument(element).with_shape(shape, role)

    def of_step(self, fetches: Any) -> Source:
        """Returns the same Source, for a step that fetches these, one or a list. Raises ConfigError as `fetch`."""
        if self._has_collections():
            return self  # which say all that is asked of `needed`
        several = fetches if isinstance(fetches, (list, tuple)) else [fetches]
        fetched = [self._element(given, "fetch") for given in several]
        roots = [element if isinstance(element, tf.Operation) else element.op for element in fetched]
        needed = reached(roots, givers)
        return replace(self, needed=frozenset(op.name for op in needed))

    def initialized(self, initializer: Any) -> Source:
        """Returns a Source with its own session, after running an operation (or its name) in it.

        Raises:
            ConfigError: the operation is not in the graph.
        """
        operation = self._element(initializer, "initializer")
        session = tf.Session(graph=self.graph)
        session.run(operation)
        return replace(self, session=session)

    def values_of(self, handles: Mapping[str, str]) -> dict[str, np.ndarray]:
        """Returns variable name -> np.ndarray, read from the session; empty without a session.

        Args:
            handles: dict of a variable's name to the name of its node in the graph; other nodes are left out.

        Raises:
            ConfigError: a variable has no value yet, or nothing in a finalized graph reads it.
        """
        if self.session is None:
            return {}
        reads = {name: self.read_of(node) for name, node in handles.items() if self._has(node)}
        try:
            return self.session.run(reads)
        except tf.errors.FailedPreconditionError:
            return self._initialized_values(reads, handles)

    def _initialized_values(self, reads, handles):
        """Reads the values one by one; only a variable whose readers check for a value may lack one."""
        values, missing = {}, []
        for name, tensor in reads.items():
            try:
                values[name] = self.session.run(tensor)
            except tf.errors.FailedPreconditionError:
                missing.append(name)
        missing = [name for name in missing if not self.is_local(handles[name])]
        if missing:
            raise ConfigError("the session has no values yet of the variables %s: run their initializer" % missing)
        return values

    def is_local(self, name: str) -> bool:
        """Whether a variable is local: it may have no value yet and is in no checkpoint.

        The graph's collections decide if it has any; else a variable is local if the step checks it for a value, and no
        Saver of the graph writes it. Initializers and reports check global variables too.
        """
        if self._has_collections():
            return name in {variable.op.name for variable in self.graph.get_collection(tf.GraphKeys.LOCAL_VARIABLES)}
        if not self._has(name):  # a variable that npu-shim added
            return False
        readers = self.graph.get_operation_by_name(name).outputs[0].consumers()
        checks = [reader for reader in readers if reader.type in CHECKS and reader.outputs[0].consumers()]
        if self.needed is not None:
            checks = [check for check in checks if check.name in self.needed]
        return bool(checks) and not any(_is_saved(reader) for reader in readers)

    def other_values(self, known: Iterable[str]) -> dict[str, np.ndarray]:
        """Returns the values of the graph's initialized global variables that are not among `known`, as `values_of`."""
        if self.session is None:
            return {}
        collected = self.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
        named = collected_names(collected)
        names = set(named.values()) or {op.name for op in self.graph.get_operations() if op.type in VARIABLES}
        other_values = {}
        for name in sorted(names.difference(known, (named.get(one) for one in known))):
            with contextlib.suppress(ConfigError):
                other_values.update(self.values_of({name: name}))
        return other_values

    def _has_collections(self):
        return bool(self.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES))

    def _has(self, name):
        try:
            self.graph.get_operation_by_name(name)
        except KeyError:  # one that npu-shim added
            return False
        return True

    def read_of(self, name: str) -> Any:
        """Returns a tensor that reads a variable, given its node's name; adds the read if the graph has none.

        Raises:
            ConfigError: there is no read, and the graph is finalized.
        """
        op = self.graph.get_operation_by_name(name)
        if op.type != "VarHandleOp":
            return op.outputs[0]
        for reader in op.outputs[0].consumers():
            if reader.type == "ReadVariableOp" and not reader.control_inputs:
                return reader.outputs[0]
        if self.graph.finalized:
            raise ConfigError("variable '%s' has no read in the session's graph, and that is finalized" % name)
        with self.graph.as_default(), tf.control_dependencies(None), tf.device(op.device):
            return tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=op.get_attr("dtype"))

    def _element(self, given, role):
        if not isinstance(given, str):
            if hasattr(given, "_as_graph_element") and given.op.type not in VARIABLES:
                given = given._as_graph_element()  # the result of a resource variable's assign()
            given = getattr(given, "name", given)
        if not isinstance(given, str):
            raise ConfigError("%s %r is not a tensor, operation or name" % (role, given))
        try:
            return self.graph.as_graph_element(given)
        except (KeyError, ValueError):
            names = [op.name for op in self.graph.get_operations()]
            hint = nearest(given.partition(":")[0], names)
            raise ConfigError("%s '%s' is not in the graph%s" % (role, given, hint)) from None


def _argument(tensor):
    if tensor.dtype != tf.resource or tensor.op.type not in VARIABLES:
        return Argument(tensor.name, tensor.dtype.base_dtype, tensor.shape)
    return Argument(tensor.name, tensor.op.get_attr("dtype"), tf.TensorShape(tensor.op.get_attr("shape")))


def _is_saved(reader):
    """Whether a Saver writes what an op reads of a variable."""

    def takers(op):
        return [taker for tensor in op.outputs for taker in tensor.consumers()] if op.type in READS else []

    return any(op.type in SAVES for op in reached([reader], takers))


def _without_shapes(graph_def):
    """Returns it without the shapes that Savers write beside nodes: passes change the values that they are of."""
    if not any("_output_shapes" in node.attr for node in graph_def.node):
        return graph_def
    plain = tf.GraphDef()
    plain.CopyFrom(graph_def)
    for node in plain.node:
        node.attr.pop("_output_shapes", None)
    return plain


def _imported(graph_def):
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.import_graph_def(graph_def, name="")
    except (ValueError, TypeError, tf.errors.OpError) as reason:
        why = str(reason).splitlines()[0].partition(". ")[0]
        raise ConfigError("TensorFlow %s cannot import the graph: %s" % (tf.__version__, why)) from reason
    return graph
