"""The command `npu-shim migrate-checkpoint` and `scripts/migrate_checkpoint.py`."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any, Sequence

from absl import flags

from npu_shim.checkpoint import selection
from npu_shim.checkpoint.plan import PROFILES, Options, Overflow
from npu_shim.rewriter.errors import ConfigError

USAGE = """Converts a checkpoint to another floating-point dtype.

    npu-shim migrate-checkpoint SRC DST --to float16 [flags]
    npu-shim migrate-checkpoint SRC --to float16 --dry_run
    npu-shim migrate-checkpoint --diff A B

Model tensors are cast; optimizer slots, beta powers, moving averages, batch-norm statistics, loss-scale state and the
global step keep their dtypes. A slot is recognized by its variable; an ambiguous tensor keeps its dtype and is listed.
Exit codes: 0 done, 1 values beyond the new dtype or differences, 2 wrong arguments,
3 files that cannot be read or written.
"""


def define() -> flags.FlagValues:
    """Returns the command's flags, apart from the process's own."""
    own = flags.FlagValues()
    text, yes, many = flags.DEFINE_string, flags.DEFINE_bool, flags.DEFINE_multi_string
    flags.DEFINE_enum("to", None, list(selection.FLOATS), "the new dtype", flag_values=own)
    many("include", [], "regular expression of tensors to cast whatever they are", flag_values=own)
    many("exclude", [], "regular expression of tensors that keep their dtype", flag_values=own)
    many("drop", [], "regular expression of tensors to leave out", flag_values=own)
    yes("drop_optimizer", False, "leave out optimizer slots and beta powers", flag_values=own)
    text("names", None, "JSON file of old to new names", flag_values=own)
    many("rename", [], "'regular expression=>replacement', in order", flag_values=own)
    text("strip_prefix", "", "removed from names that start with it", flag_values=own)
    text("add_prefix", "", "put before every name but global_step", flag_values=own)
    flags.DEFINE_enum("profile", None, sorted(PROFILES), "whose optimizer names the result has", flag_values=own)
    text("beta_prefix", None, "the scope of the beta powers, for example cond_2/", flag_values=own)
    flags.DEFINE_float("init_loss_scale", None, "the loss scale where the source has none", flag_values=own)
    flags.DEFINE_enum("master_copies", "auto", ["auto", "take", "keep", "create"],
                      "OpenSeq2Seq's FP32-master-copy/ tensors", flag_values=own)
    flags.DEFINE_enum("on_overflow", "error", ["error", "inf", "clamp"], "finite values beyond the new dtype",
                      flag_values=own)
    yes("dry_run", False, "print the plan and the range report, write nothing", flag_values=own)
    yes("diff", False, "compare two checkpoints", flag_values=own)
    yes("overwrite", False, "replace a target that exists", flag_values=own)
    yes("verify", True, "read everything again before the target appears", flag_values=own)
    flags.DEFINE_enum("update_state", "no", ["no", "append", "replace"], "the `checkpoint` file beside the target",
                      flag_values=own)
    text("report_json", None, "write plan and range report to this file, '-' for standard output", flag_values=own)
    yes("help", False, "show this help", flag_values=own)
    return own


def main(argv: Sequence[str] | None) -> int:
    """Runs the command.

    Args:
        argv: list of str, without the program's name. Flags may be written with '-' in place of '_'.

    Returns:
        int, the exit code.
    """
    own = define()
    try:
        paths = own(["migrate-checkpoint", *(_underscored(a) for a in argv)])[1:]
        if own.help:
            print(USAGE + own.get_help())
            return 0
        return _diff(paths) if own.diff else _migrate(paths, own)
    except (flags.Error, ConfigError) as error:
        text = str(error)
        print(text if text.startswith("npu_shim: ") else "npu_shim: " + text, file=sys.stderr)
        return 1 if isinstance(error, Overflow) else 2
    except Exception as error:
        if not _is_file_error(error):
            raise
        text = str(error).split("\n")[0]
        print(text if text.startswith("npu_shim: ") else "npu_shim: " + text, file=sys.stderr)
        return 3


def _migrate(paths, own):
    from npu_shim.checkpoint import files, migrate
    from npu_shim.checkpoint.plan import plan

    if len(paths) != 2 - (own.dry_run and len(paths) == 1) or own.to is None:
        raise ConfigError("expected SRC DST --to DTYPE (DST may be left out with --dry_run), got %s" % " ".join(paths))
    options = _options(own)
    if own.report_json not in (None, "", "-"):
        _check_writable(own.report_json)
    if own.dry_run:
        source = files.find(paths[0])
        migration = migrate.scan(source, plan(files.Reader(source).tensors(), options), progress=True)
    else:
        keywords = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
        migration = migrate.migrate_checkpoint(
            paths[0], paths[1], on_overflow=own.on_overflow, overwrite=own.overwrite, verify=own.verify,
            update_state=own.update_state, progress=True, **keywords
        )
    if own.report_json:
        _write_json(own.report_json, migration)
    if own.report_json != "-":
        print(report(migration))
    for warning in migrate.warnings(migration):
        print("npu_shim: " + warning, file=sys.stderr)
    problems = migrate.overflow_problems(migration) if own.on_overflow == "error" else []
    if problems:
        raise Overflow(*problems)
    return 0


def _diff(paths):
    from npu_shim.checkpoint import migrate

    if len(paths) != 2:
        raise ConfigError("expected --diff A B, got %s" % " ".join(paths))
    differing = list(migrate.differences(*paths))
    for name, told in differing:
        print("%s: %s" % (name, told))
    return 1 if differing else 0


def report(migration: Any) -> str:
    """Returns the plan and the range report as text: a line a tensor, then the totals."""
    lines = []
    for a in migration.plan.actions:
        name = a.name if a.name == a.new_name else "%s -> %s" % (a.name, a.new_name)
        dtype = a.dtype if a.dtype == a.new_dtype else "%s -> %s" % (a.dtype, a.new_dtype)
        lines.append("%-6s %s  %s %s  %s" % (a.kind, name, dtype, list(a.shape), a.reason))
        lost = migration.ranges.get(a.name)
        if lost is not None and a.kind == "cast":
            lines.append("       " + _range_text(lost))
    counts = {}
    for a in migration.plan.actions:
        counts[a.kind] = counts.get(a.kind, 0) + 1
    lines.append("total: " + ", ".join("%s %d" % (kind, counts[kind]) for kind in sorted(counts)))
    if migration.ranges:
        lines.append("range: " + _range_text(migration.total()))
    return "\n".join(lines)


def _range_text(lost):
    return "%d values: %d overflow (largest %g), %d flushed to zero, %d subnormal, %d non-finite, worst error %.3g" % (
        lost.count, lost.overflow, lost.largest, lost.flushed, lost.subnormal, lost.non_finite, lost.relative_error
    )


def _write_json(path, migration):
    from npu_shim.checkpoint import migrate

    content = {
        "source": migration.source,
        "actions": [dataclasses.asdict(a) for a in migration.plan.actions],
        "ranges": {name: dataclasses.asdict(lost) for name, lost in migration.ranges.items()},
        "total": dataclasses.asdict(migration.total()),
        "warnings": migrate.warnings(migration),
    }
    text = json.dumps(content, indent=1, sort_keys=True)
    if path == "-":
        print(text)
        return
    with open(path, "w") as file:
        file.write(text + "\n")


def _check_writable(path):
    """Raises OSError if a file cannot be written, before anything else is written."""
    existed = os.path.exists(path)
    with open(path, "a"):
        pass
    if not existed:
        os.remove(path)


def _options(own):
    names = {}
    if own.names:
        try:
            with open(own.names) as file:
                names = json.load(file)
        except ValueError as error:
            raise ConfigError("names: '%s' is not JSON: %s" % (own.names, error)) from error
        if not isinstance(names, dict):
            raise ConfigError("names: '%s' is not an object of old to new names" % own.names)
    wrong = [rule for rule in own.rename if "=>" not in rule]
    if wrong:
        raise ConfigError(*("rename: '%s' has no '=>'" % rule for rule in wrong))
    return Options(
        to=own.to, include=tuple(own.include), exclude=tuple(own.exclude), drop=tuple(own.drop),
        drop_optimizer=own.drop_optimizer, names=names, rename=tuple(tuple(r.split("=>", 1)) for r in own.rename),
        strip_prefix=own.strip_prefix, add_prefix=own.add_prefix, profile=own.profile, beta_prefix=own.beta_prefix,
        init_loss_scale=own.init_loss_scale, master_copies=own.master_copies,
    )


def _underscored(argument):
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


def _is_file_error(error):
    if isinstance(error, OSError):
        return True
    import tensorflow.compat.v1 as tf

    return isinstance(error, tf.errors.OpError)
