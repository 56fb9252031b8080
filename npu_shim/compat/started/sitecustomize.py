"""Python imports this module before any program; `npu_shim.compat.children` puts its folder on PYTHONPATH.

Any Python may read it, of any version: it hands over to npu_shim in the one that the script runs on, and does nothing
in the others. A sitecustomize that the environment has itself is imported as if this one were not there.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != HERE]
ours = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # noqa: F401 - the environment's own
except ImportError as reason:
    if getattr(reason, "name", "sitecustomize") != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", ours)  # the import system asks for it
if os.environ.get("NPU_SHIM_CHILDREN", "").startswith("%s %d.%d " % ((sys.prefix,) + sys.version_info[:2])):  # noqa: RUF005 - Python 2
    from npu_shim.compat import children

    children.begin()
