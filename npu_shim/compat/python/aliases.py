"""Restores names that Python and its libraries have removed since TensorFlow 1's days, with their old meaning.

A name is restored only under `npu-shim run` and if it is missing; one log line names the script's line that uses it.
`NPU_SHIM_ALIASES=off` disables all of them. A row adds a name: module, name, its meaning, and the version that removed
it. Nothing imports a library that the script does not import: its rows take effect when the script does.
"""

from __future__ import annotations

import collections
import functools
import inspect
import logging
import os
import sys
from typing import Any, Callable, Mapping

from npu_shim.compat import callers
from npu_shim.compat.names import missing
from npu_shim.compat.python import (
    arrays,
    hdf5,
    libraries,
    libraries_then,
    old_protos,
    parameters,
    plot_functions,
    python_functions,
    then,
)
from npu_shim.rewriter.errors import ConfigError, nearest

LOG = logging.getLogger("npu_shim")
SWITCH = "NPU_SHIM_ALIASES"

_PYTHON = python_functions.__name__ + "."
_LIBRARIES, _IMAGES, _ARRAYS = libraries.__name__ + ".", __package__ + ".scipy_images.", arrays.__name__ + "."
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
        "alen": (__name__ + ".alen", "NumPy 1.23"),
        "loads": ("pickle.loads", "NumPy 1.23"),
        "rank": ("numpy.ndim", "NumPy 1.18"),
        "mafromtxt": (_ARRAYS + "mafromtxt", "NumPy 1.23"),
        "ndfromtxt": (_ARRAYS + "ndfromtxt", "NumPy 1.23"),
        "typeDict": ("numpy.sctypeDict", "NumPy 1.25"),
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
        "cast": (_LIBRARIES + "cast", "NumPy 2.0"),
        "in1d": ("numpy.isin", "NumPy 2.4"),
        "trapz": ("numpy.trapezoid", "NumPy 2.4"),
        "row_stack": ("numpy.vstack", "NumPy 2.5"),
    },
    "numpy.ma": {"rank": ("numpy.ndim", "NumPy 1.18"), "dumps": ("pickle.dumps", "NumPy 1.18")},
    "numpy.testing": {"rand": ("numpy.random.rand", "NumPy 1.20")},
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
    "cgi": {"escape": (_PYTHON + "escape", "Python 3.8")},
    "configparser": {"SafeConfigParser": ("configparser.ConfigParser", "Python 3.12")},
    "PIL.Image": {
        "ANTIALIAS": ("PIL.Image.LANCZOS", "Pillow 10"),
        "LINEAR": ("PIL.Image.BILINEAR", "Pillow 10"),
        "CUBIC": ("PIL.Image.BICUBIC", "Pillow 10"),
    },
    "scipy.misc": {
        **{name: (_IMAGES + name, "SciPy 1.2") for name in ("imread", "imsave", "imresize", "imrotate")},
        "imfilter": (_IMAGES + "imfilter", "SciPy 1.2"),
        **{name: (_IMAGES + name, "SciPy 1.2") for name in ("toimage", "fromimage", "bytescale")},
        **{name: ("scipy.special." + name, "SciPy 1.0") for name in ("comb", "factorial", "logsumexp")},
    },
    "scipy.optimize.optimize": {"_status_message": ("scipy.optimize._optimize._status_message", "SciPy 1.8")},
    "scipy.ndimage": {"imread": (_IMAGES + "imread", "SciPy 1.2")},
    "matplotlib.cm": {"get_cmap": ("matplotlib.pyplot.get_cmap", "Matplotlib 3.9")},
    "networkx": {
        "from_numpy_matrix": ("networkx.from_numpy_array", "NetworkX 3.0"),
        "to_numpy_matrix": (_LIBRARIES + "to_numpy_matrix", "NetworkX 3.0"),
    },
    "skimage.color": {
        "rgb2grey": ("skimage.color.rgb2gray", "scikit-image 0.19"),
        "grey2rgb": ("skimage.color.gray2rgb", "scikit-image 0.19"),
    },
    "skimage.measure": {
        "compare_ssim": ("skimage.metrics.structural_similarity", "scikit-image 0.18"),
        "compare_psnr": ("skimage.metrics.peak_signal_noise_ratio", "scikit-image 0.18"),
        "compare_mse": ("skimage.metrics.mean_squared_error", "scikit-image 0.18"),
    },
    "librosa": {"output": (_LIBRARIES + "output", "librosa 0.8")},
    "librosa.display": {"waveplot": ("librosa.display.waveshow", "librosa 0.10")},
}
# methods that are gone: module -> Class.method -> (the function of the object that it means, the version)
METHODS = {
    "PIL.ImageFont": {"FreeTypeFont.getsize": (_LIBRARIES + "font_size", "Pillow 10")},
    "matplotlib.backends.backend_agg": {
        "FigureCanvasAgg.tostring_rgb": (_LIBRARIES + "rgb_bytes", "Matplotlib 3.10"),
    },
    "pandas.core.frame": {
        "DataFrame.as_matrix": (_LIBRARIES + "as_matrix", "pandas 1.0"),
        "DataFrame.append": (_LIBRARIES + "with_rows", "pandas 2.0"),
        "DataFrame.iteritems": ("pandas.DataFrame.items", "pandas 2.0"),
    },
    "threading": {"Thread.isAlive": ("threading.Thread.is_alive", "Python 3.9")},
    "html.parser": {"HTMLParser.unescape": (_PYTHON + "unescape", "Python 3.9")},
    "xml.etree.ElementTree": {"ElementTree.getiterator": ("xml.etree.ElementTree.ElementTree.iter", "Python 3.9")},
    "matplotlib.backend_bases": {
        "FigureCanvasBase.set_window_title": (plot_functions.__name__ + ".set_window_title", "Matplotlib 3.6"),
    },
    "pandas.core.series": {"Series.append": (_LIBRARIES + "with_rows", "pandas 2.0")},
}
# attributes that are gone: module -> Class.attribute -> (the attribute of the object, or the function of it, that it
# means; the version)
ATTRIBUTES = {
    "networkx.classes.graph": {"Graph.node": ("nodes", "NetworkX 2.4")},
    "h5py._hl.dataset": {"Dataset.value": (hdf5.__name__ + ".whole", "h5py 3.0")},
    "h5py._hl.files": {"File.fid": ("id", "h5py 3.0")},
}
# functions whose arguments have changed: module -> name -> a wrapper that accepts both forms
FUNCTIONS: dict[str, dict[str, Callable[..., Any]]] = {
    "json": dict.fromkeys(("load", "loads"), parameters.leaves_out({"encoding": parameters.ANY})),
    "random": {
        **dict.fromkeys(("sample", "Random.sample"), python_functions.takes_sets),
        **dict.fromkeys(("shuffle", "Random.shuffle"), python_functions.takes_randoms),
    },
    "matplotlib.figure": {"FigureBase.gca": plot_functions.takes_projection},
    "matplotlib.pyplot": {"gca": plot_functions.takes_projection, "grid": parameters.takes_names({"b": "visible"})},
    "matplotlib.axes._base": {"_AxesBase.grid": parameters.takes_names({"b": "visible"})},
    "matplotlib.style": {"use": plot_functions.takes_styles},
    "yaml": dict.fromkeys(("load", "load_all"), libraries.takes_a_loader),
    "absl.flags._argument_parser": {"EnumParser.__init__": libraries.takes_enum_words},
    "skimage.color": {"label2rgb": libraries.takes_any_kind},
    "skimage.transform": dict.fromkeys(("resize", "rescale", "rotate", "warp"), libraries.takes_truths),
    "skimage.metrics": {"structural_similarity": libraries.takes_multichannel},
    "networkx": {"adjacency_matrix": libraries.gives_matrices},
    "librosa.filters": {"mel": libraries.takes_positions("sr", "n_fft", "n_mels", "fmin", "fmax", "htk", "norm")},
    "librosa.core.spectrum": {
        "stft": libraries.takes_positions("n_fft", "hop_length", "win_length", "window", "center", "dtype", "pad_mode"),
        "istft": libraries.takes_positions("hop_length", "win_length", "window", "center", "dtype", "length"),
    },
    "h5py._hl.files": {"File.__init__": hdf5.appends},
    "h5py._hl.attrs": {"AttributeManager.__getitem__": hdf5.decodes_attributes},
    "h5py._hl.base": {"array_for_new_object": hdf5.keeps_lengths},
    "h5py._hl.dataset": {
        "Dataset.__getitem__": hdf5.decodes_datasets,
        "array_for_new_object": hdf5.keeps_lengths,  # imported by name
    },
    "numpy.random": {"permutation": libraries.measures_ragged},
    "numpy.lib.npyio": {"NpzFile.__getitem__": libraries.explains_pickles_inside},
    "numpy.lib._npyio_impl": {"NpzFile.__getitem__": libraries.explains_pickles_inside},
    "numpy": {
        "fromstring": libraries.takes_bytes,
        "load": libraries.explains_pickles,
        "loadtxt": libraries.takes_long_delimiters,
        **dict.fromkeys(("array", "asarray", "asanyarray"), libraries.takes_ragged),
        **dict.fromkeys(("ndim", "shape", "size", *arrays.OF_ROWS), libraries.measures_ragged),
        **dict.fromkeys(("histogram", "histogram2d", "histogramdd"), arrays.takes_normed),
        "linspace": arrays.takes_whole_counts,
        "issubdtype": arrays.takes_python_types,
        **dict.fromkeys(("stack", "vstack", "hstack", "dstack", "column_stack"), libraries.takes_iterators),
    },
}
# modules that are gone altogether; "!" and a sentence if there is no substitute
MODULES = {
    "imp": (__package__ + ".imp", "Python 3.12"),
    "distutils": ("setuptools._distutils", "Python 3.12"),
    "pkg_resources": ("!setuptools 82 removed it; pip install 'setuptools<82'", ""),
    **dict.fromkeys(
        ("scipy.sparse.linalg.eigen", "scipy.sparse.linalg.eigen.arpack"), ("scipy.sparse.linalg", "SciPy 1.8")
    ),
    "scipy._lib.six": (__package__ + ".scipy_six", "SciPy 1.5"),
    "sklearn.externals.joblib": ("joblib", "scikit-learn 0.23"),
    **{
        "sklearn." + name: ("sklearn.model_selection", "scikit-learn 0.20")
        for name in ("cross_validation", "grid_search", "learning_curve")
    },
    "sklearn.ensemble.forest": ("sklearn.ensemble._forest", "scikit-learn 0.24"),
    "sklearn.datasets.samples_generator": ("sklearn.datasets", "scikit-learn 0.24"),
}


