"""`python -m npu_bridge.convert_tf2npu`, see npu_shim.conversion_files."""

import sys

from npu_shim.conversion_files import main

sys.exit(main())
