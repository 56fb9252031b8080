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


def _offset(k: Any) -> int:
    numbers = set(ints(k))
    if len(numbers) > 1:
        raise Unsupported("it takes several diagonals")
    return int(numbers.pop())


def diag(attrs: Attrs, diagonal: Any, k: Any = 0, rows: Any = -1, columns: Any = -1, padding: Any = 0) -> Any:
    """MatrixDiag, V2 and V3, of one diagonal."""
    k, size = _offset(k), diagonal.shape[-1]
    least = size + abs(k)
    height, width = whole(rows), whole(columns)
    height = height if height >= 0 else size + max(0, -k) if width >= 0 else least
    width = width if width >= 0 else size + max(0, k) if height != least else least
    at = np.arange(size)
    full = jnp.broadcast_to(jnp.asarray(padding, diagonal.dtype), (*diagonal.shape[:-1], height, width))
    return full.at[..., at + max(0, -k), at + max(0, k)].set(diagonal)


def _places(x: Any, k: int) -> tuple[Any, Any]:
    height, width = x.shape[-2:]
    size = min(height + min(0, k), width - max(0, k))
    if size <= 0:
        raise Unsupported("its matrices have no diagonal %d" % k)
    at = np.arange(size)
    return at + max(0, -k), at + max(0, k)


def diag_part(attrs: Attrs, x: Any, k: Any = 0, padding: Any = None) -> Any:
    """MatrixDiagPart, V2 and V3, of one diagonal."""
    rows, columns = _places(x, _offset(k))
    return x[..., rows, columns]


def set_diag(attrs: Attrs, x: Any, diagonal: Any, k: Any = 0) -> Any:
    """MatrixSetDiag, V2 and V3, of one diagonal."""
    rows, columns = _places(x, _offset(k))
    return traced(x).at[..., rows, columns].set(diagonal)


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
