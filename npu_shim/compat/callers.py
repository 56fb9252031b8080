"""Which line of the user's script is asking."""

import os
import sys

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def message(problem):
    """`problem` as an error's text: with our prefix, and the file and line of the innermost frame that is not ours."""
    frame = sys._getframe(1)
    while frame is not None and _ours(frame.f_code.co_filename):
        frame = frame.f_back
    where = "" if frame is None else " [%s, line %d]" % (frame.f_code.co_filename, frame.f_lineno)
    return "npu_shim: %s%s" % (problem, where)


def _ours(file):
    return file.startswith(("<frozen importlib", OURS)) or os.sep + "importlib" + os.sep in file
