"""keras.wrappers.scikit_learn of Keras until 2.11: models as estimators, `KerasClassifier(build_fn=make, epochs=2)`."""

from __future__ import annotations

import copy
from typing import Any, Callable, Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.compat import callers
from npu_shim.compat.keras.package_names import has_arg, to_list
from npu_shim.rewriter.errors import closest

CALLS = ("fit", "predict", "predict_classes", "evaluate")  # methods of a model that take parameters


class BaseWrapper:
    """What both estimators have.

    Args:
        build_fn: makes a compiled model; None for a subclass that does so in its `__call__`.
        sk_params: arguments of `build_fn` and of a model's fit, predict, predict_classes and evaluate.

    Raises:
        ValueError: nothing takes one of them.
    """

    def __init__(self, build_fn: Any = None, **sk_params: Any) -> None:
        self.build_fn, self.sk_params = build_fn, sk_params
        self.check_params(sk_params)

    def check_params(self, params: Mapping[str, Any]) -> None:
        """ValueError for parameters that nothing takes."""
        functions = [*(getattr(tf.keras.Sequential, name) for name in CALLS), self._builder()]
        for name in params:
            if name not in ("nb_epoch", "build_fn") and not any(has_arg(function, name) for function in functions):
                near = closest(name, ["epochs", "batch_size", "verbose", "callbacks", "steps"])
                hint = " (did you mean '%s'?)" % near if near else ""
                raise ValueError(callers.message("%s is not a legal parameter%s" % (name, hint)))

    def get_params(self, **params: Any) -> dict[str, Any]:
        """Returns copies of the parameters, and `build_fn`."""
        return {**copy.deepcopy(self.sk_params), "build_fn": self.build_fn}

    def set_params(self, **params: Any) -> BaseWrapper:
        """Sets parameters; ValueError for one that nothing takes."""
        self.check_params(params)
        self.build_fn = params.pop("build_fn", self.build_fn)
        self.sk_params.update(params)
        return self

    def fit(self, x: Any, y: Any, **kwargs: Any) -> Any:
        """Makes a model and trains it; returns its History. `kwargs` go before the estimator's own parameters."""
        make: Any = self.build_fn or self
        self.model = make(**self.filter_sk_params(self._builder()))
        return self.model.fit(x, self._targets(y), **self.filter_sk_params(tf.keras.Sequential.fit, kwargs))

    def filter_sk_params(self, fn: Callable[..., Any], override: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns the parameters that a function takes, and `override`."""
        return {**{name: value for name, value in self.sk_params.items() if has_arg(fn, name)}, **(override or {})}

    def _builder(self) -> Any:
        """What is asked for the names of its arguments."""
        return self.build_fn or type(self).__dict__.get("__call__") or (lambda: None)

    def _targets(self, y: Any) -> Any:
        """Labels as the model's loss takes them."""
        name = getattr(self.model.loss, "__name__", self.model.loss)
        one_hot = name == "categorical_crossentropy" and np.ndim(y) != 2
        return tf.keras.utils.to_categorical(y) if one_hot else y

    def _evaluated(self, x: Any, y: Any, kwargs: Mapping[str, Any]) -> list[Any]:
        """The loss and the metrics."""
        given = self.filter_sk_params(tf.keras.Sequential.evaluate, kwargs)
        return to_list(self.model.evaluate(x, self._targets(y), **given))


class KerasClassifier(BaseWrapper):
    """A classifier of scikit-learn; labels are numbers of classes, or rows of one-hot codes."""

    _estimator_type = "classifier"

    def fit(self, x: Any, y: Any, sample_weight: Any = None, **kwargs: Any) -> Any:
        """Makes a model and trains it; ValueError for labels of another shape than [n], [n, 1] and [n, classes]."""
        y = np.array(y)
        if y.ndim == 2 and y.shape[1] > 1:
            self.classes_ = np.arange(y.shape[1])
        elif y.ndim == 1 or (y.ndim == 2 and y.shape[1] == 1):
            self.classes_ = np.unique(y)
            y = np.searchsorted(self.classes_, y)
        else:
            raise ValueError(callers.message("labels have shape [n], [n, 1] or [n, classes], not %s" % list(y.shape)))
        self.n_classes_ = len(self.classes_)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return super().fit(x, y, **weights, **kwargs)

    def predict(self, x: Any, **kwargs: Any) -> Any:
        """Returns the most probable class of each row."""
        given = self.filter_sk_params(tf.keras.Sequential.predict_classes, kwargs)
        return self.classes_[self.model.predict_classes(x, **given)]

    def predict_proba(self, x: Any, **kwargs: Any) -> Any:
        """Returns the probabilities [n, classes]; of a model of one output those of both classes."""
        given = self.filter_sk_params(tf.keras.Sequential.predict_classes, kwargs)
        shares = self.model.predict_proba(x, **given)
        return np.hstack([1 - shares, shares]) if shares.shape[1] == 1 else shares

    def score(self, x: Any, y: Any, **kwargs: Any) -> Any:
        """Returns the accuracy; ValueError for a model that is compiled without."""
        values = self._evaluated(x, np.searchsorted(self.classes_, y), kwargs)
        for name, value in zip(self.model.metrics_names, values):
            if name in ("acc", "accuracy"):
                return value
        raise ValueError(callers.message("the model has no accuracy: compile it with metrics=['accuracy']"))


class KerasRegressor(BaseWrapper):
    """A regressor of scikit-learn."""

    _estimator_type = "regressor"

    def predict(self, x: Any, **kwargs: Any) -> Any:
        """Returns the predictions, [n] for a model of one output."""
        predictions = self.model.predict(x, **self.filter_sk_params(tf.keras.Sequential.predict, kwargs))
        return predictions.squeeze(-1) if predictions.shape[-1] == 1 else predictions

    def score(self, x: Any, y: Any, **kwargs: Any) -> Any:
        """Returns the loss, negative: more is better."""
        return -self._evaluated(x, y, kwargs)[0]
