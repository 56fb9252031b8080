"""Arithmetic, comparison and functions, element by element, with TensorFlow's broadcasting."""

from __future__ import annotations

import functools
import operator
from typing import Any, Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.containers import lists
from npu_shim.step.platforms import summed_widely
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import is_known, xp

# what jax.numpy computes by these names, of arrays of one dtype: to trace it costs a fifth there
DIRECT = {
    "abs": lax.abs, "add": lax.add, "exp": lax.exp, "equal": lax.eq, "greater": lax.gt, "greater_equal": lax.ge,
    "less": lax.lt, "less_equal": lax.le, "log": lax.log, "maximum": lax.max, "minimum": lax.min, "multiply": lax.mul,
    "negative": lax.neg, "not_equal": lax.ne, "sqrt": lax.sqrt, "square": lax.square, "subtract": lax.sub,
    "tanh": lax.tanh, "true_divide": lax.div,
}  # fmt: skip
FEW = 8  # tensors whose sum is rounded at each of them


def _same(name: str) -> Rule:
    """What numpy and jax.numpy compute by this name."""
    primitive = DIRECT.get(name)

    def computed(attrs: Attrs, *values: Any) -> Any:
        if is_known(*values):
            return getattr(np, name)(*values)
        if primitive is None or not _is_direct(name, values):
            return getattr(jnp, name)(*values)
        return primitive(*_of_one_rank(values))

    return Rule(computed, rows="each")


def _is_direct(name: str, values: Sequence[Any]) -> bool:
    """Whether lax computes of these what jax.numpy does: of one dtype, which is not bool; quotients are no integers."""
    dtype = values[0].dtype
    if dtype == np.bool_ or (name == "true_divide" and _is_whole(values[0])):
        return False
    return all(value.dtype == dtype for value in values)


