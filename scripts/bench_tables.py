"""What the benchmark scripts share: where a measurement was made, and a table that is printed row by row and kept."""

import datetime
import os
import platform
import sys

from npu_shim.pjrt import atomic_write


def where():
    """The lines that say when, on what and by which command a measurement was made."""
    return [
        "date %s, %s, %d cores, %s"
        % (datetime.date.today(), platform.machine(), os.cpu_count(), ", ".join(_releases())),
        "",
        "command: python %s" % " ".join(sys.argv),
    ]


def _releases():
    """Of Python, and of what a script has imported."""
    yield "Python %s" % platform.python_version()
    for name, title in (("tensorflow", "TensorFlow"), ("jax", "JAX")):
        if name in sys.modules:
            yield "%s %s" % (title, sys.modules[name].__version__)


def table(columns, rows, write=None, title=()):
    """Prints a table while it is measured, and writes it to a file at the end.

    Args:
        columns: list of str.
        rows: iterable of lists of cells; cells are strings.
        write: path of the file, or None.
        title: lines that the file has above the table's own.
    """
    lines = [*title, *where(), "", _row(columns), "|" + "---|" * len(columns)]
    print("\n".join(lines))
    for cells in rows:
        lines.append(_row(cells))
        print(lines[-1], flush=True)
    if write:
        with atomic_write.file(write) as f:
            f.write(("\n".join(lines) + "\n").encode())


def _row(cells):
    return "| %s |" % " | ".join(cells)
