"""What scripts use of TensorFlow, tf.contrib, npu_bridge and hccl, read from their source: nothing is imported or run.

    import tensorflow as tf; slim = tf.contrib.slim; slim.conv2d(x)   ->   tensorflow.contrib.slim.conv2d

Names are followed through imports, plain assignments and scopes. A name that several branches of a `try` or of a check
of TensorFlow's version bind stands for all of its meanings. Objects are followed from the call that makes them (see
`meanings`). What goes through containers, arguments or strings is not seen.
"""

import os
from typing import Dict, List, NamedTuple, Union

from npu_shim.compat.scan.reach import module_files
from npu_shim.compat.scan.reader import ANYTHING, NEEDED, OPTIONAL, PERHAPS, SET, Script, Use, script
from npu_shim.compat.scan.search_path import SearchPath, joined

__all__ = [
    "NEEDED", "OPTIONAL", "PERHAPS", "SET", "Script", "Unread", "Use", "own_files", "python_files", "read", "uses",
]  # fmt: skip
# folders that are not the user's
FOREIGN = ("__pycache__", "site-packages", "node_modules")


class Unread(NamedTuple):
    """A file that is not Python 3, or cannot be read: its path, the line (from 1; 0 for the file) and why."""

    path: str
    line: int
    reason: str


def python_files(path: str) -> List[str]:
    """Sorted paths of the .py files of a folder, or the file itself; hidden folders and virtual environments left out.

    Raises:
        OSError: there is no such file or folder.
    """
    if not os.path.isdir(path):
        os.stat(path)
        return [path]
    paths = []
    for folder, folders, files in os.walk(path):
        folders[:] = [f for f in folders if not _foreign(os.path.join(folder, f), f)]
        paths += [os.path.join(folder, f) for f in files if f.endswith(".py")]
    return sorted(paths)


def own_files(path: str) -> List[str]:
    """Paths of a script, which comes first, and of the files beside it or above it that it and they import.

    Where it imports a module whose name is made when it runs, all files of its folder.
    """
    known: Dict[str, Union[Script, Unread]] = {}
    files_used, searched = [path], SearchPath()
    while True:
        for file in files_used:  # grows
            if file not in known:
                known[file] = read(file)
            result = known[file]
            if not isinstance(result, Unread):
                files_used += dict.fromkeys(own for own in _imported(result, path, searched) if own not in files_used)
        every = joined(result.search for result in known.values() if not isinstance(result, Unread))
        if every == searched:
            return files_used
        searched = every  # what one script adds to sys.path serves those that it imports as well


def _imported(result: Script, path: str, searched: SearchPath) -> List[str]:
    """The files of the script's own that a file of it may import."""
    files: List[str] = []
    for asked in result.imports:
        if asked.module == ANYTHING:
            files += python_files(os.path.dirname(path) or ".")
        else:
            files += module_files(result._replace(search=searched), asked.module, asked.level)
    return files


def _foreign(path: str, name: str) -> bool:
    return name.startswith(".") or name in FOREIGN or os.path.exists(os.path.join(path, "pyvenv.cfg"))


def read(path: str) -> Union[Script, Unread]:
    """What a file uses, defines and imports; or Unread."""
    if path.endswith(".ipynb"):
        return Unread(path, 0, "a notebook, not a script; 'jupyter nbconvert --to script' makes one of it")
    try:
        with open(path, "rb") as f:
            return script(f.read(), path)
    except SyntaxError as error:
        return Unread(path, error.lineno or 0, error.msg)
    except (OSError, ValueError, RecursionError) as error:
        return Unread(path, 0, getattr(error, "strerror", None) or str(error))


def uses(source: Union[str, bytes], path: str = "<source>") -> List[Use]:
    """The uses in a script.

    Args:
        source: the script.
        path: str, for the results.

    Returns:
        List of Use, in the order of their lines.

    Raises:
        SyntaxError: it is not Python 3.
    """
    return script(source, path).uses
