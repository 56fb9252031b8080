"""What a recipe says, and where the recipes are."""

import importlib
import pathlib
import shlex
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple

HERE = pathlib.Path(__file__).resolve().parent
# the folders of recipes: for the vendor's collection, for public repositories that know no NPU, and for libraries
ZOO, REPOSITORIES, LIBRARIES = "recipes", "repositories", "libraries"
SCRIPTS = HERE / LIBRARIES / "scripts"  # a folder a library, with a training script of our own


def no_data(folder, random):
    """For networks that make up their own data."""


class Recipe(NamedTuple):
    """How one public script is run, and what it is expected to do. Only `network` and `run` have no default.

    Attributes:
        network: path of the network's folder in a checkout of the collection; of a public repository, owner/name;
            of a library, its name.
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
        options: of `npu-shim run`, before the script: what an Ascend 910 does without being asked.
        own_fault: why the script stops here by its own fault, with the evidence; it is then expected to stop.
        commit: of a public repository, at which the recipe was tried.
        others: folder below the network's -> another repository, owner/name, that belongs there (a submodule).
        again: a script with arguments that is run afterwards in the same way and reads the checkpoint.
        apart: how far losses may be from float32's, if further than a way has it: for networks that draw in each step.
        install: of a library, what `pip install --no-deps` takes beside TensorFlow 2.15 and requirements.txt.
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
    options: Sequence[str] = ()
    own_fault: str = ""
    commit: str = ""
    others: Mapping[str, str] = {}
    again: str = ""
    apart: float = 0.0
    install: str = ""
    domain: str = ""

    @property
    def name(self):
        """Network and script: what a table and a log are called after."""
        words = shlex.split(self.run)
        return "%s:%s" % (self.network, words[words[0] == "-m"])


def recipes(collection=ZOO):
    """Returns all recipes of a collection: of each file in its folder, in the files' order and as written there."""
    collected = []
    for path in sorted((HERE / collection).glob("*.py")):
        rows = importlib.import_module("%s.%s" % (collection, path.stem)).RECIPES
        collected += [recipe._replace(domain=path.stem) for recipe in rows]
    return collected


def chosen(words, collection=ZOO):
    """Returns the recipes with a word in their name, or of that domain, all without words; LookupError for no such."""
    everything = recipes(collection)
    for word in words:
        if not any(_meant(word, recipe) for recipe in everything):
            raise LookupError("no recipe has '%s' in its name or domain" % word)
    return [recipe for recipe in everything if not words or any(_meant(word, recipe) for word in words)]


def _meant(word, recipe):
    return recipe.domain.startswith(word) or word.lower() in recipe.name.lower()
