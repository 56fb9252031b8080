"""Diagonals and bands, decompositions, solutions and Fourier transforms of matrices.

Eigenvectors and singular vectors have a sign, and triangular factors too, that libraries choose otherwise: what a
network computes of them must not depend on it, with TensorFlow's devices neither.
"""

from __future__ import annotations

from typing import Any, Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.nn import pulled_back
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import ints, traced, whole, xp

# -- diagonals and bands -----------------------------------------------------------------------------------------------


def band_part(attrs: Attrs, x: Any, lower: Any, upper: Any) -> Any:
    """MatrixBandPart: a negative number keeps the whole triangle."""
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    below = (rows - columns).astype(lower.dtype)
    zero = np.zeros((), lower.dtype)
    kept = ((lower < zero) | (below <= lower)) & ((upper < zero) | (-below <= upper))
    return xp(x, kept).where(kept, x, np.zeros((), x.dtype))


def _band(k: Any) -> tuple[int, int]:
    """The lowest and the highest of the diagonals that an op takes."""
    numbers = ints(k)
    if numbers[0] > numbers[-1]:
        raise Unsupported("its diagonals go from %d to %d" % (numbers[0], numbers[-1]))
    return numbers[0], numbers[-1]


def _length(k: int, height: int, width: int) -> int:
    return min(height + min(0, k), width - max(0, k))


def _entries(attrs: Attrs, band: tuple[int, int], height: int, width: int) -> tuple[Any, Any]:
    """Where the diagonals of a matrix are: ((rows, columns), (numbers, places among the packed diagonals)).

    The highest one comes first. One that is shorter than the longest begins at the left or ends at the right, as
    attribute `align` says of those above and below the main one; V2 knows none, and all of its begin at the left.
    """
    low, high = band
    above, _, below = attrs.get("align", "LEFT_LEFT").partition("_")
    room = _room(band, height, width)
    parts = []
    for number, k in enumerate(range(high, low - 1, -1)):
        length = _length(k, height, width)
        if length <= 0:
            raise Unsupported("its matrices have no diagonal %d" % k)
        is_left = (k >= 0 and above == "LEFT") or (k <= 0 and below == "LEFT")
        at = np.arange(length)
        parts.append((at + max(0, -k), at + max(0, k), np.full(length, number), at + (0 if is_left else room - length)))
    rows, columns, numbers, places = (np.concatenate(part) for part in zip(*parts))
    return (rows, columns), (numbers, places)


def _room(band: tuple[int, int], height: int, width: int) -> int:
    """The length of the longest diagonal."""
    return min(height + min(0, band[1]), width - max(0, band[0]))


def _packed(x: Any, band: tuple[int, int]) -> Any:
    """Diagonals as [..., number, place]: an op of one diagonal has no axis of numbers."""
    return traced(x)[..., None, :] if band[0] == band[1] else traced(x)


def diag(attrs: Attrs, diagonal: Any, k: Any = 0, rows: Any = -1, columns: Any = -1, padding: Any = 0) -> Any:
    """MatrixDiag, V2 and V3."""
    band = _band(k)
    packed = _packed(diagonal, band)
    least = packed.shape[-1] - min(0, band[1]), packed.shape[-1] + max(0, band[0])
    height, width = whole(rows), whole(columns)
    if height < 0 and width < 0:
        height = width = max(least)
    height, width = height if height >= 0 else least[0], width if width >= 0 else least[1]
    full = jnp.broadcast_to(jnp.asarray(padding, packed.dtype), (*packed.shape[:-2], height, width))
    (rows, columns), (numbers, places) = _entries(attrs, band, height, width)
    return full.at[..., rows, columns].set(packed[..., numbers, places])


def diag_part(attrs: Attrs, x: Any, k: Any = 0, padding: Any = 0) -> Any:
    """MatrixDiagPart, V2 and V3."""
    x, band = traced(x), _band(k)
    (rows, columns), (numbers, places) = _entries(attrs, band, *x.shape[-2:])
    if band[0] == band[1]:
        return x[..., rows, columns]
    shape = (*x.shape[:-2], band[1] - band[0] + 1, _room(band, *x.shape[-2:]))
    full = jnp.broadcast_to(jnp.asarray(padding, x.dtype), shape)
    return full.at[..., numbers, places].set(x[..., rows, columns])


