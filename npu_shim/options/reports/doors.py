"""What can be asked of a run, when it counts as done, and the lines about what was not. No TensorFlow.

A door is something that can be asked by several names: the engine by a flag, a variable, `enable` and an option of a
config. `FLAGS`, `OPTIONS` and `ENVIRONMENT` say for each name its door, or why it cannot be without effect unseen.
"""

from __future__ import annotations

import collections
import json
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence

from npu_shim.options import table
from npu_shim.options.reports import ledger
from npu_shim.options.reports.ledger import Fact

MODE, SET, ENGINE, REPORT, CALIBRATE = "--precision-mode", "--set", "--engine", "--report", "--calibrate"
SCALE, JAX, VERBOSE, MASTERS, RESTORE = "--loss-scale", "--jax", "--verbose", "--master-weights", "--restore-casting"
DEVICES = "--devices"
Facts = Mapping[str, Sequence[str]]  # kind -> details, as they came
NO_STEP = (
    "no run of a session updates variables. A training step is a run that fetches a training op; where a script "
    "fetches the loss and its gradients and applies them itself (tf.contrib.opt.ScipyOptimizerInterface), there is none"
)


class Door(NamedTuple):
    """Something that can be asked.

    Attributes:
        takes: what it does where it is met, of the form "lowers the graphs of sessions".
        session: the kind of fact that says that a session has met it, "" where none need to.
        missed: function of Facts that returns why it had no effect in what the sessions ran, "" where it had one.
    """

    takes: str
    session: str
    missed: Callable[[Facts], str]


def _mode(facts: Facts) -> str:
    if facts.get(ledger.LOWERED_IN_TRAINING):
        return ""
    kept = facts.get(ledger.KEPT_IN_TRAINING)
    if kept:
        return "lowered nothing in a training step: %s" % kept[0]
    return "lowered nothing: %s" % facts[ledger.KEPT][0] if ledger.KEPT in facts and ledger.LOWERED not in facts else ""


def _engine(facts: Facts) -> str:
    if ledger.TAKEN in facts:
        return ""
    known = facts.get(ledger.LEFT) or facts.get(ledger.SMALL) or [NO_STEP]
    more = " (and %d others)" % (len(known) - 1) if len(known) > 1 else ""
    return "has taken no training step, the session ran all: %s%s" % (known[0], more)


def _scale(facts: Facts) -> str:
    if ledger.SCALED in facts:
        return ""
    if ledger.UNSCALED in facts:
        return "has scaled no loss: %s" % facts[ledger.UNSCALED][0]
    if ledger.WITHOUT_FLOAT16 in facts:
        return "has scaled no loss: the precision mode computes nothing in float16"
    return "has scaled no loss: no optimizer of the script applies gradients"


def _needs(kind: str, otherwise: str) -> Callable[[Facts], str]:
    return lambda facts: "" if kind in facts else otherwise


def _told_elsewhere(_: Facts) -> str:
    return ""


DOORS = {
    "mode": Door("lowers the graphs of sessions", ledger.SESSION, _mode),
    "options": Door("overrides the options of sessions", ledger.SESSION, _told_elsewhere),
    "engine": Door(
        "runs the training steps of sessions that name no engine themselves", ledger.FREE_SESSION, _engine
    ),
    "own engine": Door("runs the training steps of sessions", ledger.SESSION, _engine),
    "devices": Door("divides the training steps of sessions among devices", ledger.SESSION, _engine),
    "shares": Door(
        "divides variables among devices", ledger.SESSION,
        _needs(ledger.SHARED, "had no effect: no training step ran on several devices (--devices)"),
    ),
    "ahead": Door(
        "reads the batches of steps ahead", ledger.SESSION,
        _needs(ledger.AHEAD, "had no effect: no training step of the engine reads an iterator that can be read ahead"),
    ),
    "worker": Door(
        "runs the engine's programs", ledger.SESSION, _needs(ledger.TAKEN, "was not needed: no step ran on the engine")
    ),
    "report": Door("shows the graphs of sessions", ledger.SESSION, _told_elsewhere),
    "calibrate": Door("measures the training steps of sessions", ledger.SESSION, _told_elsewhere),
    "scale": Door("scales the losses of optimizers", ledger.SESSION, _scale),
    "step": Door(
        "changes the programs of the engine", ledger.SESSION,
        _needs(ledger.TAKEN, "had no effect: it is for programs, and no training step of a session ran as one (engine "
               "pjrt)"),
    ),
    "clusters": Door(
        "compiles clusters of sessions", ledger.SESSION, _needs(ledger.CLUSTERS, "had no effect: XLA found no cluster")
    ),
    "watch": Door(
        "adds to the summaries of sessions", ledger.SESSION,
        _needs(ledger.WATCHED, "had no effect: no run fetched a merged summary of a training step"),
    ),
    "dump": Door(
        "writes the tensors of sessions", ledger.SESSION,
        _needs(ledger.DUMPED, "has written nothing: dump_step names none of the steps that ran"),
    ),
    "masters": Door(
        "gives 16-bit variables float32 masters", "",
        _needs(ledger.MASTERED, "had no effect: no optimizer of the script updates a 16-bit variable"),
    ),
    "restore": Door(
        "casts what Savers restore", "",
        _needs(ledger.CASTING, "had no effect: the script made no tf.train.Saver, or only some with builders"),
    ),
    "profile": Door("profiles sessions", ledger.SESSION, _needs(ledger.PROFILED, "has written no profile")),
    "repeat": Door(
        "repeats training steps", ledger.SESSION,
        _needs(ledger.REPEATED, "had no effect: NPUEstimator repeats steps, and util.set_iteration_per_loop in "
               "sessions; the key alone does not"),
    ),
}  # fmt: skip

