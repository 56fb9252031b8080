"""The HTML file of `npu-shim plan --html` and `npu-shim run --report`."""

from __future__ import annotations

import os
from typing import Any, Sequence

from npu_shim.configs import extras
from npu_shim.pjrt import atomic_write
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.page import page

SUFFIX = ".html"


def checked(path: str, option: str) -> str:
    """Returns the absolute path of a report that can be made; `option` asked for it.

    Raises:
        ConfigError: as of `checked_file`, or plotly is missing.
    """
    path = checked_file(path, option, SUFFIX)
    try:
        page.plotting()
    except ConfigError as reason:
        raise ConfigError("%s: %s" % (reason, extras.pip_install("report"))) from reason
    return path


def checked_file(path: str, option: str, suffix: str) -> str:
    """Returns the absolute path of a file that can be written; `option` asked for it. Any name ends in suffix "".

    Raises:
        ConfigError: another suffix, or a folder that is not there or cannot be written to.
    """
    if not path.endswith(suffix):
        raise ConfigError("%s is '%s', expected a file name that ends in %s" % (option, path, suffix))
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise ConfigError("%s: there is no folder '%s'" % (option, folder))
    if os.path.isdir(path) or not os.access(folder, os.W_OK):
        raise ConfigError("%s: '%s' cannot be written" % (option, path))
    return path


def write(path: str, pages: Sequence[dict[str, Any]], heading: str) -> None:
    """Writes pages of `npu_shim.options.reports.pages` as one file, whole or not at all."""
    data = page.render(pages, heading).encode("utf-8")
    with atomic_write.file(path) as f:
        f.write(data)


def checked_steps(text: str, option: str) -> int:
    """Returns the number of steps in a text; raises ConfigError where it is none, as `option` demands."""
    if not text.isdigit() or int(text) < 1:
        raise ConfigError("%s is '%s', expected a number of training steps, 1 or more" % (option, text))
    return int(text)


def switches(folder: str, out: str | None, steps: int) -> dict[str, str]:
    """The environment of a run whose graphs are kept in a folder for a report, and whose first steps are measured."""
    from npu_shim.options.reports import kept_pages
    from npu_shim.session.observers import calibration

    kept = {kept_pages.SWITCH: folder} if out else {}
    measured = {calibration.SWITCH: str(steps), calibration.FOLDER: folder} if steps else {}
    return {**kept, **measured}


def tell(folder: str, out: str | None, steps: int, heading: str) -> str:
    """Writes the report of a run; returns what is to be said about it, and about its ranges."""
    from npu_shim.session.observers import ranges

    said, measured = [], []
    if steps:
        measured = _measured(folder)
        said += [ranges.as_text(*recorded) for recorded in measured] or ["npu-shim: no training step was measured"]
    if out:
        said.append(_write_collected(folder, out, heading, measured))
    return "\n".join(said)


def _measured(folder: str) -> list[Any]:
    """What the processes of a run measured: the arguments of `ranges.as_text` for each graph."""
    from npu_shim.session.observers import calibration, ranges

    calibration.write_all(folder)
    return ranges.collected(folder)


def _write_collected(folder: str, path: str, heading: str, measured: Sequence[Any]) -> str:
    """Writes the pages in a folder with the ranges of their tensors; returns what is to be said about it."""
    from npu_shim.options.reports import kept_pages

    collected = kept_pages.collected(folder)
    if not collected:
        return "npu-shim: no graph with products reached the rewriter, so there is no report"
    rows = {one.tensor: one.as_json() for tensors, *_ in measured for one in tensors}
    for contents in collected:
        names = set(contents["nodes"]["name"])
        contents["ranges"] = [row for name, row in sorted(rows.items()) if name.partition(":")[0] in names]
    write(path, collected, heading)
    return "npu-shim: wrote %s, %d graph%s" % (path, len(collected), "" if len(collected) == 1 else "s")
