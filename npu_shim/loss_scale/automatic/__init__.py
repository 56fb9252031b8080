"""A loss scale for scripts that have none: whatever optimizer they train with, by whichever way they take gradients.

`tf.gradients` makes gradients through a factor and divides them by it again, so a script only ever sees unscaled
ones. The factor is the constant 1 until an `apply_gradients` receives gradients that descend from it: then it becomes
the scale, and the update runs in steps only in which those gradients are finite. What no `apply_gradients` receives is
as it was.

    made.py     what a call of tf.gradients made: its factor and its results
    origin.py   from the gradients that an optimizer is given, back to the calls that made them
    tensorflows.py  counts the steps that TensorFlow's own scale skips
    own.py      scripts that scale by themselves, which are left alone
    state.py    the scale and its counters, which no Saver and no collection of TensorFlow knows
    gate.py     the update that runs in steps only whose gradients are finite
    by_hand.py  updates without an optimizer
    patches.py  install and uninstall: the functions and methods of TensorFlow that are replaced

Importing this package imports no TensorFlow.
"""

from __future__ import annotations

from typing import Any, Callable


def install(scale: Any = "auto", is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Gives every optimizer of this process a loss scale from now on; a second call changes the settings.

    Args:
        scale: "auto", for a scale that starts at 2**15, doubles after 2000 finite steps and halves at an overflow; or
            a number above 0, for a scale that stays; None or "off" is as `uninstall`.
        is_wanted: function without arguments; it is asked when gradients are made and applied, and says whether the
            sessions of this process train in float16.

    Raises:
        ConfigError: scale is none of these.
    """
    from npu_shim.loss_scale.automatic import patches
    from npu_shim.options.entrances import forced

    wanted = forced.checked_scale(scale, "loss_scale")
    if wanted is None:
        patches.uninstall()
    else:
        patches.install(wanted, is_wanted)


def uninstall() -> None:
    """Restores TensorFlow's own functions and methods; graphs that have been built stay as they are."""
    from npu_shim.loss_scale.automatic import patches

    patches.uninstall()


def count_tensorflows() -> None:
    """Has the steps counted that TensorFlow's own loss scale skips, where no scale is asked for, until `uninstall`."""
    from npu_shim.loss_scale.automatic import patches

    patches.count_tensorflows()


def is_installed() -> bool:
    """Whether optimizers are given a loss scale now."""
    from npu_shim.loss_scale.automatic import patches

    return patches.settings() is not None


def variables(graph: Any = None) -> list[Any]:
    """Returns the variables of a graph's automatic loss scales, for a Saver that is to keep them.

    For example `tf.train.Saver(tf.global_variables() + automatic.variables())`. No other Saver has them. They need no
    initialization: before the first step they read, and are saved, as their start.

    Args:
        graph: tf.Graph; None is the default graph.
    """
    from npu_shim.loss_scale.automatic import state

    return state.variables(graph)


def tell_of_request(graph: Any, request: str) -> None:
    """Logs one line where a request for float16, as a session's config has it, trains a graph without a loss scale.

    Args:
        graph: tf.Graph of the session.
        request: what asks, in the user's words.
    """
    from npu_shim.loss_scale.automatic import by_hand

    by_hand.tell_of_request(graph, request)


def scales_made() -> int:
    """Returns how many scales optimizers of this process were given so far; 0 says that there was nothing to scale."""
    from npu_shim.loss_scale.automatic import state

    return state.scales_made()