FLAGS = {
    MODE: "mode", SET: "options", ENGINE: "engine", REPORT: "report", CALIBRATE: "calibrate", SCALE: "scale",
    JAX: "worker", MASTERS: "masters", RESTORE: "restore", DEVICES: "devices",
}  # fmt: skip
FLAGS_WITHOUT_DOOR = {VERBOSE: "shows what there is"}
# an option of a session -> its door
OPTIONS = {
    "precision_mode": "mode", "precision_mode_v2": "mode", "npu_shim_amp_level": "mode",
    "npu_shim_engine": "own engine", "npu_shim_recompute": "step", "npu_shim_attention": "step",
    "npu_shim_xla": "clusters", "npu_shim_devices": "devices", "npu_shim_shard_state": "shares",
    "npu_shim_prefetch": "ahead",
    "npu_shim_watch": "watch", "enable_dump": "dump", "enable_dump_debug": "dump", "profiling_mode": "profile",
    "iterations_per_loop": "repeat",
}  # fmt: skip
_NAMED = "a name that meets nothing is told when a graph is planned"
_PART = "a part of %s, whose line tells"
OPTIONS_WITHOUT_DOOR = {
    "modify_mixlist": _NAMED, "customize_dtypes": _NAMED, "npu_shim_white_list": _NAMED, "npu_shim_black_list": _NAMED,
    "graph_run_mode": "chooses the mode of scripts that ask for none, and each graph's line names its mode",
    "hccl_timeout": "a limit, whose error names it",
    "profiling_options": _PART % "profiling_mode",
    "dump_path": _PART % "enable_dump", "dump_step": _PART % "enable_dump", "dump_mode": _PART % "enable_dump",
    "dump_data": _PART % "enable_dump", "dump_layer": _PART % "enable_dump",
    "use_off_line": "its False is an answer: nothing is done",
    "npu_shim_profile": "a table, which every graph is planned by",
    "npu_shim_ops_info_dir": "a table, which every graph is planned by",
    "npu_shim_saturate": "a line says what it does as it is read",
    "npu_shim_xla_cache": "a folder, which shows what it holds",
    "npu_shim_programs": "a limit",
    "npu_shim_verify": "checks every graph",
    "npu_shim_dump_graphs": "a folder, which shows what it holds",
}  # fmt: skip
ACCEPTED = "a line says, when the session is made, that it has no effect here"
ESTIMATORS = "an argument of NPURunConfig, which tf.estimator takes as its own or NPUEstimator turns into keys"
# a variable -> its door
ENVIRONMENT = {
    "NPU_SHIM_ENGINE": "engine", "NPU_SHIM_OPTIONS": "options", "NPU_SHIM_XLA": "clusters",
    "NPU_SHIM_RESTORE_CASTING": "restore", "NPU_SHIM_MASTER_WEIGHTS": "masters",
    "NPU_SHIM_RECOMPUTE": "step", "NPU_SHIM_ATTENTION": "step", "NPU_SHIM_DEVICES": "devices",
    "NPU_SHIM_SHARD_STATE": "shares", "NPU_SHIM_PREFETCH": "ahead",
}  # fmt: skip
_OURS = "set by npu-shim itself"
_FOLDER = "a folder or a file, which shows what it holds"
_SWITCH = "a switch of what npu-shim does to every script"
_JOB = "describes the job, which is an error where it is incomplete"
ENVIRONMENT_WITHOUT_DOOR = {
    "NPU_SHIM_LOG": _SWITCH, "NPU_SHIM_VERBOSE": _SWITCH, "NPU_SHIM_ALIASES": _SWITCH, "NPU_SHIM_CHILDREN": _SWITCH,
    "NPU_SHIM_PICKLES": _SWITCH, "NPU_SHIM_TRACE": _FOLDER, "NPU_SHIM_XLA_CACHE": _FOLDER, "NPU_SHIM_CACHE": _FOLDER,
    "NPU_SHIM_DUMP_GRAPHS": _FOLDER, "NPU_SHIM_REPORT": _OURS, "NPU_SHIM_CALIBRATE": _OURS,
    "NPU_SHIM_CALIBRATION": _OURS, "NPU_SHIM_TRIAL": _OURS, "NPU_SHIM_REQUESTS": _OURS,
    "NPU_SHIM_VERIFY": "checks every graph", "NPU_SHIM_OPS_INFO_DIR": "a table, which every graph is planned by",
    "NPU_SHIM_JAX": "names an interpreter for what may need one, in a profile of the shell",
    "NPU_SHIM_STEP": "a line tells that it has no effect", "NPU_SHIM_RANKS": "for jobs of several ranks",
    "NPU_SHIM_ONE_JOB": _OURS, "NPU_SHIM_HOSTS": _JOB, "NPU_SHIM_PORT": _JOB,
    "NPU_SHIM_BUCKET_MB": "a size, for jobs of several ranks", "NPU_SHIM_GRADIENT_DTYPE": "for jobs of several ranks",
    "NPU_SHIM_GRADIENT_SUMS": "for jobs of several ranks", "NPU_SHIM_GPU_COLLECTIVES": "for jobs of several ranks",
}  # fmt: skip
# what is asked by a word that asks for nothing: sessions do that anyway
NOTHING = {
    "engine": ("auto", "session"), "own engine": ("auto", "session"), "scale": ("auto", "off"), "step": ("auto",),
    "devices": ("1",), "shares": ("off",), "ahead": ("auto", "0"),
    "clusters": ("auto", "off"),
    "repeat": ("1",), "masters": ("0",), "restore": ("0",),
}  # fmt: skip


