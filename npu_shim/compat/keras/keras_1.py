"""Takes the argument names of Keras 1, as the package keras did until 2.3: `Dense(output_dim=4, init="uniform")`."""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Mapping

from npu_shim.compat import callers

LOG = logging.getLogger("npu_shim")

_W = {"init": "kernel_initializer", "W_regularizer": "kernel_regularizer", "W_constraint": "kernel_constraint"}
_B = {"b_regularizer": "bias_regularizer", "b_constraint": "bias_constraint"}
_KERNEL = {**_W, **_B, "bias": "use_bias"}
_SHAPED = {"border_mode": "padding", "dim_ordering": "data_format"}
_CONV = {**_KERNEL, **_SHAPED, "nb_filter": "filters", "subsample": "strides", "atrous_rate": "dilation_rate"}
_CONV_1D = {**_CONV, "filter_length": "kernel_size", "subsample_length": "strides"}
_POOL = {**_SHAPED, "pool_length": "pool_size", "stride": "strides"}
_RECURRENT = {
    **{**_W, **_B, "output_dim": "units", "inner_init": "recurrent_initializer", "dropout_W": "dropout"},
    **{"U_regularizer": "recurrent_regularizer", "U_constraint": "recurrent_constraint"},
    **{"inner_activation": "recurrent_activation", "dropout_U": "recurrent_dropout"},
}
_NORMALIZED = {"beta_init": "beta_initializer", "gamma_init": "gamma_initializer"}
_SIZED_LIKE_IMAGES = ("Cropping", "UpSampling", "ZeroPadding", "GlobalAveragePooling", "GlobalMaxPooling")

# class of keras.layers -> {argument of Keras 1: its name since Keras 2}
LAYERS: Mapping[str, Mapping[str, str]] = {
    "Dense": {**_KERNEL, "output_dim": "units"},
    "Dropout": {"p": "rate"},
    **{"SpatialDropout%dD" % n: {"p": "rate", "dim_ordering": "data_format"} for n in (1, 2, 3)},
    "Embedding": {
        **{"init": "embeddings_initializer", "W_regularizer": "embeddings_regularizer"},
        "W_constraint": "embeddings_constraint",
    },
    **dict.fromkeys(("LSTM", "GRU", "SimpleRNN"), _RECURRENT),
    "Conv1D": _CONV_1D,
    **dict.fromkeys(("Conv2D", "Conv3D", "Conv2DTranspose", "SeparableConv2D"), _CONV),
    **{kind + "Pooling%dD" % n: _POOL for kind in ("Max", "Average") for n in (1, 2, 3)},
    **{kind + "%dD" % n: {"dim_ordering": "data_format"} for kind in _SIZED_LIKE_IMAGES for n in (2, 3)},
    "UpSampling1D": {"length": "size"},
    "BatchNormalization": _NORMALIZED,
    "GaussianNoise": {"sigma": "stddev"},
    "GaussianDropout": {"p": "rate"},
    "PReLU": {"init": "alpha_initializer"},
}
MODEL = {"input": "inputs", "output": "outputs"}
# method of a model -> {argument of Keras 1: its name since Keras 2}
_QUEUE = {"max_q_size": "max_queue_size", "nb_worker": "workers", "pickle_safe": "use_multiprocessing"}
METHODS = {
    "fit": {"nb_epoch": "epochs"},
    "fit_generator": {
        **{**_QUEUE, "nb_epoch": "epochs", "samples_per_epoch": "steps_per_epoch"},  # as Keras 2 took it: batches
        "nb_val_samples": "validation_steps",
    },
    "evaluate_generator": {**_QUEUE, "val_samples": "steps"},
    "predict_generator": {**_QUEUE, "val_samples": "steps"},
}
# values that have another name as well
VALUES = {"data_format": {"tf": "channels_last", "th": "channels_first", "default": None}}


def rename_of_layers(layers: Any) -> None:
    """Lets the classes of keras.layers take Keras 1's names."""
    for name, names in LAYERS.items():
        kind = getattr(layers, name, None)
        if kind is not None:
            kind.__init__ = renaming(kind.__init__, names)


def rename_of_models(training: Any) -> None:
    """Lets `Model` take `input=` and `output=`; a Model is made by `__new__`."""
    training.Model.__new__ = renaming(training.Model.__new__, MODEL)
    training.Model.__init__ = renaming(training.Model.__init__, MODEL)
    rename_of_methods(training)


def rename_of_functional(functional: Any) -> None:
    """Lets the class that `Model(...)` gives take them as well."""
    functional.Functional.__init__ = renaming(functional.Functional.__init__, MODEL)


def rename_of_methods(training: Any) -> None:
    """Lets a model's own `fit` and its like take Keras 1's names."""
    for name, names in METHODS.items():
        if name in vars(training.Model):
            setattr(training.Model, name, renaming(vars(training.Model)[name], names))


def renaming(function: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    """A function that takes Keras 1's argument names as well."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        old = [name for name in kwargs if name in names]
        if "nb_filter" in names:
            args, kwargs = _sizes_of_kernels(args, kwargs, bool(old))
        for name in old:
            if names[name] in kwargs:
                text = "%s() takes '%s' of Keras 1, or '%s' of Keras 2, not both"
                raise TypeError(callers.message(text % (function.__qualname__, name, names[name])))
            _tell(name, names[name])
            value = kwargs.pop(name)
            kwargs[names[name]] = VALUES.get(names[name], {}).get(value, value) if isinstance(value, str) else value
        return function(*args, **kwargs)

    return call


def _sizes_of_kernels(args: Any, kwargs: Any, old: bool) -> tuple[Any, Any]:
    """`Convolution2D(64, 3, 5, border_mode="same")` has a kernel of 3 by 5; without an old name 5 is its strides."""
    if "nb_row" in kwargs and "nb_col" in kwargs:
        _tell("nb_row, nb_col", "kernel_size")
        return args, {"kernel_size": (kwargs.pop("nb_row"), kwargs.pop("nb_col")), **kwargs}
    if len(args) == 4 and all(isinstance(size, int) for size in args[2:]):
        if old:
            return (*args[:2], tuple(args[2:])), kwargs
        if 1 < args[2] <= args[3]:  # a window that leaves nothing out, or all of 3 by 3: hardly meant as strides
            _tell_strides(type(args[0]).__name__, *args[1:])
    return args, kwargs


def _tell_strides(kind: str, filters: int, size: int, strides: int) -> None:
    text = "%s(%s, %d, %d) has strides of %d, as in tf.keras; the package keras took kernel_size=(%d, %d)"
    LOG.warning("%s", callers.message(text % (kind, filters, size, strides, strides, size, strides)))


@functools.lru_cache(maxsize=None)
def _tell(old: str, new: str) -> None:
    LOG.warning("%s", callers.message("the argument '%s' of Keras 1 is '%s' here" % (old, new)))
