"""Resolves a session's options into the rewriter's inputs: a policy and an op table."""

import functools
import os
from dataclasses import dataclass, replace
from typing import Any, Callable, Iterable, Mapping, Optional, Tuple

from npu_shim import configs
from npu_shim.options import amp, profiles
from npu_shim.options.ops import customize, mixlist, op_names
from npu_shim.options.ops.customize import Customized
from npu_shim.options.ops.op_names import Unmatched
from npu_shim.options.profiles import PROFILES
from npu_shim.options.table import validate
from npu_shim.rewriter.errors import ConfigError, nearest, shortened
from npu_shim.rewriter.tables import op_table
from npu_shim.rewriter.tables.op_table import OpTable
from npu_shim.rewriter.tables.policy import DEFAULT_MODE, PRECISION_MODE, PRECISION_MODE_V2, Action, PrecisionPolicy

RUN_MODE = "graph_run_mode"
OPS_INFO_DIR = "npu_shim_ops_info_dir"
SATURATE = "npu_shim_saturate"


@dataclass(frozen=True)
class Precision:
    """Resolved options: the policy of the mode, the op table with the user's lists applied, and the messages.

    Attributes:
        policy: of the mode.
        table: of the profile, with the changes of an amp level and of a mixlist.
        warnings: raised while the options were read.
        missing: op types of the user's files that stand for no op.
        matched: one line for each op type of a mixlist: the ops it stands for and how their lists changed.
        customized: the requests of customize_dtypes, or None.
    """

    policy: PrecisionPolicy
    table: OpTable
    warnings: Tuple[str, ...] = ()
    missing: Tuple[Unmatched, ...] = ()
    matched: Tuple[str, ...] = ()
    customized: Optional[Customized] = None

    @property
    def unmatched(self) -> Tuple[str, ...]:
        """Returns one line for each of `missing`."""
        return self.unmatched_in(None)

    def unmatched_in(self, op_counts: Optional[Mapping[str, int]]) -> Tuple[str, ...]:
        """Returns one line for each of `missing`, with the number of nodes that its nearest name would have met.

        Args:
            op_counts: number of nodes of the graph by op type.
        """
        return tuple(op_names.describe(missing, op_counts) for missing in self.missing)


def resolve(values: Mapping[str, Any]) -> Precision:
    """Resolves the precision options: checks the values, then reads the files that they name.

    Args:
        values: option name -> value, as `table.read_values` and `table.of_keywords` return them; the options read here
            are precision_mode, precision_mode_v2, graph_run_mode, modify_mixlist, customize_dtypes, npu_shim_profile,
            npu_shim_ops_info_dir, npu_shim_amp_level, npu_shim_white_list, npu_shim_black_list and npu_shim_saturate.

    Raises:
        ConfigError: the first problem of `table.validate`, or a file that cannot be read.
    """
    full = validate(values)
    chosen = shipped(full)
    for step in STEPS:
        chosen = step(full, chosen)
    return chosen


def speaks_of_ops(values: Mapping[str, Any]) -> bool:
    """Whether options speak of single ops or op types: these must reach the rewriter as the script built them."""
    named = (OPS_INFO_DIR, amp.WHITE, amp.BLACK, mixlist.OPTION, customize.OPTION)
    return any(values.get(name) for name in named) or bool(os.environ.get("NPU_SHIM_OPS_INFO_DIR"))


def shipped(values: Mapping[str, Any]) -> Precision:
    """Returns the policy of the mode and the op table of the profile, before any of the user's files is read."""
    table = profile_table(values.get(profiles.OPTION) or "ascend910")
    return Precision(policy_of(values), table, table.warnings)


def _read_op_information(values: Mapping[str, Any], chosen: Precision) -> Precision:
    folder = values.get(OPS_INFO_DIR) or os.environ.get("NPU_SHIM_OPS_INFO_DIR")
    if not folder:
        return chosen
    table = profile_table(chosen.table.profile, folder)
    return replace(chosen, table=table, warnings=tuple(map(shortened, table.warnings)))


def _apply_amp_level(values: Mapping[str, Any], chosen: Precision) -> Precision:
    return replace(chosen, table=chosen.table.with_lists(amp.changes(values, chosen.table)))


