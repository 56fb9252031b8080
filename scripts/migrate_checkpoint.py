#!/usr/bin/env python3
"""Casts a checkpoint: `npu-shim migrate-checkpoint` as a script, see --help."""

import sys

from npu_shim.checkpoint.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
