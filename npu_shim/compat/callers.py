"""Finds the line of the user's script that is running."""

from __future__ import annotations

import dis
import os
import sys
import types

INSTALLED = frozenset(["site-packages", "dist-packages"])  # names of folders that packages are installed in
_PYTHON = (os.path.dirname(os.__file__) + os.sep, "<frozen ")
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def message(problem: str) -> str:
    """Returns an error's text: `problem` with our prefix, and file and line of the innermost frame outside npu_shim.

    A library's `__getattr__` is none: it stands between us and who asks for an attribute.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and (_ours(frame.f_code.co_filename) or frame.f_code.co_name == "__getattr__"):
        frame = frame.f_back
    where = "" if frame is None else " [%s, line %d]" % (frame.f_code.co_filename, frame.f_lineno)
    return "npu_shim: %s%s" % (problem, where)


def is_script(frame: types.FrameType) -> bool:
    """Whether a frame is of the user's own code: of no installed package, not Python's, not ours."""
    file = frame.f_code.co_filename
    return not (_ours(file) or file.startswith(_PYTHON) or INSTALLED.intersection(file.split(os.sep)))


def by_script() -> bool:
    """Whether the user's own code called or imported what runs now: its frame is the first that is not ours."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and _ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and is_script(frame)


def imports_by_call() -> bool:
    """Whether a call of `__import__` tries what runs now for its `fromlist`; Python goes on where that is no module."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_handle_fromlist":
        frame = frame.f_back
    script = None if frame is None else frame.f_back
    return script is not None and dis.opname[script.f_code.co_code[script.f_lasti]] != "IMPORT_NAME"


def imports_a_name() -> bool:
    """Whether what runs now is asked for by `from module import name`, which hides the text of an AttributeError."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and _ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


def _ours(file: str) -> bool:
    return file.startswith(("<frozen importlib", OURS)) or os.sep + "importlib" + os.sep in file
