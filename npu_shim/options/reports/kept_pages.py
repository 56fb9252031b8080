"""The pages of graphs that processes keep in a folder, as `pages` writes them, read again. No TensorFlow."""

from __future__ import annotations

import gzip
import json
import os
from typing import Any

SWITCH = "NPU_SHIM_REPORT"
SUFFIX = ".json.gz"


def collected(folder: str) -> list[dict[str, Any]]:
    """Returns the pages that were written into a folder, in the order of time, equal ones once."""
    files = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(SUFFIX)]
    pages_by_content: dict[str, dict[str, Any]] = {}
    for path in sorted(files, key=lambda path: (os.stat(path).st_mtime_ns, path)):
        with gzip.open(path, "rt", encoding="utf-8") as f:
            page = json.load(f)
        pages_by_content.setdefault(json.dumps([page["mode"], page["nodes"], page["slots"]]), page)
    return _with_own_titles(list(pages_by_content.values()))


def _with_own_titles(pages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Numbers the pages whose titles are equal, as those of other shapes are."""
    seen: dict[str, int] = {}
    for page in pages:
        title = page["title"]
        seen[title] = seen.get(title, 0) + 1
        if seen[title] > 1:
            page["title"] = "%s (%d)" % (title, seen[title])
    return pages
