"""Targets of tf.contrib.layers: losses, predictions and metrics of a label (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping

import tensorflow.compat.v1 as tf

Metric = Callable[..., Any]
_UNSPECIFIED, _CLASSIFICATION, _REGRESSION = 0, 1, 2


class ProblemType:
    """Kinds of problems, by the numbers of tf.contrib.learn."""

    UNSPECIFIED, CLASSIFICATION, LINEAR_REGRESSION = _UNSPECIFIED, _CLASSIFICATION, _REGRESSION


class _TargetColumn:
    """A label: what its loss is, and what logits say of it.

    Args:
        loss_fn: (logits, labels) -> float [examples, ...], the loss of each example.
        num_label_columns: int, how many logits an example has.
        label_name: str, the label's key where labels are a dict; or None.
        weight_column_name: str, the key of the examples' weights in the features; or None.
        problem_type: of ProblemType.
    """

    def __init__(
        self, loss_fn: Metric, num_label_columns: int, label_name: str | None, weight_column_name: str | None,
        problem_type: int,
    ) -> None:  # fmt: skip
        self._loss_fn = loss_fn
        self.num_label_columns = num_label_columns
        self.label_name = label_name
        self.weight_column_name = weight_column_name
        self.problem_type = problem_type

    def logits_to_predictions(self, logits: tf.Tensor, proba: bool = False) -> tf.Tensor:
        """What the logits say: values, classes, or with `proba` probabilities."""
        raise NotImplementedError

    def get_weight_tensor(self, features: Mapping[str, Any]) -> tf.Tensor | None:
        """The examples' weights in float32, or None."""
        return tf.cast(features[self.weight_column_name], tf.float32) if self.weight_column_name else None

    def training_loss(
        self, logits: tf.Tensor, target: Any, features: Mapping[str, Any], name: str = "training_loss"
    ) -> tf.Tensor:  # fmt: skip
        """The mean over the examples of loss times weight: a scalar."""
        losses, _ = self._weighted(logits, target, features)
        return tf.reduce_mean(losses, name=name)

    def loss(self, logits: tf.Tensor, target: Any, features: Mapping[str, Any]) -> tf.Tensor:
        """The mean loss by weight: a scalar, NaN where all weights are 0."""
        losses, weights = self._weighted(logits, target, features)
        if weights is None:
            return tf.reduce_mean(losses, name="loss")
        return tf.divide(tf.reduce_sum(losses), tf.cast(tf.reduce_sum(weights), tf.float32), name="loss")

    def get_eval_ops(
        self, features: Mapping[str, Any], logits: tf.Tensor, labels: Any, metrics: Mapping[Any, Metric] | None = None
    ) -> dict[str, Any]:  # fmt: skip
        """Name of a metric -> (its value, the op that takes one more batch into it); "loss" is one."""
        raise NotImplementedError

    def _weighted(self, logits: tf.Tensor, target: Any, features: Mapping[str, Any]) -> tuple[tf.Tensor, Any]:
        """(the losses times the weights, the weights), both in one row; without weights the losses as they are."""
        losses = self._loss_fn(logits, target[self.label_name] if isinstance(target, dict) else target)
        weights = self.get_weight_tensor(features)
        if weights is None:
            return losses, None
        weights = tf.reshape(weights, [-1])
        return tf.multiply(tf.reshape(losses, [-1]), weights), weights

    def _measured(self, predictions: tf.Tensor, labels: Any, metrics: Mapping[str, Metric], features: Any) -> Any:
        """Calls metrics of tf.contrib.metrics, with weights where the target has some."""
        weights = self.get_weight_tensor(features)
        labels = tf.cast(labels, predictions.dtype)
        given = {} if weights is None else {"weights": weights}
        return {name: metric(predictions, labels, **given) for name, metric in metrics.items()}


class _RegressionTargetColumn(_TargetColumn):
    def __init__(self, label_name: str | None, weight_column_name: str | None, label_dimension: int) -> None:
        super().__init__(_squared, label_dimension, label_name, weight_column_name, _REGRESSION)

    def logits_to_predictions(self, logits: tf.Tensor, proba: bool = False) -> tf.Tensor:
        return tf.squeeze(logits, axis=[1]) if self.num_label_columns == 1 else logits

    def get_eval_ops(
        self, features: Mapping[str, Any], logits: tf.Tensor, labels: Any, metrics: Mapping[Any, Metric] | None = None
    ) -> dict[str, Any]:  # fmt: skip
        loss = self.loss(logits, labels, features)
        predictions = self.logits_to_predictions(logits)
        return {"loss": tf.metrics.mean(loss), **self._measured(predictions, labels, metrics or {}, features)}


class _MultiClassTargetColumn(_TargetColumn):
    def __init__(
        self, loss_fn: Metric, n_classes: int, label_name: str | None, weight_column_name: str | None
    ) -> None:  # fmt: skip
        if n_classes < 2:
            raise ValueError("n_classes must be > 1 for classification.")
        columns = 1 if n_classes == 2 else n_classes
        super().__init__(loss_fn, columns, label_name, weight_column_name, _CLASSIFICATION)

    def logits_to_predictions(self, logits: tf.Tensor, proba: bool = False) -> tf.Tensor:
        if self.num_label_columns == 1:
            logits = tf.concat([tf.zeros_like(logits), logits], 1)
        return tf.nn.softmax(logits) if proba else tf.argmax(logits, 1)

    def get_eval_ops(
        self, features: Mapping[str, Any], logits: tf.Tensor, labels: Any, metrics: Mapping[Any, Metric] | None = None
    ) -> dict[str, Any]:  # fmt: skip
        results = {"loss": tf.metrics.mean(self.loss(logits, labels, features))}
        if self.num_label_columns == 1:
            probabilities, binary = tf.sigmoid(logits), get_default_binary_metrics_for_eval([0.5])
            results.update({name: metric(probabilities, labels) for name, metric in binary.items()})
        by_kind = _by_kind({("accuracy", "classes"): _accuracy} if metrics is None else metrics)
        for kind, wanted in by_kind.items():
            if wanted:
                predictions = self.logits_to_predictions(logits, proba=kind == "probabilities")
                results.update(self._measured(predictions, labels, wanted, features))
        return results


