"""npu_bridge.convert_tf2npu.main, see npu_shim.compat.conversion.files."""

import sys

from npu_shim.compat.conversion.files import main

if __name__ == "__main__":
    sys.exit(main())
