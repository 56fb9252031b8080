"""npu-shim migrate-checkpoint SRC DST --to float16."""

from __future__ import annotations

import argparse

from npu_shim.checkpoint.command import main

__all__ = ["add_arguments", "main"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Leaves the flags to the command itself; here it is only listed."""
    parser.usage = "npu-shim migrate-checkpoint SRC DST --to DTYPE [flags], see --help"
