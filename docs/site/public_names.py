"""A hook of MkDocs: `::: npu_shim.NAME` in api.md becomes the place where PUBLIC says that NAME is defined.

The names are loaded lazily, so that no reader of sources finds them under npu_shim itself.
"""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# what a public name only hands on to when it is called, and where it is described
DESCRIBED = {"npu_shim.checkpoint.migrate_checkpoint": "npu_shim.checkpoint.migrate.migrate_checkpoint"}
PLACE = re.compile(r"^::: ([\w.]+)\.(\w+)$", re.MULTILINE)


def public(package):
    """Returns dict of public name -> module that defines it, from the package's source."""
    source = ROOT / package.replace(".", "/") / "__init__.py"
    if not source.exists():  # a module, whose names are its own
        return {}
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "PUBLIC":
            homes = ast.literal_eval(node.value)
            # those of loss_scale are relative to it
            return {name: home if "." in home else package + "." + home for name, home in homes.items()}
    return {}


def _defined(package, name):
    """Dotted path of a public name in the checkout, where rewriter/ lies beside npu_shim/."""
    home = public(package).get(name, package) + "." + name
    return DESCRIBED.get(home, home).replace("npu_shim.rewriter.", "rewriter.")


def _directive(match):
    package, name = match.groups()
    heading = "%s.%s" % (package, name)
    return "::: %s\n    options:\n      heading: %s\n      toc_label: %s\n" % (_defined(package, name), heading, name)


def on_page_markdown(markdown, page, **_):
    """Returns the page's text with each public name at its home."""
    return PLACE.sub(_directive, markdown) if page.file.src_uri == "api.md" else markdown