def _direct(name: str, otherwise: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """What jax.numpy computes by this name, of two tensors; `otherwise` is how numpy writes it."""
    primitive: Any = DIRECT[name]

    def computed(x: Any, y: Any) -> Any:
        is_alike = x.shape == y.shape and x.dtype == y.dtype and not is_known(x) and not is_known(y)
        return primitive(x, y) if is_alike else otherwise(x, y)

    return computed


_add, _multiply = _direct("add", operator.add), _direct("multiply", operator.mul)


def _of_one_rank(values: Sequence[Any]) -> Sequence[Any]:
    """The values with dimensions of 1 in front; lax broadcasts those, and scalars as they are."""
    ranks = {value.ndim for value in values} - {0}
    if len(ranks) < 2:
        return values
    rank = max(ranks)
    return [value if value.ndim in (0, rank) else _widened(value, rank) for value in values]


def _widened(value: Any, rank: int) -> Any:
    shape = (1,) * (rank - value.ndim) + value.shape
    return value.reshape(shape) if is_known(value) else lax.reshape(value, shape)


def _traced(function: Callable[..., Any]) -> Rule:
    """A function of arrays, for which jax.numpy is needed."""
    return Rule(lambda attrs, *values: function(*values), rows="each")


def _is_whole(x: Any) -> bool:
    return np.issubdtype(x.dtype, np.integer)


def _zero(x: Any) -> Any:
    return np.zeros((), x.dtype)


def _one(x: Any) -> Any:
    return np.ones((), x.dtype)


# -- division ----------------------------------------------------------------------------------------------------------


def truncated(x: Any, y: Any) -> Any:
    """The quotient, of whole numbers towards zero."""
    if not _is_whole(x):
        return x / y
    if is_known(x, y):
        y = np.asarray(y)
        safe = np.where(y == 0, 1, y).astype(y.dtype)
        return ((x - np.fmod(x, safe)) // safe).astype(y.dtype)
    x, y = jnp.broadcast_arrays(x, y)
    return lax.div(x, y)


def floored(x: Any, y: Any) -> Any:
    """The largest whole number that is at most x / y."""
    if not _is_whole(x):
        return xp(x, y).floor(x / y)
    if is_known(x, y):
        return np.floor_divide(x, y)
    x, y = jnp.broadcast_arrays(x, y)
    quotient, rest = lax.div(x, y), lax.rem(x, y)
    return jnp.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - _one(x), quotient)


def remainder(x: Any, y: Any) -> Any:
    """What is left of x behind `truncated`, with x's sign."""
    if is_known(x, y):
        return np.fmod(x, y)
    return lax.rem(*jnp.broadcast_arrays(x, y))


def modulo(x: Any, y: Any) -> Any:
    """What is left of x behind `floored`, with y's sign."""
    library, rest = xp(x, y), remainder(x, y)
    return library.where((rest != _zero(rest)) & ((rest < _zero(rest)) != (y < _zero(rest))), rest + y, rest)


def _no_nan(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The quotient where y is not zero, else zero."""

    def divided(x: Any, y: Any) -> Any:
        is_zero = y == _zero(y)
        return xp(x, y).where(is_zero, _zero(x), function(x, xp(y).where(is_zero, _one(y), y)))

    return divided


def _of_zero(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """What a function gives where x is not zero, else zero."""

    def computed(x: Any, y: Any) -> Any:
        is_zero = x == _zero(x)
        return jnp.where(is_zero, _zero(x), function(jnp.where(is_zero, _one(x), x), jnp.where(is_zero, _one(y), y)))

    return computed


def _mul_no_nan(x: Any, y: Any) -> Any:
    return jnp.where(y == _zero(y), _zero(x), x * y)


# -- powers and products -----------------------------------------------------------------------------------------------


def power(x: Any, y: Any) -> Any:
    """The power of x and y; whole numbers wrap."""
    if is_known(x, y):
        return np.power(x, y)
    if not _is_whole(x):
        return jnp.power(x, y)
    x, y = jnp.broadcast_arrays(x, y)
    result, base = jnp.ones_like(x), x
    for bit in range(x.dtype.itemsize * 8 - 1):
        result = jnp.where((y >> bit) & 1 == 1, result * base, result)
        base = base * base
    return result


def squared_difference(x: Any, y: Any) -> Any:
    """The square of x - y, of complex numbers times the conjugate."""
    difference = x - y
    return xp(x, y).conj(difference) * difference if np.iscomplexobj(difference) else difference * difference


def add_n(attrs: Attrs, *values: Any) -> Any:
    """The sum of tensors of one shape, from the first to the last; of many in float32 at least.

    Of few the sum stays in their dtype, in which a GPU's products add up to what is there.
    """
    if isinstance(values[0], lists.List):
        return lists.add(*values)
    return (summed_widely(_chained) if len(values) > FEW else _chained)(attrs, *values)


def _chained(attrs: Attrs, *values: Any) -> Any:
    return functools.reduce(_add, values)


# -- rounding ----------------------------------------------------------------------------------------------------------


def _sign(x: Any) -> Any:
    if np.iscomplexobj(x):
        size = jnp.abs(x)
        return jnp.where(size == 0, x, x / jnp.where(size == 0, 1, size))
    return xp(x).sign(x)


def _round(x: Any) -> Any:
    return x if _is_whole(x) else xp(x).round(x)


def _whole_stays(name: str) -> Rule:
    return Rule(lambda attrs, x: x if _is_whole(x) else getattr(xp(x), name)(x), rows="each")


# -- equality ----------------------------------------------------------------------------------------------------------


def _equal(attrs: Attrs, x: Any, y: Any) -> Any:
    return xp(x, y).equal(x, y) if _fit(attrs, x, y) else np.bool_(False)


def _not_equal(attrs: Attrs, x: Any, y: Any) -> Any:
    return xp(x, y).not_equal(x, y) if _fit(attrs, x, y) else np.bool_(True)


def _fit(attrs: Attrs, x: Any, y: Any) -> bool:
    """Whether shapes can be compared: what cannot is unequal, where the op asks for that."""
    if attrs.get("incompatible_shape_error", True):
        return True
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return True


# -- casts -------------------------------------------------------------------------------------------------------------


def cast(attrs: Attrs, x: Any) -> Any:
    """Cast: of a complex number its real part; a float becomes a bool where it is not zero.

    XLA takes the product of a converted bool and x for a choice between x and zero, where x is not finite too.
    """
    dtype = attrs["DstT"]
    if x.dtype == np.bool_ and not is_known(x) and jnp.issubdtype(dtype, np.floating):
        return jnp.where(x, np.ones((), dtype), np.zeros((), dtype))
    if np.iscomplexobj(x) and not np.issubdtype(dtype, np.complexfloating):
        x = x.real
    if attrs.get("Truncate") and dtype.name == "bfloat16" and x.dtype == np.float32:
        bits = lax.bitcast_convert_type(jnp.asarray(x), jnp.uint32) & np.uint32(0xFFFF0000)
        x = lax.bitcast_convert_type(bits, jnp.float32)
    return x.astype(dtype)


def bitcast(attrs: Attrs, x: Any) -> Any:
    """Bitcast: bytes read as another dtype, of another size by one dimension less or more."""
    return lax.bitcast_convert_type(jnp.asarray(x), attrs["type"])


# -- gradients ---------------------------------------------------------------------------------------------------------


def _of_conjugate(gradient: Callable[[Any, Any], Any]) -> Rule:
    """A gradient by what a function gave, of complex numbers by its conjugate; in the order of TensorFlow's kernels."""
    return _traced(lambda y, g: gradient(jnp.conj(y) if np.iscomplexobj(y) else y, g))


def _no_gradient_stays(gradient: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A gradient of which nothing comes of nothing, whatever the function gave."""
    return lambda y, g: jnp.where(g == _zero(g), _zero(g), gradient(y, g))


def _rsqrt_grad(y: Any, g: Any) -> Any:
    return _multiply(np.array(-0.5, y.dtype) * _multiply(g, y), _multiply(y, y))


def _sqrt_grad(y: Any, g: Any) -> Any:
    return np.array(0.5, y.dtype) * g / y


def _reciprocal_grad(y: Any, g: Any) -> Any:
    return -y * (g * y)


def _tanh_grad(y: Any, g: Any) -> Any:
    return _multiply(g, _one(y) - _multiply(y, y))


def _sigmoid_grad(y: Any, g: Any) -> Any:
    return g * y * (_one(y) - y)


def _shift(name: str) -> Rule:
    """By at least no bit, and at most all but one, as TensorFlow's kernels shift."""

    def shift(x: Any, y: Any) -> Any:
        most = np.array(8 * x.dtype.itemsize - 1, y.dtype)
        return getattr(xp(x, y), name)(x, xp(y).clip(y, np.array(0, y.dtype), most))

    return _traced(shift)


def _digamma(x: Any) -> Any:
    """At zero NaN, as at its other poles; JAX's is -inf there."""
    return jnp.where(x == 0, np.array(np.nan, x.dtype), lax.digamma(jnp.asarray(x)))


SAME = {  # what numpy calls it
    "Add": "add", "AddV2": "add", "Sub": "subtract", "Mul": "multiply", "RealDiv": "true_divide", "Neg": "negative",
    "Abs": "abs", "ComplexAbs": "abs", "Square": "square", "Sqrt": "sqrt", "Exp": "exp", "Expm1": "expm1",
    "Log": "log", "Log1p": "log1p", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "arcsin", "Acos": "arccos",
    "Atan": "arctan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "arcsinh", "Acosh": "arccosh",
    "Atanh": "arctanh", "Atan2": "arctan2", "Maximum": "maximum", "Minimum": "minimum", "Less": "less",
    "LessEqual": "less_equal", "Greater": "greater", "GreaterEqual": "greater_equal", "LogicalAnd": "logical_and",
    "LogicalOr": "logical_or", "LogicalNot": "logical_not", "IsNan": "isnan", "IsInf": "isinf",
    "IsFinite": "isfinite", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "Invert": "invert", "Real": "real", "Imag": "imag", "Conj": "conj",
    "NextAfter": "nextafter",
}  # fmt: skip

RULES = {
    **{op: _same(name) for op, name in SAME.items()},
    **{op: _whole_stays(name) for op, name in {"Ceil": "ceil", "Floor": "floor", "Rint": "rint"}.items()},
    "Equal": Rule(_equal, rows="each"),
    "NotEqual": Rule(_not_equal, rows="each"),
    "ApproximateEqual": Rule(lambda attrs, x, y: jnp.abs(x - y) < np.array(attrs["tolerance"], x.dtype), rows="each"),
    "AddN": Rule(add_n, rows="each", lists=True),
    "AccumulateNV2": Rule(add_n, rows="each"),
    "Div": _traced(truncated),
    "TruncateDiv": _traced(lambda x, y: truncated(x, y) if _is_whole(x) else jnp.trunc(x / y)),
    "FloorDiv": _traced(floored),
    "Mod": _traced(remainder),
    "TruncateMod": _traced(remainder),
    "FloorMod": _traced(modulo),
    "DivNoNan": _traced(_no_nan(lambda x, y: x / y)),
    "MulNoNan": _traced(_mul_no_nan),
    "Xdivy": _traced(_of_zero(lambda x, y: x / y)),
    "Xlogy": _traced(_of_zero(lambda x, y: x * jnp.log(y))),
    "Xlog1py": _traced(_of_zero(lambda x, y: x * jnp.log1p(y))),
    "Pow": _traced(power),
    "SquaredDifference": _traced(squared_difference),
    "Sign": _traced(_sign),
    "Round": _traced(_round),
    "Rsqrt": _traced(lambda x: lax.rsqrt(jnp.asarray(x))),
    "Reciprocal": _traced(lambda x: truncated(_one(x), x)),
    "Inv": _traced(lambda x: truncated(_one(x), x)),
    "Erf": _traced(lambda x: lax.erf(jnp.asarray(x))),
    "Erfc": _traced(lambda x: lax.erfc(jnp.asarray(x))),
    "Erfinv": _traced(lambda x: lax.erf_inv(jnp.asarray(x))),
    "Ndtri": _traced(lambda x: jax.scipy.special.ndtri(x)),
    "Lgamma": _traced(lambda x: lax.lgamma(jnp.asarray(x))),
    "Digamma": _traced(_digamma),
    "Polygamma": _traced(lambda n, x: lax.polygamma(*jnp.broadcast_arrays(n, x))),
    "Zeta": _traced(jax.scipy.special.zeta),
    "Igamma": _traced(lambda a, x: lax.igamma(*jnp.broadcast_arrays(a, x))),
    "Igammac": _traced(lambda a, x: lax.igammac(*jnp.broadcast_arrays(a, x))),
    "Betainc": _traced(lambda a, b, x: lax.betainc(*jnp.broadcast_arrays(a, b, x))),
    "IgammaGradA": _traced(lambda a, x: lax.igamma_grad_a(*jnp.broadcast_arrays(a, x))),
    "RandomGammaGrad": _traced(lambda a, x: lax.random_gamma_grad(*jnp.broadcast_arrays(a, x))),
    "BesselI0e": _traced(jax.scipy.special.i0e),
    "BesselI1e": _traced(jax.scipy.special.i1e),
    "PopulationCount": _traced(lambda x: lax.population_count(jnp.asarray(x)).astype(np.uint8)),
    "LeftShift": _shift("left_shift"),
    "RightShift": _shift("right_shift"),
    "Sigmoid": _traced(lambda x: lax.logistic(jnp.asarray(x))),
    "Angle": _traced(jnp.angle),
    "Complex": Rule(lambda attrs, x, y: lax.complex(*jnp.broadcast_arrays(x, y)), rows="each"),
    "Cast": Rule(cast, rows="each"),
    "Bitcast": Rule(bitcast),
    "RsqrtGrad": _of_conjugate(_no_gradient_stays(_rsqrt_grad)),
    "SqrtGrad": _of_conjugate(_no_gradient_stays(_sqrt_grad)),
    "ReciprocalGrad": _of_conjugate(_no_gradient_stays(_reciprocal_grad)),
    "InvGrad": _of_conjugate(_no_gradient_stays(_reciprocal_grad)),
    "TanhGrad": _of_conjugate(_tanh_grad),
    "SigmoidGrad": _of_conjugate(_sigmoid_grad),
    "ClipByValue": _traced(lambda x, low, high: jnp.minimum(jnp.maximum(x, low), high)),
}
