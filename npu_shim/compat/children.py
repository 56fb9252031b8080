"""Makes the Python programs that a script starts see the same `tensorflow`: through a shell, os.system or subprocess.

    npu-shim run train.py   ->   os.system("python evaluate.py --ckpt ...")

Python imports a module `sitecustomize` before any program. Ours stands first on PYTHONPATH while the script runs, as
ddtrace and OpenTelemetry reach what a program starts, and puts off all that costs time until TensorFlow is imported. A
Python of another environment, or one that ignores PYTHONPATH (`python -I`, `-E`, `-S`), is left alone. So are TOOLS.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import re
import sys
from typing import Any, Callable, Iterator, Sequence

from npu_shim.compat import spawn
from npu_shim.compat.callers import OURS
from npu_shim.compat.python import aliases
from npu_shim.rewriter.errors import ConfigError, nearest

VARIABLE = "NPU_SHIM_CHILDREN"  # what a child begins with, behind the Python that it is for; "off" reaches none
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "started")
# programs that want the TensorFlow that is installed, or do all of this themselves
TOOLS = re.compile(r"npu[-_]shim|tensorboard|pip[\d.]*|pytest")
# what the launcher prepares before a script runs, and a script may import before it imports TensorFlow
PREPARED = ("tensorflow", "tensorflow_core", "keras", "tf_keras", "tf_slim", "horovod")


@contextlib.contextmanager
def reached(before: Callable[[], None] | None, first: Callable[[], None] | None = None) -> Iterator[None]:
    """Scope in which every Python program that is started begins as this one did.

    Args:
        before: called in each of them once TensorFlow is as the script will see it; it can be pickled.
        first: called in each of them before anything else; it can be pickled.

    Raises:
        ConfigError: NPU_SHIM_CHILDREN is neither "on" nor "off".
    """
    switch = os.environ.get(VARIABLE, "on")
    if switch not in ("on", "off", "") and " " not in switch:
        raise ConfigError("%s is '%s', expected on or off%s" % (VARIABLE, switch, nearest(switch, ["on", "off"])))
    if switch == "off":
        yield
        return
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder not in ("", FOLDER)]
    begins = _this_python() + "%s %s" % (_text_of(first), _text_of(before))
    ours = {VARIABLE: begins, "PYTHONPATH": os.pathsep.join([FOLDER, *folders])}
    given = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in given.items():
            if os.environ.get(name) != ours[name]:  # the script's own
                continue
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _this_python() -> str:
    """The environment and the version of this interpreter, as sitecustomize.py compares them."""
    return "%s %d.%d " % (sys.prefix, *sys.version_info[:2])


def _text_of(function: Callable[[], None] | None) -> str:
    return base64.b64encode(pickle.dumps(function)).decode()


def _called(text: str) -> Callable[[], None] | None:
    """The function that `_text_of` made a text of."""
    function: Callable[[], None] | None = pickle.loads(base64.b64decode(text))
    return function


def begin() -> None:
    """Begins a process that a script started: removed names come back at once, the rest when they are imported."""
    if is_tool(program(_command())):
        return
    first, before = os.environ[VARIABLE].split()[-2:]
    at_once = _called(first)
    if at_once is not None:
        at_once()
    aliases.install()
    sys.meta_path.insert(0, _Waiting(before))


def forget() -> None:
    """Lets this process, if a script started it, begin otherwise: it runs a script with options of its own."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Waiting)]


def _command() -> list[str]:
    """The words of this process's command."""
    known: list[str] | None = getattr(sys, "orig_argv", None)  # from Python 3.10 on
    if known is not None:
        return known
    try:
        with open("/proc/self/cmdline", "rb") as f:
            return [os.fsdecode(word) for word in f.read().split(b"\0")[:-1]]
    except OSError:
        return []


def program(command: Sequence[str]) -> str:
    """Returns what a command of Python runs: a file, a module behind -m, the code behind -c; "" for a dialogue."""
    words = iter(command[1:])
    for word in words:
        if word == "--check-hash-based-pycs":
            next(words, None)
        elif not word.startswith("-") or word == "-":
            return word
        elif not word.startswith("--"):
            value = re.search("[cmWX](.*)", word[1:], re.DOTALL)
            text = (value.group(1) or next(words, "")) if value else ""
            if value and value.group()[0] in "cm":
                return text
    return ""


def is_tool(text: str) -> bool:
    """Whether a program, as `program` returns it, is no script of TensorFlow 1's time."""
    if os.path.abspath(text).startswith(OURS + os.sep):
        return True
    name = re.sub(r"\.(py|exe)$", "", os.path.basename(text)).split(".")[0]
    return TOOLS.fullmatch(name) is not None


class _Waiting(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Begins what the launcher begins before a script, once the program imports one of PREPARED.

    Args:
        text: as `_text_of` returns it.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """What is to be imported under a name once everything is prepared; None for any other name."""
        if fullname not in PREPARED or self not in sys.meta_path:
            return None
        from npu_shim.compat.keras import one_keras

        forget()
        spawn.start(_called(self._text))
        one_keras.make_room()
        if fullname not in sys.modules:
            return importlib.util.find_spec(fullname)
        module = sys.modules[fullname]
        own = module.__spec__  # by which the import system would load it again
        spec = module.__spec__ = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        spec.loader_state = module, own
        return spec

    def exec_module(self, module: Any) -> None:
        """Puts what is loaded where the import system looks for the module after this call."""
        loaded, own = module.__spec__.loader_state
        loaded.__spec__ = own
        sys.modules[own.name] = loaded