class _BinarySvmTargetColumn(_MultiClassTargetColumn):
    def __init__(self, label_name: str | None, weight_column_name: str | None) -> None:
        super().__init__(_hinge, 2, label_name, weight_column_name)

    def logits_to_predictions(self, logits: tf.Tensor, proba: bool = False) -> tf.Tensor:
        if proba:
            raise ValueError("logits to probabilities is not supported for _BinarySvmTargetColumn")
        return super().logits_to_predictions(logits)


def regression_target(
    label_name: str | None = None, weight_column_name: str | None = None, label_dimension: int = 1
) -> _TargetColumn:  # fmt: skip
    """A label of `label_dimension` numbers, whose loss is the squared error."""
    return _RegressionTargetColumn(label_name, weight_column_name, label_dimension)


def multi_class_target(
    n_classes: int, label_name: str | None = None, weight_column_name: str | None = None
) -> _TargetColumn:  # fmt: skip
    """A label that is one of `n_classes` classes: the loss is the log loss of a sigmoid for two, else of a softmax.

    Raises:
        ValueError: n_classes is below 2.
    """
    loss = _log_loss_of_two if n_classes == 2 else _log_loss
    return _MultiClassTargetColumn(loss, n_classes, label_name, weight_column_name)


def binary_svm_target(label_name: str | None = None, weight_column_name: str | None = None) -> _TargetColumn:
    """A label 0 or 1, whose loss is the hinge loss."""
    return _BinarySvmTargetColumn(label_name, weight_column_name)


def get_default_binary_metrics_for_eval(thresholds: Iterable[float]) -> dict[str, Metric]:
    """Name -> metric of (probabilities, labels), as tf.contrib.metrics has them."""
    metrics: dict[str, Metric] = {
        "labels/prediction_mean": lambda predictions, labels, weights=None: tf.metrics.mean(predictions, weights),
        "labels/actual_target_mean": lambda predictions, labels, weights=None: tf.metrics.mean(labels, weights),
        "accuracy/baseline_target_mean": lambda predictions, labels, weights=None: tf.metrics.mean(labels, weights),
        "auc": lambda predictions, labels, weights=None: tf.metrics.auc(labels, predictions, weights),
    }
    for threshold in thresholds:
        metrics["accuracy/threshold_%f_mean" % threshold] = _accuracy_at(threshold)
        metrics["precision/positive_threshold_%f_mean" % threshold] = _at(threshold, tf.metrics.precision_at_thresholds)
        metrics["recall/positive_threshold_%f_mean" % threshold] = _at(threshold, tf.metrics.recall_at_thresholds)
    return metrics


def _by_kind(metrics: Mapping[Any, Metric]) -> dict[str, dict[str, Metric]]:
    """The metrics of classes, and those of probabilities; a plain name is of classes."""
    kinds: dict[str, dict[str, Metric]] = {"classes": {}, "probabilities": {}}
    for name, metric in metrics.items():
        parts = name if isinstance(name, tuple) else (name, "classes")
        if len(parts) != 2:
            raise ValueError("Ignoring metric %s. It returned a tuple with len %d, expected 2." % (name, len(parts)))
        if parts[1] not in kinds:
            raise ValueError(
                "Ignoring metric %s. The 2nd element of its name should be either 'classes' or 'probabilities'."
                % (name,)
            )
        kinds[parts[1]][parts[0]] = metric
    return kinds


def _column(labels: tf.Tensor) -> tf.Tensor:
    """Labels [examples] as [examples, 1], in float32."""
    return tf.cast(tf.expand_dims(labels, axis=1) if labels.shape.ndims == 1 else labels, tf.float32)


def _squared(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    labels = _column(labels)
    logits.shape.assert_is_compatible_with(labels.shape)
    return tf.square(logits - labels)


def _log_loss_of_two(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=_column(labels), logits=logits)


def _log_loss(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    labels = tf.squeeze(labels, axis=[1]) if labels.shape.ndims == 2 else labels
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _hinge(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(1.0 - (2.0 * _column(labels) - 1.0) * logits)


def _accuracy(predictions: tf.Tensor, labels: tf.Tensor, weights: Any = None) -> Any:
    return tf.metrics.accuracy(labels, predictions, weights)


def _accuracy_at(threshold: float) -> Metric:
    def metric(predictions: tf.Tensor, labels: tf.Tensor, weights: Any = None) -> Any:
        classes = tf.cast(tf.greater_equal(predictions, threshold), labels.dtype)
        return tf.metrics.accuracy(labels, classes, weights)

    return metric


def _at(threshold: float, of_thresholds: Metric) -> Metric:
    """A metric of several thresholds for one: its value is a number, its update a vector of one."""

    def metric(predictions: tf.Tensor, labels: tf.Tensor, weights: Any = None) -> Any:
        value, update = of_thresholds(labels, predictions, thresholds=[threshold], weights=weights)
        return tf.squeeze(value), update

    return metric