def set_diag(attrs: Attrs, x: Any, diagonal: Any, k: Any = 0) -> Any:
    """MatrixSetDiag, V2 and V3."""
    band = _band(k)
    (rows, columns), (numbers, places) = _entries(attrs, band, *x.shape[-2:])
    return traced(x).at[..., rows, columns].set(_packed(diagonal, band)[..., numbers, places])


def tensor_diag(attrs: Attrs, x: Any) -> Any:
    """Diag: of a tensor of rank n one of rank 2 n."""
    return jnp.diag(traced(x).reshape(-1)).reshape((*x.shape, *x.shape))


def tensor_diag_part(attrs: Attrs, x: Any) -> Any:
    """DiagPart."""
    half = x.shape[: x.ndim // 2]
    size = int(np.prod(half, dtype=np.int64))
    return jnp.diagonal(traced(x).reshape((size, size))).reshape(half)


# -- decompositions and solutions --------------------------------------------------------------------------------------


def cholesky(attrs: Attrs, x: Any) -> Any:
    """Cholesky: of the lower triangle."""
    return lax.linalg.cholesky(traced(x), symmetrize_input=False)


def cholesky_grad(attrs: Attrs, factor: Any, g: Any) -> Any:
    """CholeskyGrad: symmetric, as TensorFlow's."""
    factor = traced(factor)
    square = factor @ jnp.swapaxes(factor, -1, -2)
    whole_gradient = pulled_back(lambda x: lax.linalg.cholesky(x, symmetrize_input=True), square, jnp.tril(g))
    return whole_gradient


def _adjoint(x: Any) -> Any:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def inverse(attrs: Attrs, x: Any) -> Any:
    """MatrixInverse."""
    x = traced(x)
    return jnp.linalg.inv(_adjoint(x) if attrs["adjoint"] else x)


def solve(attrs: Attrs, matrix: Any, right: Any) -> Any:
    """MatrixSolve."""
    matrix = traced(matrix)
    return jnp.linalg.solve(_adjoint(matrix) if attrs["adjoint"] else matrix, right)


def triangular_solve(attrs: Attrs, matrix: Any, right: Any) -> Any:
    """MatrixTriangularSolve; leading dimensions broadcast."""
    lead = np.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    matrix, right = (jnp.broadcast_to(part, (*lead, *part.shape[-2:])) for part in (matrix, right))
    return lax.linalg.triangular_solve(
        matrix, right, left_side=True, lower=attrs["lower"], transpose_a=attrs["adjoint"], conjugate_a=attrs["adjoint"]
    )


def _off_diagonal(part: Any, shift: int) -> Any:
    """A diagonal beside the main one, whose element without a place is 0."""
    return part.at[..., -1 if shift > 0 else 0].set(np.zeros((), part.dtype))


def tridiagonal_solve(attrs: Attrs, diagonals: Any, right: Any) -> Any:
    """TridiagonalSolve: diagonals [..., 3, size], the upper one first."""
    upper, main, lower = (traced(diagonals)[..., at, :] for at in range(3))
    return lax.linalg.tridiagonal_solve(_off_diagonal(lower, -1), main, _off_diagonal(upper, 1), traced(right))


def tridiagonal_product(attrs: Attrs, upper: Any, main: Any, lower: Any, right: Any) -> Any:
    """TridiagonalMatMul: diagonals [..., 1, size]."""
    upper, main, lower = (jnp.swapaxes(traced(part), -1, -2) for part in (upper, main, lower))
    zero = jnp.zeros_like(right[..., :1, :])
    above = jnp.concatenate([right[..., 1:, :], zero], -2)
    below = jnp.concatenate([zero, right[..., :-1, :]], -2)
    first, last = np.arange(right.shape[-2])[:, None] == 0, np.arange(right.shape[-2])[:, None] == right.shape[-2] - 1
    return jnp.where(last, zero, upper * above) + main * right + jnp.where(first, zero, lower * below)


def determinant(attrs: Attrs, x: Any) -> Any:
    """MatrixDeterminant."""
    return jnp.linalg.det(traced(x))


def log_determinant(attrs: Attrs, x: Any) -> Any:
    """LogMatrixDeterminant: (sign, logarithm of its size)."""
    return tuple(jnp.linalg.slogdet(traced(x)))


def qr(attrs: Attrs, x: Any) -> Any:
    """Qr."""
    return tuple(lax.linalg.qr(traced(x), full_matrices=attrs["full_matrices"]))


def svd(attrs: Attrs, x: Any) -> Any:
    """Svd: (singular values, u, v); of the last two nothing where only the values are asked for."""
    x = traced(x)
    if not attrs["compute_uv"]:
        nothing = jnp.zeros((), x.dtype)
        return jnp.linalg.svd(x, compute_uv=False), nothing, nothing
    u, s, vh = jnp.linalg.svd(x, full_matrices=attrs["full_matrices"])
    return s, u, _adjoint(vh)


def eigh(attrs: Attrs, x: Any) -> Any:
    """SelfAdjointEigV2: (values, vectors) of the lower triangle."""
    vectors, values = lax.linalg.eigh(traced(x), lower=True, symmetrize_input=False)
    return values, vectors if attrs["compute_v"] else jnp.zeros((), x.dtype)


# -- Fourier -----------------------------------------------------------------------------------------------------------


def _transform(function: Callable[..., Any], rank: int) -> Callable[..., Any]:
    return lambda attrs, x: function(traced(x), axes=tuple(range(-rank, 0)))


def _real(attrs: Attrs, x: Any, lengths: Any) -> Any:
    return jnp.fft.rfftn(traced(x), ints(lengths), tuple(range(-lengths.size, 0)))


def _to_real(attrs: Attrs, x: Any, lengths: Any) -> Any:
    return jnp.fft.irfftn(traced(x), ints(lengths), tuple(range(-lengths.size, 0)))


_NAMES = {1: "", 2: "2D", 3: "3D"}
RULES = {
    "MatrixBandPart": Rule(band_part),
    "MatrixDiag": Rule(diag),
    "MatrixDiagV2": Rule(diag, known=(1, 2, 3)),
    "MatrixDiagV3": Rule(diag, known=(1, 2, 3)),
    "MatrixDiagPart": Rule(diag_part),
    "MatrixDiagPartV2": Rule(diag_part, known=(1,)),
    "MatrixDiagPartV3": Rule(diag_part, known=(1,)),
    "MatrixSetDiag": Rule(set_diag),
    "MatrixSetDiagV2": Rule(set_diag, known=(2,)),
    "MatrixSetDiagV3": Rule(set_diag, known=(2,)),
    "Diag": Rule(tensor_diag),
    "DiagPart": Rule(tensor_diag_part),
    "Cholesky": Rule(cholesky),
    "CholeskyGrad": Rule(cholesky_grad),
    "MatrixInverse": Rule(inverse),
    "MatrixSolve": Rule(solve),
    "MatrixTriangularSolve": Rule(triangular_solve),
    "TridiagonalSolve": Rule(tridiagonal_solve),
    "TridiagonalMatMul": Rule(tridiagonal_product),
    "MatrixDeterminant": Rule(determinant),
    "LogMatrixDeterminant": Rule(log_determinant),
    "Qr": Rule(qr),
    "Svd": Rule(svd),
    "SelfAdjointEigV2": Rule(eigh),
    **{"FFT" + name: Rule(_transform(jnp.fft.fftn, rank)) for rank, name in _NAMES.items()},
    **{"IFFT" + name: Rule(_transform(jnp.fft.ifftn, rank)) for rank, name in _NAMES.items()},
    **{"RFFT" + name: Rule(_real, known=(1,)) for name in _NAMES.values()},
    **{"IRFFT" + name: Rule(_to_real, known=(1,)) for name in _NAMES.values()},
}
