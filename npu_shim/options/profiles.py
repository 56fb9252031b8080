"""The profiles: each combines op information files, a propagation rule and precision modes. No TensorFlow."""

from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

OPTION = "npu_shim_profile"
FLOAT16_MIXED = {
    "precision_mode": ("allow_mix_precision", "allow_mix_precision_fp16"),
    "precision_mode_v2": ("mixed_float16",),
}


class Profile(NamedTuple):
    """One profile.

    Attributes:
        folder: where its op information files are, in configs/.
        all_dtypes: whether its hardware runs every op in float16 and in float32.
        rule: `OpTable.rule`.
        modes: option -> its precision modes, the default first; None for all of them.
    """

    folder: str
    all_dtypes: bool
    rule: str = "producers"
    modes: Optional[Mapping[str, Tuple[str, ...]]] = None


PROFILES: Dict[str, Profile] = {
    "ascend910": Profile("ascend910", False),
    "gpu": Profile("ascend910", True),
    # the lists and the rule of TensorFlow's auto_mixed_precision, of 2.15.1 and of 1.15.5
    "grappler": Profile("grappler", True, "neighbours", FLOAT16_MIXED),
    "grappler_1.15": Profile("grappler_1.15", True, "neighbours", FLOAT16_MIXED),
}


def implied(values: Mapping[str, Any]) -> Dict[str, Any]:
    """Fills in the precision mode that the profile implies."""
    modes = _modes(values)
    if modes is None or any(values.get(option) for option in modes):
        return dict(values)
    return {**values, "precision_mode": modes["precision_mode"][0]}


def problems(values: Mapping[str, Any]) -> Iterator[Tuple[str, str]]:
    """Yields (option, message) for each option that contradicts the profile."""
    modes = _modes(values)
    for option, accepted in (modes or {}).items():
        if values.get(option) not in (None, "", *accepted):
            text = "goes with %s %s, got '%s'" % (option, " or ".join(accepted), values[option])
            yield OPTION, "'%s' %s" % (values[OPTION], text)
    for option in ("npu_shim_amp_level", "npu_shim_white_list", "npu_shim_black_list"):
        if modes is not None and option in values:
            yield option, "cannot go with npu_shim_profile '%s', which has lists of its own" % values[OPTION]


def _modes(values: Mapping[str, Any]) -> Optional[Mapping[str, Tuple[str, ...]]]:
    name = values.get(OPTION)
    return PROFILES[name].modes if name in PROFILES else None
