"""Writes pages of plans into one HTML file: styles, code, the plotting library and the data, all inside."""

from __future__ import annotations

import base64
import gzip
import html
import json
import pkgutil
import re
from typing import Any, Mapping, Sequence

from ..errors import ConfigError

NEEDS = "a report needs the package plotly, from which it takes the treemap"


def render(pages: Sequence[Mapping[str, Any]], heading: str) -> str:
    """Returns the HTML of pages, see `model.of`.

    Args:
        pages: at least one.
        heading: of the file: a script's or graph's name.

    Raises:
        ConfigError: plotly is not installed.
    """
    parts = {
        "@HEADING@": html.escape(heading),
        "@STYLE@": _own("page.css"),
        "@CODE@": _own("page.js"),
        "@PLOTTING@": _packed(plotting().encode("utf-8")),
        "@DATA@": _packed(json.dumps(list(pages), separators=(",", ":")).encode("utf-8")),
    }
    return re.sub("@[A-Z]+@", lambda place: parts[place.group()], _own("page.html"))


def plotting() -> str:
    """Returns the JavaScript of plotly. Raises ConfigError where it is not installed."""
    try:
        script = pkgutil.get_data("plotly", "package_data/plotly.min.js")
    except ImportError as reason:
        raise ConfigError("%s (%s)" % (NEEDS, reason)) from reason
    if script is None:
        raise ConfigError(NEEDS)
    return script.decode("utf-8")


def _own(name: str) -> str:
    script = pkgutil.get_data(__package__, name)
    assert script is not None
    return script.decode("utf-8")


def _packed(data: bytes) -> str:
    """Compressed and in base64: the browser unpacks it. Without a time in it, the same data give the same text."""
    packer = gzip.compress(data, 9)
    return base64.b64encode(packer[:4] + bytes(4) + packer[8:]).decode("ascii")