def _add(rows: dict[str, dict[str, Any]], more: Mapping[str, Mapping[str, Any]]) -> None:
    for module, row in more.items():
        rows.setdefault(module, {}).update(row)


_add(NAMES, libraries_then.NAMES)
_add(METHODS, libraries_then.METHODS)
_add(ATTRIBUTES, libraries_then.ATTRIBUTES)
_add(FUNCTIONS, libraries_then.FUNCTIONS)
MODULES.update(libraries_then.MODULES)


def install() -> None:
    """Restores the removed names in this process from now on; a second call does nothing.

    Raises:
        ConfigError: NPU_SHIM_ALIASES is neither "on" nor "off".
    """
    switch = os.environ.get(SWITCH, "on")
    if switch not in ("on", "off", ""):
        raise ConfigError("%s is '%s', expected on or off%s" % (SWITCH, switch, nearest(switch, ["on", "off"])))
    if switch == "off" or installed():
        return
    sys.meta_path.append(missing.Finder({name: target for name, (target, _) in MODULES.items()}, _report_use))
    sys.meta_path.append(missing.Finder({k: text for k, text in then.lost_modules().items() if k not in MODULES}))
    old_protos.install(_log)
    patched = {*NAMES, *METHODS, *ATTRIBUTES, *FUNCTIONS, *_packages(), *then.patched(), *libraries_then.LOADED}
    missing.when_loaded(dict.fromkeys(patched, _patch_module))


