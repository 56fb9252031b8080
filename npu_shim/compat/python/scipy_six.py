"""scipy._lib.six, which SciPy 1.5 removed: six, and `xrange` and `callable` of its own."""

from six import *  # noqa: F403

xrange = range
callable = callable
