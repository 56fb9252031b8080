"""How to install what an extra of npu-shim brings: from the checkout that this is, or by the package's name."""

import os


def pip_install(extra: str) -> str:
    """Returns the command that installs an extra here, such as `pip install -e '.[report]'`.

    Args:
        extra: the extras of pyproject.toml, with commas between them.
    """
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    if not os.path.exists(os.path.join(root, "pyproject.toml")):
        return "pip install 'npu-shim[%s]'" % extra
    return "pip install -e '%s[%s]'" % ("." if os.path.samefile(os.curdir, root) else root, extra)
