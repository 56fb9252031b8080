"""python -m npu_shim is the command npu-shim."""

import sys

from npu_shim.cli import main

sys.exit(main())
