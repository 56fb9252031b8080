"""npu-shim options [NAME]: the option table, one option or all; docs/options.md is its --markdown."""

from __future__ import annotations

import argparse

from npu_shim.options import table
from npu_shim.options.table import Option
from npu_shim.rewriter.errors import ConfigError, nearest

WORDS = {
    "honored": "does what it does on the NPU",
    "accepted": "is taken and has no effect off the NPU",
    "refused": "is refused",
}
KINDS = {"NPURunConfig": "argument", "parameter_map": "key"}
FIELDS = {"s": "str", "b": "bool", "i": "int", None: "-"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="an NPURunConfig argument or a parameter_map key")
    parser.add_argument("--markdown", action="store_true", help="print the whole table as docs/options.md has it")


def main(args: argparse.Namespace) -> int:
    """Prints one option, or all of them as a table. Returns the exit status."""
    print(markdown() if args.markdown else "\n".join(described(args.name) if args.name else listed()))
    return 0


def described(name: str) -> list[str]:
    """Returns what is known of one option: list of lines.

    Raises:
        ConfigError: there is no such option; the message has the nearest name.
    """
    known = table.options()
    if name not in known:
        raise ConfigError("there is no option '%s'%s" % (name, nearest(name, known)))
    option = known[name]
    lines = ["%s: %s" % (name, option.meaning)]
    does = "is npu_shim's own" if name.startswith("npu_shim_") else WORDS[option.status]
    lines.append("  status: %s, %s%s" % (option.status, does, _because(option)))
    lines.append("  where: %s" % " and ".join(_places(option)))
    if option.default is not None:
        lines.append("  default: %r" % (option.default,))
    if option.accepted is not None:
        lines.append("  values: %s" % ", ".join(map(str, option.accepted)))
    if option.minimum is not None:
        lines.append("  at least: %d" % option.minimum)
    lines.extend("  not %s: %s" % pair for pair in sorted(option.refused_values.items()))
    return lines


def listed() -> list[str]:
    """Returns the table: list of lines, one an option."""
    known = table.options()
    width = max(map(len, known))
    return ["%-*s  %-4s  %-8s  %s" % (width, o.name, FIELDS[o.field], o.status, o.meaning) for o in known.values()]


def markdown() -> str:
    """Returns docs/options.md: str without the last newline."""
    lines = [
        "# Options",
        "",
        "Every argument of NPURunConfig and key of the parameter_map, of every release; from",
        "`npu-shim options --markdown`. An option is both an argument and a key, unless its row names one.",
        "`npu-shim options NAME` shows an option.",
    ]
    known = table.options().values()
    for status, effect in WORDS.items():
        rows = [_row(option) for option in known if option.status == status]
        if rows:
            head = ["", "## %s: %s" % (status.capitalize(), effect), ""]
            lines += [*head, "| option | takes | meaning |", "|---|---|---|", *rows]
    return "\n".join(lines)


def _row(option: Option) -> str:
    (only,) = _places(option) if len(_places(option)) == 1 else ("",)
    values = ", ".join("`%s`" % value for value in option.accepted or ())
    takes = [values or (FIELDS[option.field] if option.field else "")]
    takes += [] if option.default is None else ["default `%r`" % (option.default,)]
    takes += ["%s only" % KINDS[only]] if only else []
    cells = ("`%s`" % option.name, "; ".join(filter(None, takes)), option.meaning + _because(option))
    return "| %s |" % " | ".join(cell.replace("|", "\\|") for cell in cells)


def _because(option: Option) -> str:
    return ": " + option.because if option.because else ""


def _places(option: Option) -> list[str]:
    places = ["NPURunConfig"] if option.run_config is not None else []
    return places + (["parameter_map"] if option.field is not None else [])
