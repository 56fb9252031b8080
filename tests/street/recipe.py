"""What a recipe says, and where the recipes are."""

import importlib
import pathlib
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple

HERE = pathlib.Path(__file__).resolve().parent


def no_data(folder, random):
    """For networks that make up their own data."""


class Recipe(NamedTuple):
    """How one public script is run, and what it is expected to do. Only `network` and `run` have no default.

    Attributes:
        network: path of the network's folder in a checkout of the collection.
        run: the script and its arguments as in a shell, seen from `cwd`; {net} is the folder of the copied network.
        data: function (folder of the copied network, numpy Generator) that writes what the script reads.
        mode: the precision mode that the script asks for, as the rewriter names it.
        steps: stop the script after so many training steps (or a minute of them); None: it ends, with status 0.
        loss: (lowest, highest) of the first fetched loss, or None.
        checkpoint: glob, below the network's folder, of a file that must be there afterwards.
        lowers: False where the mode is expected to change nothing (a graph made in float16 by hand).
        cwd: folder below the network's in which the script is started.
        path: folders below the network's for PYTHONPATH, as its own shell scripts set it.
        prepare: scripts with arguments, run before in the same way, which make data from data; not watched.
        limit: seconds for the whole run.
        env: further environment variables.
        own_fault: why the script stops here by its own fault, with the evidence; it is then expected to stop.
        domain: filled in with the name of the file that the recipe stands in.
    """

    network: str
    run: str
    data: Callable[..., None] = no_data
    mode: str = "allow_mix_precision"
    steps: Optional[int] = None
    loss: Optional[Tuple[float, float]] = None
    checkpoint: str = ""
    lowers: bool = True
    cwd: str = "."
    path: Sequence[str] = ()
    prepare: Sequence[str] = ()
    limit: int = 300
    env: Mapping[str, Any] = {}
    own_fault: str = ""
    domain: str = ""

    @property
    def name(self):
        """Network and script: what a table and a log are called after."""
        return "%s:%s" % (self.network, self.run.split()[0])


def recipes():
    """Returns all recipes: those of each file in recipes/, in the order of the files' names and as written there."""
    found = []
    for path in sorted((HERE / "recipes").glob("*.py")):
        rows = importlib.import_module("recipes." + path.stem).RECIPES
        found += [recipe._replace(domain=path.stem) for recipe in rows]
    return found


def chosen(words):
    """Returns the recipes with a word in their name, or of that domain, all without words; LookupError for no such."""
    everything = recipes()
    for word in words:
        if not any(_meant(word, recipe) for recipe in everything):
            raise LookupError("no recipe has '%s' in its name or domain" % word)
    return [recipe for recipe in everything if not words or any(_meant(word, recipe) for word in words)]


def _meant(word, recipe):
    return recipe.domain.startswith(word) or word.lower() in recipe.name.lower()