def of_option(name: str, value: Any) -> str | None:
    """Returns the door that an option's value asks for, None where it asks for none."""
    door = OPTIONS.get(name)
    known = table.options().get(name)
    if door is None or value in (None, "", False) or (known is not None and value == known.default):
        return None
    return None if str(value) in NOTHING.get(door, ()) else door


def asked_by(name: str, word: str) -> list[tuple[str, str, str]]:
    """Returns what a flag or a variable with its word asks: (name, word, door) each, none where it asks for nothing."""
    door = FLAGS.get(name) or ENVIRONMENT.get(name)
    if door is None or word in NOTHING.get(door, ()):
        return []
    option, _, value = word.partition("=")
    inner = of_option(option, value) if door == "options" else None
    return [(name, word, inner or door)]


def is_met(facts: Iterable[Fact], door: str) -> bool:
    """Whether a session has met what a door asks."""
    return not DOORS[door].session or any(fact.kind == DOORS[door].session for fact in facts)


def lines(facts: Sequence[Fact], asked: Iterable[tuple[str, str, str]] = ()) -> list[str]:
    """Returns a line for each request without an effect, and for each loss scale that has skipped steps.

    Args:
        facts: what happened, and what configs asked.
        asked: (name, word, key of DOORS) of what else was asked, as by the command line.
    """
    by_kind: dict[str, list[str]] = {}
    for fact in facts:
        by_kind.setdefault(fact.kind, []).append(fact.detail)
    inner = (tuple(json.loads(text)) for text in by_kind.get(ledger.ASKED, ()))
    wanted = dict.fromkeys([*asked, *inner])
    skipping = collections.Counter(map(_of_steps, _skipping(by_kind)))
    counted = [line + (" (in each of %d sessions)" % count if count > 1 else "") for line, count in skipping.items()]
    return [*_unanswered(wanted, by_kind), *counted]


def _unanswered(wanted: Iterable[tuple[str, str, str]], facts: Facts) -> Iterator[str]:
    none = (
        "%s %s has reached no session: it %s, and the script ran none. Eager execution and tf.function make none: this "
        "is for the graphs and sessions of TensorFlow 1"
    )
    unread = (
        "%s %s has reached no session: it %s that name NpuOptimizer, or of which something is asked (--precision-mode, "
        "--engine, --set), and the script ran none"
    )
    for name, word, key in wanted:
        door = DOORS[key]
        if door.session and door.session not in facts:
            yield (unread if name in ENVIRONMENT else none) % (name, word, DOORS[FLAGS.get(name, key)].takes)
        elif door.missed(facts):
            yield " ".join(filter(None, (name, word, door.missed(facts))))


def _skipping(facts: Facts) -> Iterator[list[Any]]:
    for text in facts.get(ledger.STEPS, ()):
        steps, _ = json.loads(text)
        if steps[1]:
            yield steps


def _of_steps(steps: Sequence[Any]) -> str:
    attempted, skipped, stuck, first, last, scale = steps
    share = "all %d" % attempted if skipped == attempted else "%d of %d" % (skipped, attempted)
    where = "step %d" % first if first == last else "step %d the first, step %d the last" % (first, last)
    now = "" if scale is None else "; the loss scale is %g now" % scale
    end = ("; the loss scale" if scale is None else ", and") + " is stuck at its smallest" if stuck else ""
    return "%s training steps were skipped, since their gradients overflowed: %s%s%s" % (share, where, now, end)
