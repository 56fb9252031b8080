"""What scikit-learn 0.20 to 0.22 took and gave, with its old meaning."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any, Callable

Say = Callable[[str], None]
FORESTS = {"mse": "squared_error", "mae": "absolute_error"}
GRADIENTS = {"log": "log_loss", "squared_loss": "squared_error"}
FOLDS = dict.fromkeys(
    ("n_folds", "y"),
    "model_selection has folds of n_splits, which split(X, y) gives; cross_validation's were gone in scikit-learn 0.20",
)
BOOSTS = {"deviance": "log_loss", "ls": "squared_error", "lad": "absolute_error"}


def linear_assignment(X: Any) -> Any:
    """The rows and columns of a least sum, (n, 2), as sklearn.utils.linear_assignment_ had it: sorted by row."""
    import numpy as np
    from scipy import optimize

    return np.stack(optimize.linear_sum_assignment(X), 1)


def feature_names(transformer: Any, *args: Any) -> list[str]:
    """The names of a transformer's features as a list."""
    return list(transformer.get_feature_names_out(*args))


def takes_eps(log_loss: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """sklearn.metrics.log_loss with eps, between which and 1 - eps probabilities are clipped, as until 1.4."""

    def with_eps(y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        eps = kwargs.pop("eps", args[0] if args else None)
        if eps is None:
            return log_loss(y_true, y_pred, **kwargs)
        import numpy as np

        say("sklearn.metrics.log_loss takes eps here, which scikit-learn 1.5 refuses")
        clipped = np.clip(np.asarray(y_pred, float), eps, 1 - eps)
        clipped = clipped / clipped.sum(1, keepdims=True) if clipped.ndim == 2 and clipped.shape[1] > 1 else clipped
        kwargs.update(zip(("normalize", "sample_weight", "labels"), args[1:]))
        return log_loss(y_true, clipped, **kwargs)

    return with_eps


def takes_squared(mean_squared_error: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """sklearn.metrics.mean_squared_error with squared, as from 0.22 until 1.5: False is its root."""
    if "squared" in inspect.signature(mean_squared_error).parameters:
        return mean_squared_error

    def of_root(*args: Any, **kwargs: Any) -> Any:
        from sklearn import metrics

        squared = kwargs.pop("squared", True)
        return (mean_squared_error if squared else metrics.root_mean_squared_error)(*args, **kwargs)

    return of_root


def takes_idle_seeds(init: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """KFold or StratifiedKFold with a random_state but without shuffle, which left it unused until 0.24."""

    def unshuffled(self: Any, *args: Any, **kwargs: Any) -> None:
        shuffles = args[1] if len(args) > 1 else kwargs.get("shuffle", False)
        if not shuffles:
            args, _ = args[:2], kwargs.pop("random_state", None)
        init(self, *args, **kwargs)

    return unshuffled


def cuts_full_recall(curve: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """sklearn.metrics.precision_recall_curve, which ended where all positives are found, as until 1.1."""
    import numpy as np

    def until_full(*args: Any, **kwargs: Any) -> Any:
        precision, recall, thresholds = curve(*args, **kwargs)
        more = max(0, int(np.argmax(recall < 1)) - 1)  # recall falls: what is in front of its last 1
        if more:
            say("sklearn.metrics.precision_recall_curve ends at full recall here, as until scikit-learn 1.0")
        return precision[more:], recall[more:], thresholds[more:]

    return until_full


def tells_of_samme(init: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """AdaBoostClassifier without an algorithm, which was SAMME.R until 1.5 and can only be SAMME since: a line."""
    algorithm = inspect.signature(init).parameters.get("algorithm")
    if algorithm is not None and algorithm.default == "SAMME.R":
        return init

    def told(self: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) < 4 and "algorithm" not in kwargs:
            say("AdaBoostClassifier is SAMME since scikit-learn 1.6; it was SAMME.R: pip install 'scikit-learn<1.6'")
        init(self, *args, **kwargs)

    return told


def has_tags(module: Any, say: Say) -> None:
    """Gives Keras's KerasClassifier and KerasRegressor what scikit-learn 1.6 asks estimators for, if it is there."""
    if importlib.util.find_spec("sklearn") is None:
        return
    from sklearn import base

    for name, mixin in (("KerasClassifier", base.ClassifierMixin), ("KerasRegressor", base.RegressorMixin)):
        plain = type(name, (mixin, base.BaseEstimator), {})
        if hasattr(plain, "__sklearn_tags__"):
            getattr(module, name).__sklearn_tags__ = lambda self, plain=plain: plain().__sklearn_tags__()


def takes_lists(parameter: str, kind: Callable[[Any], Any]) -> Callable[[Callable[..., Any], Say], Callable[..., Any]]:
    """Lets a function take a list where it wants an array, or a tuple: `kind` makes it one."""

    def takes_both(function: Callable[..., Any], say: Say) -> Callable[..., Any]:
        place = list(inspect.signature(function).parameters).index(parameter)

        def of_list(*args: Any, **kwargs: Any) -> Any:
            if isinstance(kwargs.get(parameter), list):
                kwargs[parameter] = kind(kwargs[parameter])
            elif len(args) > place and isinstance(args[place], list):
                args = (*args[:place], kind(args[place]), *args[place + 1 :])
            return function(*args, **kwargs)

        return of_list

    return takes_both
