"""Gives Keras's classes what those of TensorFlow 1.15 had: methods, arguments, names of variables, scalar losses."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import logging
import re
from typing import Any, Callable, Iterator, Mapping

from npu_shim.compat import callers
from npu_shim.compat.behaviour import arguments
from npu_shim.compat.keras import callback_logs, cosine_losses, keras_1, real_keras
from npu_shim.rewriter import tf_internals

LOG = logging.getLogger("npu_shim")
APPLICATIONS = (
    *("densenet", "imagenet_utils", "inception_resnet_v2", "inception_v3", "mobilenet", "mobilenet_v2", "nasnet"),
    *("resnet", "resnet50", "resnet_v2", "vgg16", "vgg19", "xception"),
)  # modules that TensorFlow 1.15 has in the package keras_applications too


class _InnerLayers:
    """What 1.15 calls `layer._layers`: the list itself, so that scripts can change it; a script's own comes first."""

    def __get__(self, layer: Any, owner: Any = None) -> Any:
        return self if layer is None else layer._self_tracked_trackables


def _layer(base_layer: Any) -> None:
    base_layer.Layer._layers = _InnerLayers()
    base_layer.Layer.apply = lambda self, inputs, *args, **kwargs: self(inputs, *args, **kwargs)
    # layers of graphs have their own; an eager layer has run its updates
    base_layer.Layer.get_updates_for = lambda self, inputs: []
    base_layer.Layer.get_losses_for = lambda self, inputs: self.losses if inputs is None else []
    base_layer.Layer.add_update = _takes_inputs(base_layer.Layer.add_update)
    base_layer.Layer.__init__ = _takes_any_trainable(base_layer.Layer.__init__)
    _settable_weights(base_layer.Layer)


def _takes_any_trainable(init: Callable[..., Any]) -> Callable[..., Any]:
    """Lets `trainable` be what Python takes for true or false: None and 1 as well, which eager layers now refuse."""

    @functools.wraps(init)
    def method(self: Any, trainable: Any = True, *args: Any, **kwargs: Any) -> None:
        plain = trainable is None or isinstance(trainable, int)
        init(self, bool(trainable) if plain else trainable, *args, **kwargs)
        if plain:
            self._trainable = trainable

    return method


def _settable_weights(layer: Any) -> None:
    """Lets a layer's `build` say which weights it trains, as layers written for Keras 2.2 do."""
    for name in ("trainable_weights", "non_trainable_weights"):
        own = getattr(layer, name)

        def give(self: Any, weights: Any, kept: str = "_" + name) -> None:
            getattr(self, kept)[:] = list(weights)

        setattr(layer, name, property(own.fget, give, own.fdel, own.__doc__))


def _layer_of_graphs(base_layer_v1: Any) -> None:
    base_layer_v1.Layer.add_update = _takes_inputs(base_layer_v1.Layer.add_update)
    _settable_weights(base_layer_v1.Layer)


def _takes_inputs(add_update: Callable[..., Any]) -> Callable[..., Any]:
    """`inputs` was deprecated in 1.15, which found them by itself."""

    def method(self: Any, updates: Any, inputs: Any = None) -> Any:
        return add_update(self, updates)

    return method


def _layers(layers: Any) -> None:
    arguments.install(layers, arguments.LAYERS)
    keras_1.rename_of_layers(layers)


def _losses(losses: Any) -> None:
    arguments.install(losses, arguments.LOSSES)
    cosine_losses.of_tf_keras(losses)


def _optimizers_of_graphs(optimizer_v1: Any) -> None:
    """Lets optimizers take and have a `learning_rate`, as in Keras 2.3."""
    kinds: list[Any] = [kind for kind in vars(optimizer_v1).values() if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, optimizer_v1.Optimizer) and "lr" in inspect.signature(kind.__init__).parameters:
            kind.__init__ = _takes_learning_rate(kind.__init__)
            kind.learning_rate = property(lambda self: self.lr, lambda self, rate: setattr(self, "lr", rate))