def _apply_mixlist(values: Mapping[str, Any], chosen: Precision) -> Precision:
    if not values.get(mixlist.OPTION):
        return chosen
    merged = mixlist.merge(mixlist.read(values[mixlist.OPTION]), chosen.table)
    matched = tuple(map(mixlist.describe_match, merged.matched))
    return _add_messages(replace(chosen, table=merged.table, matched=matched), merged.warnings, merged.unmatched)


def _read_customize_dtypes(values: Mapping[str, Any], chosen: Precision) -> Precision:
    if not values.get(customize.OPTION):
        return chosen
    read = customize.read(values[customize.OPTION], chosen.table)
    if chosen.policy.unsupported is Action.KEEP:
        without = "%s: has no effect with %s, as in the original" % (customize.OPTION, chosen.policy.name)
        return _add_messages(chosen, (*read.warnings, without), read.unmatched)
    return _add_messages(replace(chosen, customized=read), read.warnings, read.unmatched)


def _read_saturation(values: Mapping[str, Any], chosen: Precision) -> Precision:
    if not values.get(SATURATE):
        return chosen
    text = (
        "%s: float16 results stop at 65504, so that no overflow leaves infinity: loss-scale managers, float status and "
        "the search for overflows see none, and no step is skipped" % SATURATE
    )
    return replace(chosen, policy=replace(chosen.policy, saturates=True), warnings=(*chosen.warnings, text))


def _add_messages(chosen: Precision, warnings: Iterable[str], missing: Iterable[Unmatched]) -> Precision:
    said = (*chosen.warnings, *map(shortened, warnings))
    return replace(chosen, warnings=said, missing=(*chosen.missing, *missing))


# the user's files and lists are applied in this order; `checking` runs the steps one by one to find every problem
STEPS: Tuple[Callable[[Mapping[str, Any], Precision], Precision], ...] = (
    _read_op_information, _apply_amp_level, _apply_mixlist, _read_customize_dtypes, _read_saturation,
)  # fmt: skip


def policy_of(values: Mapping[str, Any]) -> PrecisionPolicy:
    """Returns the policy of precision_mode or precision_mode_v2, else graph_run_mode's (0 inference, 1 training)."""
    if values.get("precision_mode"):
        return PRECISION_MODE[values["precision_mode"]]
    if values.get("precision_mode_v2"):
        return PRECISION_MODE_V2[values["precision_mode_v2"]]
    run_mode = values.get(RUN_MODE)
    return PRECISION_MODE[DEFAULT_MODE[1 if run_mode is None else run_mode]]


def profile_table(profile: str, folder: Optional[str] = None) -> OpTable:
    """Returns the op table of a profile.

    Args:
        profile: one of PROFILES.
        folder: where to read op information files instead of the shipped ones: all its *.json files in the order of
            their names. Changed files are read again.

    Raises:
        ConfigError: no such profile; (INTERNAL) no such folder, no file in it, or a file that cannot be read.
    """
    if profile not in PROFILES:
        known = ", ".join(PROFILES) + nearest(profile, PROFILES)
        raise ConfigError("profile '%s', expected one of %s" % (profile, known))
    where = folder or configs.folder(PROFILES[profile].folder)
    try:
        names = sorted(name for name in os.listdir(where) if name.endswith(".json"))
        paths = [os.path.join(where, name) for name in names]
        stats = [os.stat(path) for path in paths]
    except (OSError, ValueError) as reason:
        what = getattr(reason, "strerror", None) or reason
        raise ConfigError("ops_info_dir: '%s' cannot be read: %s" % (where, what), code="INTERNAL") from reason
    if not paths:
        hint = "npu-shim ops --copy-to makes a copy to edit"
        raise ConfigError("ops_info_dir: '%s' has no op information file (*.json); %s" % (where, hint), code="INTERNAL")
    stamps = tuple((path, stat.st_mtime_ns, stat.st_size) for path, stat in zip(paths, stats))
    return _build_table(profile, stamps)


@functools.lru_cache(maxsize=8)
def _build_table(profile: str, stamps: Tuple[Tuple[str, int, int], ...]) -> OpTable:
    variants = configs.load("ascend_names.json")["variants"]
    chosen = PROFILES[profile]
    try:
        table = op_table.build(profile, [path for path, _, _ in stamps], variants, all_dtypes=chosen.all_dtypes)
        return replace(table, rule=chosen.rule)
    except ConfigError as reason:
        raise ConfigError(*("ops_info_dir: %s" % p for p in reason.problems), code="INTERNAL") from reason
