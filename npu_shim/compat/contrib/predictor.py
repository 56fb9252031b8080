"""tf.contrib.predictor: a session as a function of numpy arrays."""

from __future__ import annotations

import logging
import os
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import saved_model_pb2

LOG = logging.getLogger("npu_shim")
DEFAULT = "serving_default"
DEFAULT_TAGS = "serve"


class Predictor:
    """A callable from a dict of arrays to a dict of arrays.

    Attributes:
        graph: the tf.Graph.
        session: the tf.Session.
        feed_tensors: dict name -> tensor.
        fetch_tensors: dict name -> tensor.
    """

    def __init__(self, graph: Any, session: Any, feed_tensors: Any, fetch_tensors: Any) -> None:
        self.graph = graph
        self.session = session
        self.feed_tensors = feed_tensors
        self.fetch_tensors = fetch_tensors

    def __call__(self, input_dict: Any) -> dict[str, Any]:
        """Runs the graph.

        Raises:
            ValueError: a name is not among the inputs.
        """
        unknown = sorted(set(input_dict) - set(self.feed_tensors))
        if unknown:
            raise ValueError(
                "Got unexpected keys in input_dict: %s; expected: %s"
                % (", ".join(unknown), ", ".join(sorted(self.feed_tensors)))
            )
        return self.session.run(self.fetch_tensors, {self.feed_tensors[k]: v for k, v in input_dict.items()})

    def __repr__(self):
        return "Predictor with feed tensors %s and fetch_tensors %s" % (self.feed_tensors, self.fetch_tensors)


def from_saved_model(
    export_dir: str,
    signature_def_key: str | None = None,
    signature_def: Any = None,
    input_names: Any = None,
    output_names: Any = None,
    tags: Any = None,
    graph: Any = None,
    config: Any = None,
) -> Predictor:  # fmt: skip
    """A Predictor of a SavedModel.

    Args:
        export_dir: str.
        signature_def_key: str, "serving_default" by default.
        signature_def: optional SignatureDef instead of a key.
        input_names: optional dict name -> tensor name, together with `output_names`, instead of a signature.
        output_names: optional dict name -> tensor name.
        tags: list of str, or str with commas; "serve" by default.
        graph: optional tf.Graph to load into.
        config: optional ConfigProto of the session.

    Raises:
        ValueError: more than one way to name inputs and outputs, or an unknown key.
    """
    ways = [signature_def_key is not None, signature_def is not None, input_names is not None]
    if sum(ways) > 1 or (input_names is None) != (output_names is None):
        raise ValueError("give one of signature_def_key, signature_def, or input_names with output_names")
    tags = tags.split(",") if isinstance(tags, str) else list(tags or [DEFAULT_TAGS])
    graph = graph or tf.Graph()
    with graph.as_default():
        session = tf.Session(config=config)
        loaded = tf.saved_model.loader.load(session, tags, export_dir)
    if input_names is None:
        key = signature_def_key or DEFAULT
        if signature_def is None and key not in loaded.signature_def:
            raise ValueError("Got signature_def_key %r, available: %s" % (key, sorted(loaded.signature_def)))
        signature = signature_def or loaded.signature_def[key]
        input_names = {k: v.name for k, v in signature.inputs.items()}
        output_names = {k: v.name for k, v in signature.outputs.items()}
    return _predictor(graph, session, input_names, output_names)


class SavedModelPredictor(Predictor):
    """As `from_saved_model` makes it, with its arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        other = from_saved_model(*args, **kwargs)
        super().__init__(other.graph, other.session, other.feed_tensors, other.fetch_tensors)


def get_meta_graph_def(saved_model_dir: str, tags: str) -> Any:
    """The MetaGraphDef of a SavedModel by its tags, a str with commas; ValueError if there is none."""
    wanted = {tag.strip() for tag in tags.split(",")}
    file = os.path.join(saved_model_dir, "saved_model.pb")
    with tf.gfile.GFile(file, "rb") as f:
        saved = saved_model_pb2.SavedModel.FromString(f.read())
    for graph in saved.meta_graphs:
        if set(graph.meta_info_def.tags) == wanted:
            return graph
    raise ValueError("Could not find MetaGraphDef with tags %s in %s" % (tags, file))


def _predictor(graph, session, inputs, outputs):
    tensor = graph.get_tensor_by_name
    return Predictor(
        graph, session, {k: tensor(v) for k, v in inputs.items()}, {k: tensor(v) for k, v in outputs.items()}
    )


class CoreEstimatorPredictor(Predictor):
    """A Predictor of an Estimator's newest checkpoint; where there is none, of the variables' initial values.

    Args:
        estimator: a tf.estimator.Estimator.
        serving_input_receiver_fn: () -> ServingInputReceiver.
        output_key: str, one of the export outputs; the default one otherwise.
        graph: optional tf.Graph.
        config: optional ConfigProto of the session.

    Raises:
        ValueError: there is no such output.
    """

    def __init__(
        self,
        estimator: Any,
        serving_input_receiver_fn: Any,
        output_key: str | None = None,
        graph: Any = None,
        config: Any = None,
    ) -> None:
        checkpoint = estimator.latest_checkpoint()
        graph = graph or tf.Graph()
        with graph.as_default():
            tf.train.create_global_step(graph)
            receiver = serving_input_receiver_fn()
            spec = estimator.model_fn(receiver.features, None, tf.estimator.ModeKeys.PREDICT, estimator.config)
            outputs = spec.export_outputs or {DEFAULT: tf.estimator.export.PredictOutput(spec.predictions)}
            key = output_key or DEFAULT
            if key not in outputs:
                raise ValueError("output_key must be one of %s; got %s" % (sorted(outputs), key))
            if checkpoint is None and tf.get_collection(tf.GraphKeys.MODEL_VARIABLES) + tf.trainable_variables():
                LOG.warning(
                    "npu_shim: predictor: there is no checkpoint in %s: the model predicts from its initial values",
                    estimator.model_dir,
                )
            creator = tf.train.ChiefSessionCreator(checkpoint_filename_with_path=checkpoint, config=config)
            session = tf.train.MonitoredSession(creator)
            signature = outputs[key].as_signature_def(receiver.receiver_tensors)
        tensor = graph.get_tensor_by_name
        super().__init__(
            graph, session, {k: tensor(v.name) for k, v in signature.inputs.items()},
            {k: tensor(v.name) for k, v in signature.outputs.items()},
        )  # fmt: skip


def from_estimator(
    estimator: Any, serving_input_receiver_fn: Any, output_key: str | None = None, graph: Any = None, config: Any = None
) -> Predictor:
    """A CoreEstimatorPredictor."""
    return CoreEstimatorPredictor(estimator, serving_input_receiver_fn, output_key, graph, config)
