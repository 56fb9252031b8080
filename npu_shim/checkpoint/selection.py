"""Selects the tensors of a checkpoint that are cast, with a reason for each: tables and pure functions.

A name alone does not tell a model's weight from an optimizer's slot: a model may live in `variable_scope("training")`,
and an optimizer's slot may be called `m`. A slot stands beside its variable and has the same shape. So may a part of
the model: a pruning mask, the `v` of a weight norm, DoRA's `m`. Certain signs are an optimizer's name, a word that only
optimizers use, an optimizer's scope, and Adam's `m` and `v` together. Any other such tensor is ambiguous and kept.

Sources: the names that TensorFlow 1.15's optimizers, Keras' OptimizerV2, contrib and experimental loss scaling, BERT's
and NVIDIA's optimizers, Adafactor and batch normalizations write.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Iterator, Mapping, Tuple

Shape = Tuple[int, ...]
FLOATS = ("float32", "float16", "bfloat16")

# First match wins.
STATE = (
    ("global step", r"(^|/)global_step$"),
    ("loss-scale state", r"(^|/)(loss_scale|current_loss_scale|good_steps|bad_steps)(_\d+)?(/|$)"),
    ("exponential moving average", r"/ExponentialMovingAverage(_\d+)?(/|$)|(^|/)(?i:ema)(_\d+)?(/|$)"),
    ("batch-norm statistics", r"(^|/)(moving|running|pop)_(mean|var|variance|stddev)(_\d+)?(/|$)"),
    ("batch-norm statistics", r"(^|/)renorm_(mean|stddev)(_weight)?(_\d+)?(/|$)"),
    ("float32 master copy", r"(^|/)FP32-master-copy/"),
)
LOSS_SCALE = re.compile(dict(STATE)["loss-scale state"])
# what only a loss scale, or float32 masters, add to the variables of a script
ADDED = re.compile(LOSS_SCALE.pattern + r"|(^|/)cond(_\d+)?/beta[12]_power(_\d+)?$|/float32_master(/|$)")

LEARNING_RATE = re.compile(r"(^|/)(learning_rate|lr)(_\d+)?$")
GATHERED_STEPS = re.compile(r"(^|/)accumulated_steps(_\d+)?$")
BETA_POWER = re.compile(r"(^|/)beta_?[12]_power(_\d+)?$")
OPTIMIZER = (
    r"(Lazy)?(Ada(m|mW|max|Max|grad|delta|factor)|Nadam|N?LAMB|LARS|RMS[Pp]rop|SGD|Ftrl|FTRL|Momentum)"
    r"((WeightDecay)?Optimizer)?(_\d+)?"
)
# TensorFlow 1 names a slot after its optimizer, others after its content
NAMED_SLOT = re.compile(r"^(%s|(adam|lamb|nadam)_[mv]|slot_v[rc]?)$|_slot_(m|v[rc]?)$" % OPTIMIZER)
HELD_SLOT = re.compile(
    r"^([mv]|v[rc]|vhat|momentum|rms|mg|accumulat(or|ed)|accumulated_rows|accum_grad|accum_var|linear|velocity)$"
)
# names that a model may use beside a weight too, and the second slot that is there if it is an optimizer's
SHARED_WORDS = {"m": "v", "v": "m", "mg": "rms", "linear": "accumulator", "accumulator": "linear"}
FACTORED_WORDS = ("vr", "vc")
HYPERPARAMETER = re.compile(r"^(beta_[12]|learning_rate|lr|decay|epsilon|rho|momentum|iter|iterations)$")
IN_OPTIMIZER = re.compile(r"(^|/)(%s|_?optimizer)/" % OPTIMIZER)
OLD_KERAS = re.compile(r"^training(_\d+)?/%s/Variable(_\d+)?$" % OPTIMIZER)
OBJECT_SLOT = re.compile(r"/\.OPTIMIZER_SLOT/|(^|/)_?optimizer/_variables/\d+(/|$)")


@dataclasses.dataclass(frozen=True)
class Kind:
    """What kind of training state a tensor is.

    Attributes:
        text: str, in words.
        optimizer: bool, whether it belongs to an optimizer.
        certain: bool; False where a model's weight could have the name as well.
    """

    text: str
    optimizer: bool = False
    certain: bool = True


def without_attribute(name: str) -> str:
    """Returns an object-based key as the path of its variable: 'a/w/.ATTRIBUTES/VARIABLE_VALUE' becomes 'a/w'."""
    return name.split("/.ATTRIBUTES/")[0]


class Kinds:
    """Classifies the tensors of one checkpoint by kind of training state.

    Args:
        tensors: dict of name to an object with `dtype` and `shape`, all tensors of the checkpoint.
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._shapes = {without_attribute(name): tuple(info.shape) for name, info in tensors.items()}

    def of(self, name: str) -> Kind | None:
        """Returns the Kind of a tensor, or None for a tensor of the model."""
        plain = without_attribute(name)
        for text, pattern in STATE:
            if re.search(pattern, name) or re.search(pattern, plain):
                return Kind(text)
        shape = self._shapes[plain]
        if BETA_POWER.search(plain):
            return Kind("beta power", True, shape == ())
        if GATHERED_STEPS.search(plain) and shape == ():
            return Kind("number of gathered steps", True)
        if OBJECT_SLOT.search(name) or OLD_KERAS.search(plain):
            return Kind("optimizer slot", True)
        if IN_OPTIMIZER.search(plain) and shape == () and HYPERPARAMETER.match(plain.rpartition("/")[2]):
            return Kind("optimizer hyperparameter", True)
        if LEARNING_RATE.search(plain) and shape == ():
            return Kind("learning rate")  # a script's own
        return self._slot(plain, shape)

    def _slot(self, name: str, shape: Shape) -> Kind | None:
        owner, _, word = name.rpartition("/")
        named, held, scoped = NAMED_SLOT.search(word), HELD_SLOT.match(word), IN_OPTIMIZER.search(name)
        known = named or held
        if word == "touched_rows" and owner + "/accumulated_rows" in self._shapes:
            return Kind("touched rows of '%s'" % owner, True)
        if word.endswith(("_slot_m", "_slot_v", "_slot_vr", "_slot_vc")):  # Mesh TensorFlow's: w_slot_vr
            owner = name[: name.rindex("_slot_")]
        for variable in _suffixes(owner) if known else (owner,):  # Adam/dense/kernel/m belongs to dense/kernel
            beside = self._shapes.get(variable)
            if shape == beside or (known and shape in _factored_shapes(beside)):
                own = held and variable == owner and self._is_optimizers_own(owner, word, shape, shape == beside)
                return Kind("optimizer slot of '%s'" % variable, True, bool(named or (held and scoped) or own))
        if owner and (named or (held and scoped)):
            return Kind("optimizer slot", True, False)
        return None

    def _is_optimizers_own(self, owner: str, word: str, shape: Shape, whole: bool) -> bool:
        """Whether a slot beside its variable `owner`, outside optimizer scopes, cannot be part of the model."""
        if not whole:
            return word in FACTORED_WORDS
        return word not in SHARED_WORDS or self._shapes.get("%s/%s" % (owner, SHARED_WORDS[word])) == shape


