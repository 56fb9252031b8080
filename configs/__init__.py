"""The data of npu_shim: op tables, Ascend's op names, options, presets. Read with `load` and `folder`."""

import json
import os
from typing import Any


def folder(*parts: str) -> str:
    """Path of a file or folder of the shipped data, for example `folder("ascend910")`."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), *parts)


def load(*parts: str) -> Any:
    """Returns the shipped JSON file `parts` as Python values."""
    with open(folder(*parts), encoding="utf-8") as f:
        return json.load(f)
