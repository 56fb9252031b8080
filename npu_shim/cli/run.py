"""npu-shim run SCRIPT ARGS..."""

from npu_shim.rewriter.errors import ConfigError


def add_arguments(parser):
    """Describes the arguments, for help only: `main` takes them as they are."""
    parser.usage = "npu-shim run SCRIPT ARGS...   or   npu-shim run -m MODULE ARGS...   or   npu-shim run - ARGS..."
    parser.add_argument(
        "script", metavar="SCRIPT", nargs="?", help="a Python file, - for standard input, or -m and a module's name"
    )
    parser.set_defaults(script=None)


def main(argv):
    """Runs the script `argv[0]` with the rest as its arguments; returns its exit status."""
    from npu_shim.compat import launcher

    if not isinstance(argv, list) or argv == ["-m"]:
        raise ConfigError("npu-shim run needs a SCRIPT, or -m MODULE")
    try:
        return launcher.run(argv[0], argv[1:])
    except OSError as reason:
        if reason.filename != argv[0]:
            raise
        raise ConfigError("script '%s' cannot be read: %s" % (argv[0], reason.strerror)) from reason
