"""Functions that SciPy had until 1.0 to 1.17, with their old meaning, and its copies of NumPy's names."""

from __future__ import annotations

import collections
import inspect
from typing import Any, Callable

# what scipy had of NumPy's until 1.12, by its own meaning: of negative numbers they are complex
_COMPLEX = ("sqrt", "log", "log2", "logn", "log10", "power", "arccos", "arcsin", "arctanh")
_OF_NUMPY = [
    "absolute",
    "add",
    "all",
    "allclose",
    "amax",
    "amin",
    "angle",
    "any",
    "append",
    "arange",
    "arccosh",
    "arcsinh",
    "arctan",
    "arctan2",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "around",
    "array",
    "array_equal",
    "asarray",
    "asmatrix",
    "atleast_1d",
    "atleast_2d",
    "average",
    "bincount",
    "broadcast_arrays",
    "c_",
    "ceil",
    "clip",
    "column_stack",
    "complex128",
    "complex64",
    "concatenate",
    "conj",
    "conjugate",
    "convolve",
    "copy",
    "corrcoef",
    "cos",
    "cosh",
    "cov",
    "cross",
    "cumprod",
    "cumsum",
    "deg2rad",
    "delete",
    "diag",
    "diff",
    "digitize",
    "divide",
    "dot",
    "dstack",
    "e",
    "ediff1d",
    "empty",
    "empty_like",
    "equal",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "eye",
    "finfo",
    "fix",
    "flatnonzero",
    "fliplr",
    "flipud",
    "float16",
    "float32",
    "float64",
    "floor",
    "fmod",
    "full",
    "gradient",
    "greater",
    "hanning",
    "hamming",
    "histogram",
    "hstack",
    "hypot",
    "identity",
    "imag",
    "indices",
    "inf",
    "inner",
    "insert",
    "int16",
    "int32",
    "int64",
    "int8",
    "interp",
    "intersect1d",
    "invert",
    "isfinite",
    "isinf",
    "isnan",
    "isreal",
    "issubdtype",
    "kron",
    "less",
    "linspace",
    "load",
    "loadtxt",
    "log1p",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logspace",
    "matmul",
    "matrix",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "minimum",
    "mod",
    "multiply",
    "nan",
    "nan_to_num",
    "nanmax",
    "nanmean",
    "nanmin",
    "nansum",
    "ndarray",
    "ndim",
    "negative",
    "nonzero",
    "ones",
    "ones_like",
    "outer",
    "pad",
    "percentile",
    "pi",
    "poly1d",
    "polyfit",
    "polyval",
    "prod",
    "ptp",
    "r_",
    "rad2deg",
    "random",
    "ravel",
    "real",
    "repeat",
    "reshape",
    "resize",
    "roll",
    "rollaxis",
    "roots",
    "rot90",
    "save",
    "savetxt",
    "searchsorted",
    "select",
    "setdiff1d",
    "shape",
    "sign",
    "sin",
    "sinc",
    "sinh",
    "size",
    "sort",
    "split",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "trace",
    "transpose",
    "tri",
    "tril",
    "triu",
    "true_divide",
    "uint8",
    "unique",
    "unravel_index",
    "unwrap",
    "vander",
    "var",
    "vdot",
    "vectorize",
    "vsplit",
    "vstack",
    "where",
    "zeros",
    "zeros_like",
]
OF_NUMPY = {
    **{name: "numpy." + name for name in _OF_NUMPY},
    **{name: "numpy.lib.scimath." + name for name in _COMPLEX},
    **{name: "numpy.random." + name for name in ("rand", "randn")},
    "product": "numpy.prod",
    "round_": "numpy.round",
    "ifft": "numpy.fft.ifft",
}
WINDOWS = (
    *("barthann", "bartlett", "blackman", "blackmanharris", "bohman", "boxcar", "chebwin", "cosine", "exponential"),
    *("flattop", "gaussian", "general_gaussian", "hamming", "hann", "kaiser", "nuttall", "parzen", "triang", "tukey"),
)


def simps(y: Any, x: Any = None, dx: float = 1, axis: int = -1, even: str = "avg") -> Any:
    """Simpson's rule along an axis; `even`: what an even number of samples is: avg, first or last.

    Raises:
        ValueError: even is none of these.
    """
    import numpy as np
    from scipy import integrate

    if even not in ("avg", "first", "last"):
        raise ValueError("Parameter 'even' must be 'avg', 'last', or 'first'.")
    y = np.moveaxis(np.asarray(y), axis, -1)
    points = dx * np.arange(y.shape[-1]) if x is None else np.asarray(x)
    points = points if points.ndim == 1 else np.moveaxis(points, axis, -1)
    if y.shape[-1] % 2:
        return integrate.simpson(y, x=points)
    ends = {"first": (slice(-1), slice(-2, None)), "last": (slice(1, None), slice(2))}
    values = [
        integrate.simpson(y[..., most], x=points[..., most]) + integrate.trapezoid(y[..., rest], points[..., rest])
        for most, rest in (ends.values() if even == "avg" else [ends[even]])
    ]
    return sum(values) / len(values)


def dense(matrix: Any) -> Any:
    """The array of a sparse matrix, as its attribute A."""
    return matrix.toarray()


def adjoint(matrix: Any) -> Any:
    """The conjugate transpose of a sparse matrix, as its attribute H."""
    return matrix.conj().T


def keeps_an_axis(mode: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """scipy.stats.mode, whose results had as many dimensions as the array until SciPy 1.11: `mode(a)[0][0]`."""
    if "keepdims" not in inspect.signature(mode).parameters:
        return mode

    def with_axis(*args: Any, **kwargs: Any) -> Any:
        if "keepdims" not in kwargs:
            say("scipy.stats.mode keeps the axis here, as until SciPy 1.11")
        return mode(*args, **{"keepdims": True, **kwargs})

    return with_axis


MannwhitneyuResult = collections.namedtuple("MannwhitneyuResult", "statistic pvalue")


def sorts_by_column(find: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """scipy.sparse.find, which gave rows, columns and values column by column until SciPy 1.12."""
    import numpy as np

    def by_column(A: Any) -> Any:
        rows, columns, values = find(A)
        order = np.lexsort((rows, columns))
        return rows[order], columns[order], values[order]

    return by_column


def is_one_sided(mannwhitneyu: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """scipy.stats.mannwhitneyu without an alternative: the smaller U and half of the p of both sides, as until 1.6."""
    takes = inspect.signature(mannwhitneyu).parameters
    if "method" not in takes:
        return mannwhitneyu

    def of_half(x: Any, y: Any, use_continuity: bool = True, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return mannwhitneyu(x, y, use_continuity, *args, **kwargs)
        say("scipy.stats.mannwhitneyu without an alternative, which is two-sided since SciPy 1.7, is one-sided here")
        both = mannwhitneyu(x, y, use_continuity, "two-sided", method="asymptotic")
        return MannwhitneyuResult(min(both.statistic, len(x) * len(y) - both.statistic), both.pvalue / 2)

    return of_half


def copies_kernels(convert: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """convert_kernel of Keras 2.2.4, whose list of slices as an index NumPy 1.23 refuses: a tuple of them."""
    import numpy as np

    def convert_kernel(kernel: Any) -> Any:
        try:
            return convert(kernel)
        except IndexError:
            kernel = np.asarray(kernel)
            return np.flip(kernel, range(kernel.ndim - 2)).copy()

    return convert_kernel
