"""Names that NumPy, SciPy and Python have removed since TensorFlow 1: under `npu-shim run` they mean what they meant.

A name answers only where it is missing, and says so once, with the script's line. `NPU_SHIM_ALIASES=off` leaves all of
them away. To add one is to add a row: module, name, what it means, and the version that removed it.
"""

import collections
import functools
import importlib
import inspect
import logging
import os
import sys

from npu_shim.rewriter.errors import ConfigError, nearest

from . import callers, missing

LOG = logging.getLogger("npu_shim")
SWITCH = "NPU_SHIM_ALIASES"

_ABC = [
    *("Callable", "Container", "Generator", "Hashable", "ItemsView", "Iterable", "Iterator", "KeysView", "Mapping"),
    *("MappingView", "MutableMapping", "MutableSequence", "MutableSet", "Sequence", "Set", "Sized", "ValuesView"),
]
# module -> name -> (what it means, as a dotted name; the version that removed it)
NAMES = {
    "numpy": {
        **{name: ("builtins." + name, "NumPy 1.24") for name in ("float", "int", "bool", "object", "str", "complex")},
        "long": ("builtins.int", "NumPy 1.24"),
        "unicode": ("builtins.str", "NumPy 1.24"),
        "asscalar": (__name__ + ".asscalar", "NumPy 1.23"),
        **dict.fromkeys(("NaN", "NAN"), ("numpy.nan", "NumPy 2.0")),
        **dict.fromkeys(("Inf", "Infinity", "PINF", "infty"), ("numpy.inf", "NumPy 2.0")),
        "NINF": (__name__ + ".NINF", "NumPy 2.0"),
        "float_": ("numpy.float64", "NumPy 2.0"),
        "complex_": ("numpy.complex128", "NumPy 2.0"),
        "cfloat": ("numpy.complex128", "NumPy 2.0"),
        "string_": ("numpy.bytes_", "NumPy 2.0"),
        "unicode_": ("numpy.str_", "NumPy 2.0"),
        "bool8": ("numpy.bool_", "NumPy 2.0"),
        "int0": ("numpy.intp", "NumPy 2.0"),
        "product": ("numpy.prod", "NumPy 2.0"),
        "cumproduct": ("numpy.cumprod", "NumPy 2.0"),
        "sometrue": ("numpy.any", "NumPy 2.0"),
        "alltrue": ("numpy.all", "NumPy 2.0"),
        "round_": ("numpy.round", "NumPy 2.0"),
        "mat": ("numpy.asmatrix", "NumPy 2.0"),
        "asfarray": (__name__ + ".asfarray", "NumPy 2.0"),
        "msort": (__name__ + ".msort", "NumPy 2.0"),
        "math": ("math", "NumPy 2.0"),
        "in1d": ("numpy.isin", "NumPy 2.4"),
        "trapz": ("numpy.trapezoid", "NumPy 2.4"),
        "row_stack": ("numpy.vstack", "NumPy 2.5"),
    },
    "numpy.lib": {"pad": ("numpy.pad", "NumPy 2.0")},
    "collections": {name: ("collections.abc." + name, "Python 3.10") for name in _ABC},
    "inspect": {"getargspec": (__name__ + ".getargspec", "Python 3.11")},
    "time": {"clock": ("time.process_time", "Python 3.8")},
    "fractions": {"gcd": ("math.gcd", "Python 3.9")},
    "base64": {
        "encodestring": ("base64.encodebytes", "Python 3.9"),
        "decodestring": ("base64.decodebytes", "Python 3.9"),
    },
    "os": {"errno": ("errno", "Python 3.7")},
    "configparser": {"SafeConfigParser": ("configparser.ConfigParser", "Python 3.12")},
}
# modules that are gone altogether
MODULES = {
    "imp": (__package__ + ".imp", "Python 3.12"),
    "scipy.sparse.linalg.eigen.arpack": ("scipy.sparse.linalg", "SciPy 1.8"),
}
# modules that were packages: below them nothing is looked for, unless they have a path
PACKAGES = ("scipy.sparse.linalg.eigen",)


def install():
    """Makes the removed names answer, in this process, from now on; a second call does nothing.

    Raises:
        ConfigError: NPU_SHIM_ALIASES is neither "on" nor "off".
    """
    switch = os.environ.get(SWITCH, "on")
    if switch not in ("on", "off", ""):
        raise ConfigError("%s is '%s', expected on or off%s" % (SWITCH, switch, nearest(switch, ["on", "off"])))
    if switch == "off" or installed():
        return
    sys.meta_path.append(missing.Finder({name: target for name, (target, _) in MODULES.items()}, _say))
    missing.when_loaded(dict.fromkeys(PACKAGES, _give_path))
    for name, rows in NAMES.items():
        missing.answer(importlib.import_module(name), {name: target for name, (target, _) in rows.items()}, _say)


def installed():
    """Whether the names answer in this process."""
    return any(getattr(finder, "used", None) is _say for finder in sys.meta_path)


def _give_path(module):
    module.__dict__.setdefault("__path__", [])


@functools.lru_cache(maxsize=None)
def _say(name):
    if os.environ.get("NPU_SHIM_LOG") != "off":
        module, _, last = name.rpartition(".")
        target, version = MODULES.get(name) or NAMES[module][last]
        target = target.replace("builtins.", "").replace(__package__ + ".", "npu_shim's ")
        LOG.warning("%s", callers.message("%s, which %s removed, is %s here" % (name, version, target)))


ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")
NINF = float("-inf")


def getargspec(func):
    """Returns the ArgSpec of a function, as Python's own did; what only newer functions have is left out."""
    full = inspect.getfullargspec(func)
    return ArgSpec(full.args, full.varargs, full.varkw, full.defaults)


def asscalar(a):
    """Returns the one element of an array as a Python scalar; ValueError when it has another number of elements."""
    return a.item()


def asfarray(a, dtype="float64"):
    """Returns an array of a floating-point dtype; any other dtype becomes float64."""
    import numpy as np

    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else "float64")


def msort(a):
    """Returns an array sorted along its first axis."""
    import numpy as np

    return np.sort(a, axis=0)
