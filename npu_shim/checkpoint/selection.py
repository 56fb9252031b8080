"""Which tensors of a checkpoint are cast, and the reason for each: tables and pure functions.

Sources: the names that TensorFlow 1.15's optimizers, contrib and experimental loss scaling, BERT's and NVIDIA's
optimizers and batch normalizations write.
"""

import re

FLOATS = ("float32", "float16", "bfloat16")

# First match wins. Slots of other optimizers are found by structure: a tensor `<variable>/<slot>` beside `<variable>`.
STATE = (
    ("global step", r"(^|/)global_step$"),
    ("loss-scale state", r"(^|/)(loss_scale|current_loss_scale|good_steps|bad_steps)(_\d+)?(/|$)"),
    ("beta power", r"(^|/)beta_?[12]_power(_\d+)?(/|$)"),
    ("exponential moving average", r"/ExponentialMovingAverage(_\d+)?(/|$)|(^|/)ema(/|$)"),
    ("batch-norm statistics", r"(^|/)(moving|running|pop)_(mean|var|variance|stddev)(_\d+)?(/|$)"),
    ("batch-norm statistics", r"(^|/)renorm_(mean|stddev)(_weight)?(_\d+)?(/|$)"),
    ("float32 master copy", r"(^|/)FP32-master-copy/"),
    ("optimizer slot", r"/\.OPTIMIZER_SLOT/|(^|/)_?optimizer/|^training(_\d+)?/[A-Za-z]+/"),
    ("optimizer slot", r"/(Lazy)?Adam(WeightDecayOptimizer)?(_\d+)?$|/(adam|lamb|nadam)_[mv]$"),
    ("optimizer slot", r"/(Momentum|RMSProp|Adagrad|Adadelta|AdaMax|Ftrl|LAMB|LARS|LARSOptimizer)(_\d+)?$"),
)
OPTIMIZER = ("beta power", "optimizer slot")
LOSS_SCALE = re.compile(dict(STATE)["loss-scale state"])


def without_attribute(name):
    """Returns an object-based key as the path of its variable: 'a/w/.ATTRIBUTES/VARIABLE_VALUE' becomes 'a/w'."""
    return name.split("/.ATTRIBUTES/")[0]


def state_kind(name, tensors):
    """Returns the kind of training state that `name` is, with its variable for a slot, or None for a model tensor.

    Args:
        name: str.
        tensors: dict of name to an object with `shape`, all tensors of the checkpoint.
    """
    plain = without_attribute(name)
    for kind, pattern in STATE:
        if re.search(pattern, name) or re.search(pattern, plain):
            return kind
    owner = plain.rpartition("/")[0]
    beside = name.replace(plain, owner, 1)
    if owner and beside in tensors and tensors[beside].shape == tensors[name].shape:
        return "optimizer slot of '%s'" % owner
    return None


def reason_to_keep(name, tensors, to):
    """Returns why `name` is not cast to `to` (a dtype name) when the user said nothing about it, or None to cast."""
    dtype = tensors[name].dtype
    if dtype not in FLOATS:
        return "not float32, float16 or bfloat16"
    if dtype == to:
        return "already %s" % to
    if to == "float32":
        return None  # widening loses nothing
    kind = state_kind(name, tensors)
    return kind and kind + " stays " + dtype


def is_optimizer_state(name, tensors):
    """Whether `--drop-optimizer` leaves the tensor out: slots and beta powers, never the loss-scale state."""
    kind = state_kind(name, tensors)
    return kind is not None and kind.startswith(OPTIMIZER)
