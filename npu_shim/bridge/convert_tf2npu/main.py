"""npu_bridge.convert_tf2npu.main, see npu_shim.conversion_files."""

import sys

from npu_shim.conversion_files import main

if __name__ == "__main__":
    sys.exit(main())