def reason_to_keep(name: str, tensors: Mapping[str, Any], to: str, kind: Kind | None) -> str | None:
    """Returns why `name` is not cast to `to` (a dtype name) when the user said nothing about it, or None to cast.

    Args:
        name: str.
        tensors: dict of name to an object with `dtype`.
        to: str.
        kind: its Kind, or None.
    """
    dtype = tensors[name].dtype
    if dtype not in FLOATS:
        return "not float32, float16 or bfloat16"
    if dtype == to:
        return "already %s" % to
    if to == "float32" or kind is None:
        return None  # widening loses nothing
    return "%s%s stays %s" % ("" if kind.certain else "perhaps ", kind.text, dtype)


def is_optimizer_state(kind: Kind | None) -> bool:
    """Whether `--drop-optimizer` drops a tensor of this Kind: it must certainly be an optimizer's."""
    return kind is not None and kind.optimizer and kind.certain


def _suffixes(path: str) -> Iterator[str]:
    """Yields a path, then the path without its first part, and so on.

    >>> list(_suffixes("a/b/c"))
    ['a/b/c', 'b/c', 'c']
    """
    while path:
        yield path
        path = path.partition("/")[2]


def _factored_shapes(shape: Shape | None) -> tuple[Shape, ...]:
    """Returns the shapes that a factored slot (Adafactor's rows and columns) has beside a variable of this shape."""
    return () if shape is None or len(shape) < 2 else (shape[:-1], (*shape[:-2], shape[-1]), (1,), ())
