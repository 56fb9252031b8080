"""Folders of scripts converted: the command line of the vendor's migration tool convert_tf2npu.

Source: CANN's TensorFlow 1.15 migration manual, convert_tf2npu.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tokenize
from typing import Iterator, Sequence

from npu_shim.compat.conversion.scripts import DISTRIBUTED, convert
from npu_shim.rewriter.errors import ConfigError

REPORTS = {"done": "success_report.txt", "left": "need_migration_doc.txt", "failed": "failed_report.txt"}


def main(argv: Sequence[str] | None = None) -> int:
    """Converts the scripts in a folder into another folder, and writes what was done; returns the exit status."""
    parser = argparse.ArgumentParser(prog="convert_tf2npu", description=main.__doc__)
    parser.add_argument("-i", "--input", required=True, help="folder of scripts, or one script")
    parser.add_argument("-l", "--list", help="table of supported APIs; taken and not read")
    parser.add_argument("-o", "--output", default="output_npu", help="new folder for the converted scripts")
    parser.add_argument("-r", "--report", default="report_npu", help="folder of the reports")
    parser.add_argument("-m", "--main", help="the script that is started; taken and not needed")
    parser.add_argument("-c", "--compat", action="store_true", help="tensorflow.compat.v1; both are understood")
    parser.add_argument("-d", "--distributed_mode", choices=DISTRIBUTED, help="for scripts of several ranks")
    given = parser.parse_args(argv)
    try:
        counts = convert_folder(given.input, given.output, given.report, given.distributed_mode)
    except ConfigError as error:
        parser.exit(2, "%s\n" % error)
    print("%s: %d edits, %d places left to do by hand, %d scripts failed" % (given.output, *counts))
    return 1 if counts[2] else 0


def convert_folder(source: str, target: str, reports: str, distributed: str | None = None) -> tuple[int, ...]:
    """Writes the converted scripts, and all other files as they are, into a new folder.

    Args:
        source: folder, or one script.
        target: folder that does not exist yet.
        reports: folder for three reports; made if need be.
        distributed: None, "horovod" or "tf_strategy".

    Returns:
        (edits made, places left to do by hand, scripts that failed).

    Raises:
        ConfigError: there is no source, or the target exists.
    """
    if not os.path.exists(source):
        raise ConfigError("convert_tf2npu: there is no '%s'" % source)
    if os.path.exists(target):
        raise ConfigError("convert_tf2npu: '%s' exists already, expected a new folder" % target)
    if os.path.isdir(source):
        shutil.copytree(source, target)
    else:
        os.makedirs(target)
        shutil.copy(source, target)
    reported: dict[str, list[str]] = {kind: [] for kind in REPORTS}
    for path in sorted(_scripts(target)):
        _convert_file(path, os.path.relpath(path, target), distributed, reported)
    os.makedirs(reports, exist_ok=True)
    for kind, name in REPORTS.items():
        with open(os.path.join(reports, name), "w", encoding="utf-8") as file:
            file.writelines("%s\n" % line for line in reported[kind])
    return tuple(len(reported[kind]) for kind in REPORTS)


def _scripts(folder: str) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names if name.endswith(".py"))


def _encoding_of(path: str) -> str:
    """The encoding that a script declares, as Python finds it."""
    with open(path, "rb") as file:
        return tokenize.detect_encoding(file.readline)[0]


def _convert_file(path: str, shown: str, distributed: str | None, reports: dict[str, list[str]]) -> None:
    try:
        encoding = _encoding_of(path)
        with open(path, encoding=encoding, newline="") as file:
            converted = convert(file.read(), distributed)
    except ConfigError as error:
        reports["failed"].append("%s: %s" % (shown, error))
        return
    except (SyntaxError, UnicodeDecodeError) as error:
        reports["failed"].append("%s: npu_shim: convert_tf2npu: cannot be read: %s" % (shown, error))
        return
    with open(path, "w", encoding=encoding, newline="") as file:
        file.write(converted.text)
    reports["done"] += ["%s:%d: %s" % (shown, line, what) for line, what in converted.done]
    reports["left"] += ["%s:%d: %s" % (shown, line, what) for line, what in converted.left]
