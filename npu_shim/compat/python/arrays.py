"""Functions of NumPy as scripts call them, of versions 1.16 to 1.18, which later versions answer otherwise or refuse.

`aliases` decides when each is used.
"""

from __future__ import annotations

from typing import Any, Callable

from npu_shim.compat import callers

Wrapped = Callable[..., Any]
# what takes rows of different lengths as its first argument: the array of lists that they were until NumPy 1.23; no
# ufuncs, which have methods
OF_ROWS = (
    "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "ascontiguousarray", "asmatrix", "atleast_1d", "copy",
    "count_nonzero", "cumsum", "flip", "max", "mean", "min", "nonzero", "ones_like", "prod", "ravel", "sort", "squeeze",
    "std", "sum", "transpose", "var", "where", "zeros_like",
)  # fmt: skip


def takes_normed(histogram: Wrapped, say: Callable[[str], None]) -> Wrapped:
    """numpy.histogram, histogram2d or histogramdd with `normed`, as until NumPy 1.23: density, of equal bins."""
    import numpy as np

    def of_normed(*args: Any, normed: Any = None, **kwargs: Any) -> Any:
        if normed is None:
            return histogram(*args, **kwargs)
        say("numpy.%s(normed=), which NumPy 1.24 refuses, is density= here" % histogram.__name__)
        if kwargs.get("density") is not None or not normed:
            return histogram(*args, **kwargs)
        counts, edges, *others = histogram(*args, **kwargs)
        if others or not isinstance(edges, np.ndarray) or counts.ndim != 1:
            return histogram(*args, **{**kwargs, "density": True})
        return counts / (counts * np.diff(edges)).sum(), edges  # of bins of several widths, too, as then

    return of_normed


def takes_whole_counts(linspace: Wrapped, say: Callable[[str], None]) -> Wrapped:
    """numpy.linspace of a number of samples that is a float, as until NumPy 1.17."""

    def of_count(start: Any, stop: Any, num: Any = 50, *args: Any, **kwargs: Any) -> Any:
        if isinstance(num, float):
            say("numpy.linspace of %s samples, which NumPy 1.18 refuses, is of %d here" % (num, num))
            num = int(num)
        return linspace(start, stop, num, *args, **kwargs)

    return of_count


def takes_python_types(issubdtype: Wrapped, say: Callable[[str], None]) -> Wrapped:
    """numpy.issubdtype(dtype, float) of a script: any floating-point dtype, as until NumPy 1.19; likewise int, bool."""
    import numpy as np

    def of_types(arg1: Any, arg2: Any) -> Any:
        result = issubdtype(arg1, arg2)
        is_generic = isinstance(arg2, type) and issubclass(arg2, np.generic)
        if result or is_generic or isinstance(arg2, np.dtype) or not callers.by_script():
            return result
        above = [*np.dtype(arg2).type.mro()[1:2], np.generic][0]
        if issubdtype(arg1, above):
            text = "numpy.issubdtype(..., %r) is that of numpy.%s here, as until NumPy 1.19"
            say(text % (getattr(arg2, "__name__", arg2), above.__name__))
            return True
        return result

    return of_types


def mafromtxt(*args: Any, **kwargs: Any) -> Any:
    """numpy.genfromtxt with usemask=True."""
    import numpy as np

    return np.genfromtxt(*args, **{**kwargs, "usemask": True})


def ndfromtxt(*args: Any, **kwargs: Any) -> Any:
    """numpy.genfromtxt with usemask=False."""
    import numpy as np

    return np.genfromtxt(*args, **{**kwargs, "usemask": False})
