"""npu-shim ops [OP]: the op table, one op or all; a copy to edit."""

from __future__ import annotations

import argparse
import os
import shutil

from npu_shim.pjrt import atomic_write
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.tables.op_table import Entry, OpTable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument("op", metavar="OP", nargs="?", help="an op type: Ascend's name, a variant, or TensorFlow's")
    parser.add_argument("--profile", metavar="P", help="ascend910 (default), gpu, grappler or grappler_1.15")
    parser.add_argument("--ops-info-dir", metavar="DIR", help="read the op information files of this folder instead")
    parser.add_argument("--copy-to", metavar="DIR", help="copy the files to a new folder, to be edited there")


def main(args: argparse.Namespace) -> int:
    """Prints one op, or all of them as a table; or makes the copy. Returns the exit status."""
    from npu_shim.options import precision

    folder = args.ops_info_dir or os.environ.get("NPU_SHIM_OPS_INFO_DIR") or None
    table = precision.profile_table(args.profile or "ascend910", folder)
    if args.copy_to:
        print(copied(table, args.copy_to))
        return 0
    for warning in table.warnings:
        print("warning: %s" % warning)
    print("\n".join(described(table, args.op) if args.op else listed(table)))
    return 0


def copied(table: OpTable, folder: str) -> str:
    """Copies the files of a table to a folder that is new or empty; all of them or none.

    Args:
        table: an OpTable.
        folder: path; its parent must exist.

    Returns:
        One line about the copy.

    Raises:
        ConfigError: there is something already, or it cannot be written.
    """
    if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        raise ConfigError("--copy-to %s: exists already, and nothing is overwritten" % folder)
    paths = sorted(set(table.files.values()))
    with atomic_write.folder(folder) as copy:
        for path in paths:
            shutil.copyfile(path, os.path.join(copy, os.path.basename(path)))
    text = "%d op information files are in %s; NPU_SHIM_OPS_INFO_DIR or npu_shim_ops_info_dir make sessions read them"
    return text % (len(paths), folder)


def described(table: OpTable, name: str) -> list[str]:
    """Lines about the op, or the ops, that a name stands for.

    Raises:
        ConfigError: no such op.
    """
    from npu_shim.options.ops import op_names

    entries = []
    for op in table.ops(name) + ((name,) if name in table.entries else ()):
        if table.entries[op] not in entries:
            entries.append(table.entries[op])
    if not entries:
        note = op_names.without_tensorflow().get(name)
        if note:
            return ["%s: an Ascend op without a TensorFlow op: %s" % (name, note)]
        hint = nearest(name, set(table.names) | set(table.entries))
        raise ConfigError("%s: no op type of this name in profile %s%s" % (name, table.profile, hint))
    return [line for entry in entries for line in _lines(table, entry)]


def _lines(table: OpTable, entry: Entry) -> list[str]:
    rows = [
        ("list", category(entry)),
        ("role", entry.role + (", a matrix or convolution op" if entry.cube else "")),
        ("dtypes", "all" if entry.dtypes is None else ", ".join(sorted(entry.dtypes))),
        ("keep", ", ".join(sorted(entry.keep))),
        ("TensorFlow", ", ".join(entry.tensorflow)),
        ("variants", ", ".join(variants(table, entry))),
        ("note", entry.note),
        ("file", table.files[entry.name]),
    ]
    return [entry.name] + ["  %-10s  %s" % row for row in rows if row[1]]


def category(entry: Entry) -> str:
    """The list that an op is on, in words; ops that only move data, or keep their dtype, are on none."""
    return entry.listed if entry.role == "computes" else "none (%s)" % entry.role


def variants(table: OpTable, entry: Entry) -> list[str]:
    """Further Ascend names of an entry."""
    return sorted(name for name, ops in table.names.items() if ops == entry.tensorflow and name not in table.files)


def listed(table: OpTable) -> list[str]:
    """All entries as the lines of a table, in the order of their names."""
    entries = sorted({entry.name: entry for entry in table.entries.values()}.items())
    width = max([len(name) for name, _ in entries] + [10])
    head = "%-*s  %-16s  %-8s  %s" % (width, "op", "list", "dtypes", "TensorFlow")
    lines = [head]
    for name, entry in entries:
        dtypes = "all" if entry.dtypes is None else ",".join(sorted(entry.dtypes))
        ops = ", ".join(entry.tensorflow)
        lines.append("%-*s  %-16s  %-8s  %s" % (width, name, category(entry), dtypes, ops))
    return lines
