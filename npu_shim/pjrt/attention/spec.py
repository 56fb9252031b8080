"""What one attention computes: the whole of what its composite in TensorFlow and its kernel have to agree on.

    scores = wide(q k^T) * scale + wide(bias)           q k^T is rounded to `dtype`, a kernel may leave that out
    out    = low(dropout(softmax(scores))) v            wide(x): x as `wide`; low(x): x as `dtype`

    lse[i]   = log(sum over j of exp(scores[i, j]))
    dropout  x[i, j] / (1 - rate) where keep(seed, i, j), else 0                                         (draws.py)

A step's graph calls two functions, whose names begin with PREFIX and have the Spec as JSON in the attribute ATTRIBUTE:

    out, lse           = forward(q, k, v, [bias], [seed])
    dq, dk, dv, [dbias] = backward(q, k, v, [bias], [seed], out, lse, d_out)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, NamedTuple, Tuple

PREFIX = "npu_shim_attention_"
ATTRIBUTE = "_npu_shim_attention"
FORWARD, BACKWARD = "forward", "backward"
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
        bias_gradient: whether a backward call also returns the gradient of the bias, in its shape and dtype.
        mask: shape of what dropout draws, [b, h, s, t] with 1 where one draw serves a whole axis of b, h or s; None for
            a draw for each probability.
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
    bias_gradient: bool = False
    mask: Shape | None = None

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
        if self.rate:
            taken.append(Argument("seed", "int32", (2,)))
        return tuple(taken)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What a call takes, in order."""
        if self.kind == FORWARD:
            return self.given
        out, lse = self._forward_results()
        return (*self.given, out, lse, out._replace(name="d_out"))

    @property
    def results(self) -> tuple[Argument, ...]:
        """What a call returns, in order."""
        if self.kind == FORWARD:
            return self._forward_results()
        differentiated = self.given[: 3 + self.bias_gradient]
        return tuple(argument._replace(name="d" + argument.name) for argument in differentiated)

    def _forward_results(self) -> tuple[Argument, Argument]:
        return Argument("out", self.dtype, self.out), Argument("lse", "float32", self.scores[:3])

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
