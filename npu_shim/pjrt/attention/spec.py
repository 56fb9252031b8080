"""What one attention computes: the whole of what its composite in TensorFlow and its kernel have to agree on.

    x      = wide(q k^T) * scale                        q k^T is rounded to `dtype`, a kernel may leave that out
    x      = rounded(x + wide(bias)) * after            for a bias that is not `bias_over`
    scores = fill where hidden, else x                  + wide(bias), rounded, for one that is
    out    = low(dropout(softmax(scores))) v            wide(x): x as `wide`; low(x): x as `dtype`

    most[i]  = largest of scores[i, j];  sums[i] = sum over j of exp(scores[i, j] - most[i])
    dropout  x[i, j] * kept_times where keep(seed, i, j), else 0                                         (draws.py)

A row that is hidden, or pushed out, as a whole has a softmax like any other: the logarithm of its sum would be lost
beside -1e9, so most and sums are kept apart.

A step's graph calls two functions, whose names begin with PREFIX and have the Spec as JSON in the attribute ATTRIBUTE:

    out, most, sums     = forward(q, k, v, [bias], [hidden], [seed])
    dq, dk, dv, [dbias] = backward(q, k, v, [bias], [hidden], [seed], out, most, sums, d_out)

With dS the gradient of the scores, dq = (slope * dS where not hidden) k, dk likewise, and dbias the sum of
bias_slope * dS, where not hidden unless the bias is `bias_over`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, NamedTuple, Tuple

PREFIX = "npu_shim_attention_"
ATTRIBUTE = "_npu_shim_attention"
FORWARD, BACKWARD = "forward", "backward"
# what stands for a call, and for the seed of its dropout, in a graph that JAX interprets (npu_shim.step)
CALL, SEED = "NpuShimAttention", "NpuShimDropoutSeed"
KERNEL = "kernel"  # said of a function that a program has a kernel for; of others why not
Shape = Tuple[int, ...]


class Argument(NamedTuple):
    """An argument or a result of a call: its name, dtype and shape."""

    name: str
    dtype: str
    shape: Shape


@dataclasses.dataclass(frozen=True)
class Spec:
    """One attention, forward or backward.

    Attributes:
        kind: "forward" or "backward".
        q: shape [b, h, s, d] of the queries.
        k: shape [b, h, t, d] of the keys.
        v: shape [b, h, t, e] of the values.
        dtype: of q, k, v and the products: "bfloat16", "float16" or "float32"; products sum in float32.
        wide: of scale, bias, softmax and dropout: "float32", or `dtype`.
        scale: what the product of q and k is multiplied by.
        bias: shape of what is added to the scaled product, four dimensions, each 1 or that of [b, h, s, t]; None for
            no bias.
        bias_dtype: of the bias, "" for none.
        rate: of dropout, in [0, 1); 0 for none. A call with dropout has a seed, int32 [2].
        mask: shape of what dropout draws, [b, h, s, t] with 1 where one draw serves a whole axis of b, h or s; None for
            a draw for each probability.
        after: what multiplies in the sum with the bias; of a bias that is not `bias_over`.
        hidden: shape of what hides scores, int8, not 0 where it does, like `bias`; None for nothing.
        fill: what stands in the place of what is hidden.
        bias_over: whether the bias is added behind that.
        rounded: the dtype to which the sum with the bias is rounded, as the plan's own is: beside a mask of -1e4 it
            has a score's last bits or it has not; "" for `wide`.
        kept: what multiplies a kept probability; None for 1 / (1 - rate).
        slope: of a backward call: what multiplies in the gradient of the scores to that of the product; None for
            scale * after.
        bias_slope: of a backward call that also returns the gradient of the bias, in its shape and dtype: what
            multiplies in the gradient of the scores to it; None for a call without.
    """

    kind: str
    q: Shape
    k: Shape
    v: Shape
    dtype: str
    wide: str = "float32"
    scale: float = 1.0
    bias: Shape | None = None
    bias_dtype: str = ""
    rate: float = 0.0
    mask: Shape | None = None
    after: float = 1.0
    hidden: Shape | None = None
    fill: float = 0.0
    bias_over: bool = False
    rounded: str = ""
    kept: float | None = None
    slope: float | None = None
    bias_slope: float | None = None

    @property
    def bias_gradient(self) -> bool:
        """Whether a call returns the gradient of the bias."""
        return self.bias_slope is not None

    @property
    def kept_times(self) -> float:
        """What multiplies a kept probability."""
        return 1.0 / (1.0 - self.rate) if self.kept is None else self.kept

    @property
    def product_slope(self) -> float:
        """What multiplies in the gradient of the scores to that of the product of queries and keys."""
        return self.scale * self.after if self.slope is None else self.slope

    @property
    def scores(self) -> Shape:
        """Shape [b, h, s, t] of the scores."""
        return (*self.q[:3], self.k[2])

    @property
    def drawn(self) -> Shape:
        """Shape of what dropout draws."""
        return self.mask or self.scores

    @property
    def out(self) -> Shape:
        """Shape [b, h, s, e] of the result."""
        return (*self.q[:3], self.v[3])

    @property
    def given(self) -> tuple[Argument, ...]:
        """The arguments that forward and backward calls begin with."""
        taken = [Argument(name, self.dtype, getattr(self, name)) for name in ("q", "k", "v")]
        if self.bias is not None:
            taken.append(Argument("bias", self.bias_dtype, self.bias))
        if self.hidden is not None:
            taken.append(Argument("hidden", "int8", self.hidden))
        if self.rate:
            taken.append(Argument("seed", "int32", (2,)))
        return tuple(taken)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What a call takes, in order."""
        if self.kind == FORWARD:
            return self.given
        out, most, sums = self._forward_results()
        return (*self.given, out, most, sums, out._replace(name="d_out"))

    @property
    def results(self) -> tuple[Argument, ...]:
        """What a call returns, in order."""
        if self.kind == FORWARD:
            return self._forward_results()
        differentiated = self.given[: 3 + self.bias_gradient]
        return tuple(argument._replace(name="d" + argument.name) for argument in differentiated)

    def _forward_results(self) -> tuple[Argument, Argument, Argument]:
        most, sums = (Argument(name, "float32", self.scores[:3]) for name in ("most", "sums"))
        return Argument("out", self.dtype, self.out), most, sums

    @property
    def name(self) -> str:
        """The name of the function that calls of it call."""
        return "%s%s_%s" % (PREFIX, self.kind, hashlib.sha256(self.as_json().encode()).hexdigest()[:16])

    def as_json(self) -> str:
        """The Spec as text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """The Spec that `as_json` wrote; TypeError for fields that it does not have."""
        fields: dict[str, Any] = json.loads(text)
        fields.update({name: tuple(value) for name, value in fields.items() if isinstance(value, list)})
        return cls(**fields)