def installed() -> bool:
    """Whether the names are restored in this process."""
    return any(getattr(finder, "used", None) is _report_use for finder in sys.meta_path)


def _packages() -> set[str]:
    """Modules that were packages: Python looks for lost modules below them only if they are packages."""
    return {name.rpartition(".")[0] for name in MODULES if name.count(".")}


def _patch_module(module: Any) -> None:
    name = module.__name__
    if name in _packages() and not hasattr(module, "__path__"):
        module.__path__ = []
    for path, takes_both in FUNCTIONS.get(name, {}).items():
        holder, _, last = path.rpartition(".")
        owner = getattr(module, holder, None) if holder else module
        if hasattr(owner, last):
            function = getattr(owner, last)
            wrapped = parameters.wrapped(takes_both, function, _log)
            setattr(owner, last, wrapped if wrapped is function else parameters.placed(wrapped, name, path))
    then.wrap(module, _log)
    if name in NAMES:
        missing.answer(module, {last: target for last, (target, _) in NAMES[name].items()}, _report_use)
    for path, (target, version) in METHODS.get(name, {}).items():
        holder, _, last = path.partition(".")
        owner = getattr(module, holder, None)
        if owner is not None and not hasattr(owner, last):
            setattr(owner, last, _method(path, target, version))
    for path, (target, version) in ATTRIBUTES.get(name, {}).items():
        holder, _, last = path.partition(".")
        owner = getattr(module, holder, None)
        if owner is not None and not hasattr(owner, last):
            setattr(owner, last, property(_attribute(path, target, version)))
    then.tell(module)
    if name in libraries_then.LOADED:
        libraries_then.LOADED[name](module, _log)


