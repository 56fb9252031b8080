"""The precision modes as rows of one table: what each does to the ops of each list and to matrix and convolution ops.

Source: Ascend's adapter and graph engine, the meaning of precision_mode and precision_mode_v2.
"""

import enum
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Tuple

from .dtypes import BFLOAT16, FLOAT16, FLOAT32


class Action(enum.Enum):
    """What a mode does to a slot."""

    LOWER = "lower"  # float32 becomes the low dtype
    FOLLOW = "follow"  # as its producers
    KEEP = "keep"  # as written
    RAISE = "raise"  # float16 and bfloat16 become float32
    NARROW = "narrow"  # inputs rounded to the low dtype, arithmetic and output in float32


@dataclass(frozen=True)
class PrecisionPolicy:
    """One precision mode.

    Attributes:
        name: the user's word for it.
        low: dtype number that it lowers to.
        white, gray, black: what happens to the ops of each list; ops that only move data count as gray.
        cube: what happens to matrix and convolution ops whatever their list is; None: their list decides.
        unsupported: what happens to an op that the profile cannot run in the dtype that this mode leaves it in:
            Action.LOWER, or Action.KEEP for an error.
        training: whether the mode is meant for training.
        saturates: whether float16 results stop at 65504 in place of infinity.
    """

    name: str
    low: int
    white: Action
    gray: Action
    black: Action
    cube: Optional[Action] = None
    unsupported: Action = Action.LOWER
    training: bool = True
    saturates: bool = False

    @property
    def target(self) -> int:
        """The dtype number that the mode moves slots to: `low`, or float32 for a mode that raises."""
        return FLOAT32 if self.gray is Action.RAISE else self.low

    @property
    def changes(self) -> bool:
        """Whether the mode can change any slot at all."""
        return {self.white, self.gray, self.black, self.cube} - {Action.KEEP, None} != set()


_LOWER, _FOLLOW, _KEEP, _RAISE, _NARROW = Action.LOWER, Action.FOLLOW, Action.KEEP, Action.RAISE, Action.NARROW


def _rows(*rows: PrecisionPolicy) -> Dict[str, PrecisionPolicy]:
    return {row.name: row for row in rows}


# fmt: off
#                                            low       white    gray     black    cube
PRECISION_MODE = _rows(
    PrecisionPolicy("allow_mix_precision",      FLOAT16,  _LOWER, _FOLLOW, _KEEP),
    PrecisionPolicy("allow_mix_precision_fp16", FLOAT16,  _LOWER, _FOLLOW, _KEEP),
    PrecisionPolicy("allow_mix_precision_bf16", BFLOAT16, _LOWER, _FOLLOW, _KEEP),
    PrecisionPolicy("allow_fp32_to_fp16",       FLOAT16,  _KEEP,  _KEEP,   _KEEP,  cube=_LOWER),
    PrecisionPolicy("allow_fp32_to_bf16",       BFLOAT16, _KEEP,  _KEEP,   _KEEP,  cube=_LOWER),
    PrecisionPolicy("force_fp16",               FLOAT16,  _LOWER, _LOWER,  _LOWER, training=False),
    PrecisionPolicy("force_fp32",               FLOAT16,  _RAISE, _RAISE,  _RAISE, cube=_NARROW),
    PrecisionPolicy("cube_fp16in_fp32out",      FLOAT16,  _RAISE, _RAISE,  _RAISE, cube=_NARROW),
    PrecisionPolicy("must_keep_origin_dtype",   FLOAT16,  _KEEP,  _KEEP,   _KEEP,  unsupported=_KEEP),
)
PRECISION_MODE_V2 = _rows(
    PrecisionPolicy("mixed_float16",            FLOAT16,  _LOWER, _FOLLOW, _KEEP),
    PrecisionPolicy("mixed_bfloat16",           BFLOAT16, _LOWER, _FOLLOW, _KEEP),
    PrecisionPolicy("fp16",                     FLOAT16,  _LOWER, _LOWER,  _LOWER, training=False),
    PrecisionPolicy("cube_fp16in_fp32out",      FLOAT16,  _RAISE, _RAISE,  _RAISE, cube=_NARROW),
    PrecisionPolicy("origin",                   FLOAT16,  _KEEP,  _KEEP,   _KEEP,  unsupported=_KEEP),
)
# fmt: on

_BOTH = {**PRECISION_MODE, **PRECISION_MODE_V2}

# graph_run_mode -> mode when none is given, as on Ascend 910 (adapter up to r1.12; later adapters leave it to the chip)
DEFAULT_MODE: Dict[int, str] = {0: "force_fp16", 1: "allow_fp32_to_fp16"}


def mixed_modes(rows: Mapping[str, PrecisionPolicy] = _BOTH) -> Tuple[str, ...]:
    """The modes, of both options or of one, that use the three lists, so that modify_mixlist has a meaning."""
    return tuple(name for name, row in rows.items() if row.gray is Action.FOLLOW)
