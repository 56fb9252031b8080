"""`python -m npu_bridge.convert_tf2npu`, see npu_shim.compat.conversion.files."""

import sys

from npu_shim.compat.conversion.files import main

sys.exit(main())