def _method(path: str, target: str, version: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _log("%s, which %s removed, is %s here" % (path, version, _readable_target(target)))
        return missing.load(target)(self, *args, **kwargs)

    return method


def _attribute(path: str, target: str, version: str) -> Callable[[Any], Any]:
    def attribute(self: Any) -> Any:
        _log("%s, which %s removed, is %s here" % (path, version, _readable_target(target)))
        return missing.load(target)(self) if "." in target else getattr(self, target)

    return attribute


def _report_use(name: str) -> None:
    module, _, last = name.rpartition(".")
    target, version = MODULES.get(name) or NAMES[module][last]
    _log("%s, which %s removed, is %s here" % (name, version, _readable_target(target)))


def _readable_target(target: str) -> str:
    return target.replace("builtins.", "").replace(__package__ + ".", "npu_shim's ")


@functools.lru_cache(maxsize=None)
def _log(text: str) -> None:
    if os.environ.get("NPU_SHIM_LOG") != "off":
        LOG.warning("%s", callers.message(text))


ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")
NINF = float("-inf")


def getargspec(func: Callable[..., Any]) -> ArgSpec:
    """Returns the ArgSpec of a function, as Python's own did, without what only newer functions have."""
    full = inspect.getfullargspec(func)
    return ArgSpec(full.args, full.varargs, full.varkw, full.defaults)


def asscalar(a: Any) -> Any:
    """Returns the one element of an array as a Python scalar; ValueError when it has another number of elements."""
    return a.item()


def alen(a: Any) -> int:
    """Returns the length of the first axis of an array or of a sequence; that of a scalar is 1."""
    import numpy as np

    return len(np.array(a, ndmin=1)) if np.ndim(a) == 0 else len(a)


def asfarray(a: Any, dtype: Any = "float64") -> Any:
    """Returns an array of a floating-point dtype; any other dtype becomes float64."""
    import numpy as np

    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else "float64")


def msort(a: Any) -> Any:
    """Returns an array sorted along its first axis."""
    import numpy as np

    return np.sort(a, axis=0)
