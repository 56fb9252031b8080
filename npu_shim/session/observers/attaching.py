"""Attaches the observers that a session's options request, such as dumps; logs options without effect."""

from __future__ import annotations

import functools
import logging
from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.options import table
from npu_shim.options.table import Option
from npu_shim.rewriter.errors import ConfigError
from npu_shim.session import clusters
from npu_shim.session.interception import interceptors
from npu_shim.session.observers import calibration, dump, lost_losses, profiling, watching

LOG = logging.getLogger("npu_shim")


def attach(session: tf.Session, values: Mapping[str, Any]) -> None:
    """Attaches the observers that the options request to a session, outside of its engine.

    Args:
        session: tf.Session.
        values: dict of option values.

    Raises:
        tf.errors.InternalError: profiling_options cannot be read. Wrong dump options raise at the first run.
    """
    for name in without_effect(values):
        _log_once(name)
    calibration.attach(session)
    lost_losses.attach(session, values)
    if values.get(watching.KEY):
        watching.attach(session)
    if values.get("enable_dump") or values.get("enable_dump_debug"):
        dump.attach(session, values)
    if values.get("profiling_mode"):
        try:
            profiling.attach(session, values.get("profiling_options"))
        except ConfigError as error:
            raise tf.errors.InternalError(None, None, str(error)) from error


def attach_shapes(session: tf.Session, values: Mapping[str, Any]) -> None:
    """Attaches what watches the shapes that a session's clusters are compiled for, inside of its engine.

    Args:
        session: tf.Session.
        values: dict of option values.
    """
    shapes = clusters.configure(values)
    if shapes is not None:
        interceptors.watch(session, shapes.run)


def without_effect(values: Mapping[str, Any]) -> list[str]:
    """Returns the names of the options in `values` (dict) that the user set and that have no effect off the NPU.

    NPUEstimator writes some options whether they were given or not: NPURunConfig's default counts as not set.
    """
    known = table.options()
    return [
        name
        for name, value in values.items()
        if known[name].status == "accepted" and value not in (*_default_values(known[name]), None, "")
    ]


def _default_values(option: Option) -> tuple[Any, ...]:
    return (option.default, option.run_config["default"]) if option.run_config is not None else (option.default,)


@functools.lru_cache(maxsize=None)
def _log_once(name: str) -> None:
    LOG.info("npu_shim: option %s is accepted and has no effect here", name)
