"""npu-shim migrate-checkpoint SRC DST --to float16."""

from __future__ import annotations

import argparse
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Leaves the flags to the command itself; here it is only listed."""
    parser.usage = "npu-shim migrate-checkpoint SRC DST --to DTYPE [flags], see --help"


def main(args: Any) -> int:
    """Runs the command and returns its exit status."""
    from npu_shim.checkpoint import command  # it needs absl, which comes with TensorFlow; the others work without

    return command.main(args)