def _adagrad(adagrad: Any) -> None:
    """Lets an Adagrad that is made by its name or a config without one begin with an accumulator of 0, not 0.1."""
    original = vars(adagrad.Adagrad)["from_config"].__func__

    def from_config(cls: Any, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        return original(cls, {"initial_accumulator_value": 0.0, **config}, custom_objects)

    adagrad.Adagrad.from_config = classmethod(functools.wraps(original)(from_config))


def _takes_learning_rate(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if "learning_rate" in kwargs and "lr" not in kwargs:
            kwargs["lr"] = kwargs.pop("learning_rate")
        init(self, *args, **kwargs)

    return __init__


def _sequential(sequential: Any) -> None:
    sequential.Sequential.predict_proba = predict_proba
    sequential.Sequential.predict_classes = predict_classes


def predict_proba(self: Any, x: Any, batch_size: int = 32, verbose: int = 0) -> Any:
    """The model's predictions for `x`, with a warning if they are no probabilities (Keras 2.2)."""
    predictions = self.predict(x, batch_size, verbose)
    if predictions.min() < 0.0 or predictions.max() > 1.0:
        LOG.warning("%s", callers.message("predict_proba: the model's outputs are not all between 0 and 1"))
    return predictions


def predict_classes(self: Any, x: Any, batch_size: int = 32, verbose: int = 0) -> Any:
    """The most probable class of each row; of one output, whether it is above 0.5, as int32 (Keras 2.2)."""
    predictions = self.predict(x, batch_size, verbose)
    if predictions.shape[-1] > 1:
        return predictions.argmax(axis=-1)
    return (predictions > 0.5).astype("int32")


def _rnn(base_rnn: Any) -> None:
    base_rnn.RNN.build = _names_no_cells(base_rnn.RNN.build, lambda layer: [layer.cell])


def _stacked_cells(stacked_rnn_cells: Any) -> None:
    kind = stacked_rnn_cells.StackedRNNCells
    kind.build = _names_no_cells(kind.build, lambda layer: layer.cells)


def _names_no_cells(build: Callable[..., Any], cells_of: Callable[[Any], Any]) -> Callable[..., Any]:
    """Lets cells' variables be `lstm/kernel`, as in 1.15's checkpoints, not `lstm/lstm_cell/kernel`."""

    @functools.wraps(build)
    def method(self: Any, input_shape: Any) -> Any:
        import tensorflow.compat.v1 as tf

        if tf.executing_eagerly():
            return build(self, input_shape)
        scope = tf.get_default_graph().get_name_scope()
        with contextlib.ExitStack() as stack:
            for cell in cells_of(self):
                if isinstance(cell, tf.keras.layers.Layer):
                    stack.enter_context(_built_in(scope, cell))
            return build(self, input_shape)

    return method


@contextlib.contextmanager
def _built_in(scope: str, cell: Any) -> Iterator[None]:
    """Has a cell's `build` run in another scope of names, within the context."""
    import tensorflow.compat.v1 as tf

    build = cell.build

    @functools.wraps(build)
    def in_scope(shape: Any) -> Any:
        with tf.name_scope(scope + "/" if scope else None):
            return build(shape)

    own = vars(cell).get("build")
    object.__setattr__(cell, "build", in_scope)
    try:
        yield
    finally:
        object.__delattr__(cell, "build") if own is None else object.__setattr__(cell, "build", own)


def _lambda(lambda_layer: Any) -> None:
    """Loaded functions of Lambda layers see the names of this module: those of 1.15's `layers/core.py` are more."""
    import tensorflow.compat.v1 as tf

    homes = {name: "framework." + name for name in ("constant_op", "dtypes", "ops", "tensor_shape")}
    homes.update({name: "ops." + name for name in ("array_ops", "math_ops", "nn", "standard_ops", "variable_scope")})
    known = {name: tf_internals.python_module(path) for name, path in homes.items()}
    for name, module in {**known, "K": tf.keras.backend, "backend": tf.keras.backend, "copy": copy}.items():
        vars(lambda_layer).setdefault(name, module)
    kind = lambda_layer.Lambda
    kind._check_variables = _in_eager_code(kind._check_variables)
    kind.call = _of_stated_shape(kind.call)


def _in_eager_code(check: Callable[..., None]) -> Callable[..., None]:
    """In graphs a Lambda may make and use variables: it is called once."""
    import tensorflow.compat.v1 as tf

    @functools.wraps(check)
    def method(self: Any, *args: Any) -> None:
        if tf.executing_eagerly():
            check(self, *args)

    return method


def _of_stated_shape(call: Callable[..., Any]) -> Callable[..., Any]:
    """A tensor of a Lambda with `output_shape` has that static shape, where TensorFlow knows less."""
    import tensorflow.compat.v1 as tf

    @functools.wraps(call)
    def method(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        result = call(self, inputs, *args, **kwargs)
        stated = getattr(self, "_output_shape", None)
        if not isinstance(stated, (tuple, list)) or not isinstance(result, tf.Tensor) or tf.executing_eagerly():
            return result
        shape = tf.TensorShape([None, *stated]) if all(isinstance(n, (int, type(None))) for n in stated) else None
        if shape is not None and result.shape.is_compatible_with(shape):
            result.set_shape(shape)
        return result

    return method


def _repeat_vector(repeat_vector: Any) -> None:
    original = repeat_vector.RepeatVector.__init__

    @functools.wraps(original)
    def __init__(self: Any, n: Any, **kwargs: Any) -> None:
        original(self, int(n) if hasattr(n, "__index__") else n, **kwargs)  # a Dimension, a number of NumPy

    repeat_vector.RepeatVector.__init__ = __init__


def _affine_transform(image: Any) -> None:
    """Lets `apply_affine_transform` take images of 1.15's layout, channels last, where no axes are given."""
    original = getattr(image.apply_affine_transform, "of_today", image.apply_affine_transform)
    axes = {"row_axis": 0, "col_axis": 1, "channel_axis": 2}

    def apply_affine_transform(x: Any, *args: Any, **kwargs: Any) -> Any:
        return original(x, *args, **({**axes, **kwargs} if len(args) <= 6 else kwargs))

    vars(apply_affine_transform)["of_today"] = original
    image.apply_affine_transform = apply_affine_transform


def _preprocessing(module: Any) -> None:
    """Lets an application's `preprocess_input` take a backend, and VGG's a mode, as that of keras_applications did."""
    original = module.preprocess_input
    if hasattr(original, "takes_modules"):
        return

    @functools.wraps(original)
    def preprocess_input(x: Any, data_format: Any = None, **given: Any) -> Any:
        kept = {name: value for name, value in given.items() if name not in ("backend", "layers", "models", "utils")}
        if "mode" in kept and module.__name__.endswith(("vgg16", "vgg19")):
            import tensorflow.compat.v1 as tf

            return tf.keras.applications.imagenet_utils.preprocess_input(x, data_format, **kept)
        return original(x, data_format, **kept)

    vars(preprocess_input)["takes_modules"] = True
    module.preprocess_input = preprocess_input


def _snake_case(generic_utils: Any) -> None:
    generic_utils.to_snake_case = to_snake_case
    callback_logs.shorten_lines(generic_utils)


def to_snake_case(name: str) -> str:
    """A class's name as a layer's; in 1.15 digits follow a capital like letters: "ConvLSTM2D" is "conv_lst_m2d"."""
    words = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    words = re.sub("([a-z])([A-Z])", r"\1_\2", words).lower()
    return "private" + words if words.startswith("_") else words


def _backend(backend: Any) -> None:
    """Lets sessions of scripts that import `keras` initialize all variables of the graph, not those of layers alone."""
    original = backend._initialize_variables

    @functools.wraps(original)
    def _initialize_variables(session: Any) -> None:
        original(session)
        if real_keras.face_is_used():
            _initialize_plain_variables(session)

    backend._initialize_variables = _initialize_variables


def _initialize_plain_variables(session: Any) -> None:
    import tensorflow.compat.v1 as tf

    new = [one for one in tf.global_variables() if not getattr(one, "_keras_initialized", False)]
    if not new:
        return
    done = session.run([tf.is_variable_initialized(one) for one in new])
    for one in new:
        one._keras_initialized = True
    rest = [one for one, is_done in zip(new, done) if not is_done]
    if rest:
        session.run(tf.variables_initializer(rest))


def _losses_of_graphs(losses_utils: Any) -> None:
    """Lets a model's output be a scalar, and means over masked losses count what is masked, both as in 1.15."""
    original = losses_utils.squeeze_or_expand_dimensions

    @functools.wraps(original)
    def squeeze_or_expand_dimensions(y_pred: Any, y_true: Any = None, sample_weight: Any = None) -> Any:
        if y_true is not None and sample_weight is None and y_pred.shape.ndims == 0:
            return y_pred, y_true  # of a model that computes its own loss
        return original(y_pred, y_true, sample_weight)

    losses_utils.squeeze_or_expand_dimensions = squeeze_or_expand_dimensions
    # today they divide by what a mask leaves: 1.18 for .83 where it leaves 28 of 40
    losses_utils.apply_valid_mask = lambda losses, sw, mask, reduction: losses_utils.apply_mask(losses, sw, mask)
    losses_utils.get_mask = lambda y_p: None  # a mask of predictions is for `compile`, which has it from its model


def _training_of_graphs(training_v1: Any) -> None:
    """Gives models `targets`, as the package keras has them; tensors that are added to `metrics_tensors` got lost."""
    keras_1.rename_of_methods(training_v1)
    training_v1.Model.targets = property(lambda self: self._targets)
    training_v1.Model.metrics_tensors = property(_refused_metrics)
    training_v1.Model.uses_learning_phase = property(
        lambda self: any(layer._expects_training_arg for layer in self._flatten_layers(include_self=False))
    )


def _refused_metrics(model: Any) -> Any:
    text = "%s.metrics_tensors is not here: use add_metric(tensor, name=...) before compile"
    raise AttributeError(callers.message(text % type(model).__name__))


def _functional(functional: Any) -> None:
    """Lets a model with lists of the script's own take losses: what it tracks beside layers has no hash."""
    keras_1.rename_of_functional(functional)
    insert = functional.Functional._insert_layers

    @functools.wraps(insert)
    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        tracked = self._self_tracked_trackables
        before, layers = list(tracked), [one for one in tracked if _has_hash(one)]
        tracked[:] = layers
        try:
            insert(self, *args, **kwargs)
        finally:
            tracked[:] = [*before, *tracked[len(layers) :]]

    functional.Functional._insert_layers = method


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


# module of Keras, as in names.json -> what is done to it once it is loaded
PATCHES: Mapping[str, Callable[[Any], None]] = {
    "src.backend": _backend,
    "src.callbacks": callback_logs.install,
    "src.engine.base_layer": _layer,
    "src.engine.base_layer_v1": _layer_of_graphs,
    "src.engine.sequential": _sequential,
    "src.layers.core.lambda_layer": _lambda,
    "src.layers.reshaping.repeat_vector": _repeat_vector,
    "src.layers.rnn.base_rnn": _rnn,
    "src.layers.rnn.stacked_rnn_cells": _stacked_cells,
    "src.losses": cosine_losses.by_name,
    "src.metrics": cosine_losses.metrics_by_name,
    "src.optimizers.legacy.adagrad": _adagrad,
    "src.optimizers.optimizer_v1": _optimizers_of_graphs,
    "src.preprocessing.image": _affine_transform,
    "src.utils.generic_utils": _snake_case,
    "src.utils.losses_utils": _losses_of_graphs,
    "api.layers": _layers,
    "api.losses": _losses,
    "api.metrics": cosine_losses.of_tf_keras,
    "api.preprocessing.image": _affine_transform,
    "api.preprocessing.text": lambda text: arguments.install(text, arguments.TEXT),
    **{root + ".applications." + name: _preprocessing for root in ("src", "api") for name in APPLICATIONS},
    "src.engine.training": keras_1.rename_of_models,
    "src.engine.training_v1": _training_of_graphs,
    "src.engine.functional": _functional,
}
