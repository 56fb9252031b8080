"""What Keras's callbacks are told, and what its progress bars show, as in TensorFlow 1.15: of models of graphs.

    logs["loss"].item()      a number of NumPy, as the session gave it; Keras 2.15 hands out Python's
    4/4 [====] - 0s 13ms/step - loss: 4.85      the model's metrics, and no other entry of the logs

evaluate and predict print a bar too. A line of verbose=2 ends with the last metric.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Callable

BATCH = ("batch", "size", "num_steps")  # what a bar that counts samples asks for


def install(callbacks: Any) -> None:
    """Changes the module of Keras that defines the callbacks."""
    kind = callbacks.CallbackList
    kind._process_logs = _as_they_are(kind._process_logs)
    bar = callbacks.ProgbarLogger
    bar.set_params = _keeping(bar.set_params)
    bar._batch_update_progbar = _of_metrics(bar._batch_update_progbar, BATCH)
    bar._finalize_progbar = _of_metrics(bar._finalize_progbar, ("size",))
    callbacks.configure_callbacks = _with_bar(callbacks.configure_callbacks, bar)
    callbacks.CSVLogger.on_epoch_end = _of_these_columns(callbacks.CSVLogger.on_epoch_end)
    callbacks.io_utils = _Lines(callbacks.io_utils)


class _Lines:
    """`io_utils` as the callbacks see it: epochs in their lines have five digits, for which scripts look in logs."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def print_msg(self, message: str, line_break: bool = True) -> None:
        """Prints a line: "Epoch 00002: early stopping"."""
        text = re.sub(r"^(\s*Epoch )(\d+):", lambda head: "%s%05d:" % (head.group(1), int(head.group(2))), message)
        self._own.print_msg(text.replace("LearningRateScheduler setting", "LearningRateScheduler reducing"), line_break)


def _of_these_columns(on_epoch_end: Callable[..., Any]) -> Callable[..., Any]:
    """A table has the columns of its first row; Keras adds those of a validation that there may never be."""

    @functools.wraps(on_epoch_end)
    def method(self: Any, epoch: int, logs: Any = None) -> None:
        self.keys = self.keys or sorted(logs or {})
        on_epoch_end(self, epoch, logs)

    return method


def shorten_lines(generic_utils: Any) -> None:
    """Changes the module of Keras that defines the bar: its lines of verbose=2 have no times behind the metrics."""
    bar = generic_utils.Progbar
    bar._time_at_epoch_end = _End()
    update = bar.update

    @functools.wraps(update)
    def method(self: Any, current: Any, values: Any = None, finalize: Any = None) -> None:
        update(self, current, values, finalize)
        if self.verbose == 2 and (current >= self.target if finalize is None and self.target else finalize):
            print()  # with the times the end of the line is gone

    bar.update = method


class _End:
    """When an epoch has ended, which Keras prints if it is known."""

    def __get__(self, bar: Any, owner: Any = None) -> Any:
        return None if bar is None or bar.verbose == 2 else vars(bar).get("_time_at_epoch_end")

    def __set__(self, bar: Any, value: Any) -> None:
        vars(bar)["_time_at_epoch_end"] = value


def _as_they_are(process: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(process)
    def method(self: Any, logs: Any, is_batch_hook: bool = False) -> Any:
        import tensorflow.compat.v1 as tf

        return process(self, logs, is_batch_hook) if tf.executing_eagerly() or logs is None else logs

    return method


def _keeping(set_params: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(set_params)
    def method(self: Any, params: Any) -> None:
        self.params = params  # every other callback has them
        set_params(self, params)

    return method


def _of_metrics(show: Callable[..., Any], counts: tuple[str, ...]) -> Callable[..., Any]:
    """A method of the progress bar that takes (batch or logs, logs or counter), with the metrics alone."""

    @functools.wraps(show)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        shown = self.params.get("metrics")
        if shown is None:  # not of a model of graphs
            return show(self, *args, **kwargs)
        kept = {*shown, *(() if self.use_steps else counts)}
        chosen = [_chosen(one, kept) for one in args]
        return show(self, *chosen, **{name: _chosen(one, kept) for name, one in kwargs.items()})

    return method


def _chosen(logs: Any, kept: set[str]) -> Any:
    return {name: value for name, value in logs.items() if name in kept} if isinstance(logs, dict) else logs


def _with_bar(configure: Callable[..., Any], bar: Any) -> Callable[..., Any]:
    @functools.wraps(configure)
    def configure_callbacks(callbacks: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        is_new = not hasattr(callbacks, "set_model")  # no list of callbacks that `fit` has made
        if is_new and kwargs.get("mode") in ("test", "predict") and kwargs.get("verbose"):
            callbacks = [*(callbacks or ()), _counting(bar(kwargs.get("count_mode", "steps")))]
        return configure(callbacks, model, *args, **kwargs)

    return configure_callbacks


def _counting(bar: Any) -> Any:
    """Has a bar take the metrics of every batch, with verbose=2 too, as nobody tells them at the end, and count all."""
    show = bar._batch_update_progbar

    def take(batch: int, logs: Any = None) -> None:
        verbose, bar.verbose = bar.verbose, 1  # what is printed is decided by the verbosity that the line began with
        show(batch, logs)
        bar.verbose = verbose

    def predicted(batch: int, logs: Any = None) -> None:  # Keras withholds the number of rows, with the predictions
        take(batch, {name: value for name, value in (logs or {}).items() if name in BATCH})

    bar._batch_update_progbar = take
    bar.on_predict_batch_end = predicted
    return bar
