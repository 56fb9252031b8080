"""The HTML file of `npu-shim plan --html` and `npu-shim run --report`."""

from __future__ import annotations

import os
from typing import Any, Sequence

from npu_shim.pjrt import whole
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.page import page

SUFFIX = ".html"


def checked(path: str, option: str) -> str:
    """Returns the absolute path of a report that can be made; `option` asked for it.

    Raises:
        ConfigError: another suffix, a folder that is not there or cannot be written to, or plotly is missing.
    """
    if not path.endswith(SUFFIX):
        raise ConfigError("%s is '%s', expected a file name that ends in %s" % (option, path, SUFFIX))
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise ConfigError("%s: there is no folder '%s'" % (option, folder))
    if os.path.isdir(path) or not os.access(folder, os.W_OK):
        raise ConfigError("%s: '%s' cannot be written" % (option, path))
    page.plotting()
    return path


def write(path: str, pages: Sequence[dict[str, Any]], heading: str) -> None:
    """Writes pages of `npu_shim.options.pages` as one file, whole or not at all."""
    data = page.render(pages, heading).encode("utf-8")
    with whole.file(path) as f:
        f.write(data)


def write_collected(folder: str, path: str, heading: str) -> str:
    """Writes the pages in a folder; returns what is to be said about it."""
    from npu_shim.options import pages

    found = pages.collected(folder)
    if not found:
        return "npu-shim: no graph with products reached the rewriter, so there is no report"
    write(path, found, heading)
    return "npu-shim: wrote %s, %d graph%s" % (path, len(found), "" if len(found) == 1 else "s")
