"""Plans a migration: one action for each tensor, decided from names, dtypes and shapes alone.

Worked line: tensors + Options -> plan -> MigrationPlan, one Action for each tensor that is read or created.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Mapping, Sequence

from npu_shim.checkpoint import selection
from npu_shim.rewriter.errors import ConfigError, nearest

MASTER_COPY = "FP32-master-copy/"  # OpenSeq2Seq's prefix
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
BETA_POWER = re.compile(r"^((?:.*?/)??)(?:cond(?:_\d+)?/)?(beta[12]_power(?:_\d+)?)$")
# a second manager's variables end in _1, a third's in _2
SCALE = re.compile(r"^((?:.*/)?)(?:current_)?loss_scale((?:_\d+)?)$")
COUNTER = re.compile(r"^(?:.*/)?(good_steps|bad_steps)(?:_\d+)?$")


class Overflow(ConfigError):
    """Finite values exceed the range of the new dtype, and no option says how to treat them."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """The names that one kind of optimizer writes.

    Attributes:
        beta_prefix: str, the scope of Adam's beta powers; the number in it depends on the graph.
        scale: str, the name of the loss scale, "" when it has none.
        counters: dict of the loss-scale counters' names to their dtypes.
    """

    beta_prefix: str
    scale: str
    counters: Mapping[str, str]


PROFILES = {
    "plain": Profile("", "", {}),
    "npu": Profile("", "loss_scale", {"good_steps": "int32", "bad_steps": "int32"}),
    "contrib": Profile("cond/", "loss_scale", {"good_steps": "int32", "bad_steps": "int32"}),
    "experimental": Profile("cond_1/", "current_loss_scale", {"good_steps": "int64"}),
}


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """A tensor in a checkpoint. dtype: str, TensorFlow's name. shape: tuple of int."""

    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a migration.

    Attributes:
        to: "float16", "bfloat16" or "float32".
        include: regular expressions; a matching tensor is cast whatever its kind.
        exclude: regular expressions; a matching tensor keeps its dtype, even if it is included.
        drop: regular expressions; a matching tensor is dropped.
        drop_optimizer: bool, drop slots and beta powers.
        names: dict of exact old to new names.
        rename: tuple of (regular expression, replacement), applied in order to names that `names` lacks.
        strip_prefix: str, removed from the names that start with it.
        add_prefix: str, put before every name but the global step's.
        profile: None or one of PROFILES, whose names the result has.
        beta_prefix: None, or the scope of the beta powers in place of the profile's.
        init_loss_scale: None, or the float32 loss scale to create when the source has none.
        master_copies: "take" puts OpenSeq2Seq's float32 master copies in place of their variables, "create" adds them,
            "keep" treats them as other tensors, "auto" is "take" when widening and "keep" when narrowing.
    """

    to: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    drop_optimizer: bool = False
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rename: tuple[tuple[str, str], ...] = ()
    strip_prefix: str = ""
    add_prefix: str = ""
    profile: str | None = None
    beta_prefix: str | None = None
    init_loss_scale: float | None = None
    master_copies: str = "auto"


@dataclasses.dataclass(frozen=True)
class Action:
    """The action for one tensor.

    Attributes:
        kind: "cast", "keep", "drop" or "create".
        name: str, in the source; for "create" in the result.
        new_name: str, in the result.
        dtype: str, in the source.
        new_dtype: str, in the result.
        shape: tuple of int.
        reason: str.
        value: the scalar of a "create", else None.
    """

    kind: str
    name: str
    new_name: str
    dtype: str
    new_dtype: str
    shape: tuple[int, ...]
    reason: str
    value: Any = None


@dataclasses.dataclass(frozen=True)
class MigrationPlan:
    """One Action for each tensor, sorted by the name in the result.

    Attributes:
        options: those of the migration.
        actions: tuple of Action.
        ambiguous: names that could be a model's or an optimizer's; these are neither narrowed nor dropped.
    """

    options: Options
    actions: tuple[Action, ...]
    ambiguous: tuple[str, ...] = ()

    def kept(self) -> tuple[Action, ...]:
        """Returns the actions whose tensor is in the result."""
        return tuple(a for a in self.actions if a.kind != "drop")


def plan(tensors: dict[str, TensorInfo], options: Options) -> MigrationPlan:
    """Decides the action for each of `tensors` (name -> TensorInfo).

    Raises:
        ConfigError: with every problem: options out of range, rules that match nothing, two tensors with one new name.
    """
    problems = _check_forms(options) or _check_options(options) or _check_rules_match(tensors, options)
    if problems:
        raise ConfigError(*problems)
    kinds = selection.Kinds(tensors)
    actions = [_action(name, tensors, options, kinds.of(name)) for name in sorted(tensors)]
    ambiguous = tuple(a.name for a in actions if _is_ambiguous(a, options, kinds.of(a.name)))
    if _master_copies(options) == "take":
        actions = _replace_by_masters(actions)
    if _master_copies(options) == "create":
        actions += [_create_master(a) for a in actions if a.kind == "cast"]
    actions += _missing_state(actions, options)
    problems = _check_new_names(actions)
    if problems:
        raise ConfigError(*problems)
    return MigrationPlan(options, tuple(sorted(actions, key=lambda a: (a.new_name, a.name))), ambiguous)


def _check_forms(options: Options) -> list[str]:
    """What a caller from Python may have written otherwise: text is a sequence of patterns of one letter each."""
    expected = dict.fromkeys(("include", "exclude", "drop"), "patterns")
    expected["rename"] = "pairs (pattern, replacement)"
    given = {name: getattr(options, name) for name in expected}
    problems = [
        "%s: expected a list of %s, got %r" % (name, expected[name], value)
        for name, value in given.items()
        if not isinstance(value, (tuple, list)) or not all(_has_form(entry, name) for entry in value)
    ]
    if not isinstance(options.names, Mapping):
        problems.append("names: expected a dict of old to new names, got %r" % (options.names,))
    return problems


def _has_form(entry: Any, name: str) -> bool:
    if name != "rename":
        return isinstance(entry, str)
    return isinstance(entry, (tuple, list)) and len(entry) == 2 and all(isinstance(part, str) for part in entry)


def _check_options(options: Options) -> list[str]:
    problems = []
    choices = (
        ("to", options.to, selection.FLOATS),
        ("profile", options.profile, (None, *PROFILES)),
        ("master_copies", options.master_copies, ("auto", "take", "keep", "create")),
    )
    for option, value, accepted in choices:
        if value not in accepted:
            names = [a for a in accepted if a]
            problems.append("%s: '%s' is not one of %s%s" % (option, value, ", ".join(names), nearest(value, names)))
    for pattern in (*options.include, *options.exclude, *options.drop, *(old for old, _ in options.rename)):
        try:
            re.compile(pattern)
        except re.error as error:
            problems.append("'%s' is not a regular expression: %s" % (pattern, error))
    wrong = [name for pair in options.names.items() for name in pair if not isinstance(name, str)]
    problems += ["names: %r is not a name, expected text" % (name,) for name in wrong]
    if options.init_loss_scale is not None and not 1 <= options.init_loss_scale <= 2.0**127:
        problems.append("init_loss_scale: %r is outside of 1 to 2**127" % options.init_loss_scale)
    return problems


def _check_rules_match(tensors: Mapping[str, TensorInfo], options: Options) -> list[str]:
    patterns = [("include", p) for p in options.include] + [("exclude", p) for p in options.exclude]
    patterns += [("drop", p) for p in options.drop] + [("rename", old) for old, _ in options.rename]
    problems = [
        "%s: '%s' matches no tensor" % (option, pattern)
        for option, pattern in patterns
        if not any(re.search(pattern, name) for name in tensors)
    ]
    unknown = sorted(set(options.names) - set(tensors))
    problems += ["names: there is no tensor '%s'%s" % (name, nearest(name, tensors)) for name in unknown]
    if options.strip_prefix and not any(name.startswith(options.strip_prefix) for name in tensors):
        problems.append("strip_prefix: no tensor starts with '%s'" % options.strip_prefix)
    return problems


def _action(name: str, tensors: Mapping[str, TensorInfo], options: Options, kind: selection.Kind | None) -> Action:
    info = tensors[name]
    dropped = _reason_to_drop(name, options, kind)
    if dropped:
        return Action("drop", name, name, info.dtype, info.dtype, info.shape, dropped)
    new_name = _new_name(name, options)
    profile = _profile(options)
    counter = profile.counters.get(COUNTER.sub(r"\1", name)) if profile else None
    if counter and counter != info.dtype:
        return Action("cast", name, new_name, info.dtype, counter, info.shape, "as %s counts" % options.profile)
    reason = _reason_to_keep(name, tensors, options, kind)
    if reason:
        return Action("keep", name, new_name, info.dtype, info.dtype, info.shape, reason)
    included = _first_match(options.include, name)
    reason = "included by '%s'" % included if included else "model tensor"
    return Action("cast", name, new_name, info.dtype, options.to, info.shape, reason)


def _is_ambiguous(action: Action, options: Options, kind: selection.Kind | None) -> bool:
    told = _first_match((*options.include, *options.exclude), action.name)
    matters = options.drop_optimizer or action.reason.startswith("perhaps ")
    return kind is not None and not kind.certain and action.kind != "drop" and matters and not told


def _reason_to_drop(name: str, options: Options, kind: selection.Kind | None) -> str | None:
    pattern = _first_match(options.drop, name)
    if pattern:
        return "dropped by '%s'" % pattern
    if options.drop_optimizer and kind is not None and selection.is_optimizer_state(kind):
        return kind.text
    profile = _profile(options)
    if profile and (
        (SCALE.match(name) and not profile.scale)
        or (COUNTER.match(name) and COUNTER.sub(r"\1", name) not in profile.counters)
    ):
        return "%s has no such state" % options.profile
    return None


def _reason_to_keep(
    name: str, tensors: Mapping[str, TensorInfo], options: Options, kind: selection.Kind | None
) -> str | None:
    kept = selection.reason_to_keep(name, tensors, options.to, kind)
    castable = tensors[name].dtype in selection.FLOATS and tensors[name].dtype != options.to
    excluded = castable and _first_match(options.exclude, name)
    if excluded:
        return "excluded by '%s'" % excluded
    return None if castable and _first_match(options.include, name) else kept


def _new_name(name: str, options: Options) -> str:
    if name in options.names:
        return options.names[name]
    if name == OBJECT_GRAPH:
        return name
    new = name
    profile = _profile(options)
    if profile:
        prefix = profile.beta_prefix if options.beta_prefix is None else options.beta_prefix
        new = BETA_POWER.sub(lambda match: match.group(1) + prefix + match.group(2), new)
        new = SCALE.sub(lambda match: match.group(1) + profile.scale + match.group(2), new)
    for pattern, replacement in options.rename:
        try:
            new = re.sub(pattern, replacement, new)
        except (re.error, IndexError) as error:
            raise ConfigError("rename: '%s' cannot replace '%s': %s" % (replacement, pattern, error)) from error
    if options.strip_prefix and new.startswith(options.strip_prefix):
        new = new[len(options.strip_prefix):]
    return new if new == "global_step" else options.add_prefix + new


def _profile(options: Options) -> Profile | None:
    return PROFILES[options.profile] if options.profile else None


def _first_match(patterns: Sequence[str], name: str) -> str | None:
    return next((p for p in patterns if re.search(p, name)), None)


def _master_copies(options: Options) -> str:
    if options.master_copies == "auto":
        return "take" if options.to == "float32" else "keep"
    return options.master_copies


def _replace_by_masters(actions: Sequence[Action]) -> list[Action]:
    """Renames each float32 master copy to its variable, which is dropped."""
    by_name = {a.name: a for a in actions}
    taken = {a.name[len(MASTER_COPY):]: a for a in actions if a.name.startswith(MASTER_COPY) and a.kind != "drop"}
    result = []
    for action in actions:
        if action.name in taken:
            result.append(dataclasses.replace(action, kind="drop", new_name=action.name, new_dtype=action.dtype,
                                              reason="its float32 master copy takes its place"))
        elif action in taken.values():
            variable = action.name[len(MASTER_COPY):]
            new_name = by_name[variable].new_name if variable in by_name else variable
            result.append(dataclasses.replace(action, new_name=new_name,
                                              reason="float32 master copy of '%s'" % variable))
        else:
            result.append(action)
    return result


def _create_master(action: Action) -> Action:
    return dataclasses.replace(action, kind="keep", new_name=MASTER_COPY + action.new_name, new_dtype=action.dtype,
                               reason="float32 master copy of '%s'" % action.name)


def _missing_state(actions: Sequence[Action], options: Options) -> list[Action]:
    """Returns the loss-scale state to create: the scale if requested, and a profile's counters beside every scale."""
    if options.profile is None and options.init_loss_scale is None:
        return []
    profile = _profile(options) or PROFILES["npu"]
    present = {a.new_name for a in actions if a.kind != "drop"}
    scale = options.add_prefix + profile.scale
    created = []
    if options.init_loss_scale is not None and profile.scale and scale not in present:
        created.append(_create_scalar(scale, "float32", float(options.init_loss_scale)))
    scales = (SCALE.match(name) for name in (*present, *(a.new_name for a in created)))
    for scope, number in sorted({scale.groups() for scale in scales if scale}):
        counters = {scope + name + number: dtype for name, dtype in profile.counters.items()}
        created += [_create_scalar(name, dtype, 0) for name, dtype in sorted(counters.items()) if name not in present]
    return created


def _create_scalar(name: str, dtype: str, value: float) -> Action:
    return Action("create", name, name, dtype, dtype, (), "the source has none", value)


def _check_new_names(actions: Sequence[Action]) -> list[str]:
    owners: dict[str, Any] = {}
    for action in actions:
        if action.kind != "drop":
            owners.setdefault(action.new_name, []).append(action.name)
    problems = [
        "the new name '%s' belongs to %s" % (new, " and ".join("'%s'" % n for n in names))
        for new, names in sorted(owners.items())
        if len(names) > 1
    ]
    if not owners:
        problems.append("no tensor is left")
    return problems + (["an empty name is left for %s" % owners[""]] if "" in owners else [])
