"""The results of libraries as a table: a row a library, what it came to in each way, and the first loss in each."""

from judge import WHOLE
from recipe import LIBRARIES, recipes
from table import figure
from way_table import by_name
from ways import ENGINE, FLOAT32, MIXED, REAL

OURS = (FLOAT32, MIXED, ENGINE)
SHOWN = (*OURS, REAL)
HEAD = (
    "library", "installed", *(way.name for way in SHOWN), "slots lowered", "steps taken", "first loss",
    *(way.name for way in SHOWN[1:]), "why",
)  # fmt: skip


def counts(outcomes):
    """How many libraries were whole in each way, and in all of ours; `outcomes`: key -> Outcome."""
    rows = list(by_name(outcomes).values())
    words = []
    for way in SHOWN:
        ran = [row[way.name].result == WHOLE for row in rows if way.name in row]
        if ran:
            words.append("%d of %d whole in %s" % (sum(ran), len(ran), way.name))
    whole = sum(all(way.name in row and row[way.name].result == WHOLE for way in OURS) for row in rows)
    return "%d libraries: %s; %d in every way of ours" % (len(rows), ", ".join(words), whole)


def markdown(outcomes):
    """All results as a Markdown table; `outcomes`: key -> Outcome."""
    installed = {recipe.name: recipe.install for recipe in recipes(LIBRARIES)}
    lines = ["| %s |" % " | ".join(HEAD), "|" + " --- |" * len(HEAD)]
    for name, row in sorted(by_name(outcomes).items()):
        cells = _cells(name, installed.get(name, ""), row)
        lines.append("| %s |" % " | ".join(cell.replace("|", "\\|") for cell in cells))
    return "\n".join([*lines, "", counts(outcomes), ""])


def _cells(name, install, row):
    mixed, engine = row.get(MIXED.name), row.get(ENGINE.name)
    lowered = "%d of %d" % (mixed.lowered, mixed.slots) if mixed and mixed.slots else ""
    taken = "%d of %d" % (engine.taken, engine.written) if engine and engine.taken is not None else ""
    results = [row[way.name].result if way.name in row else "" for way in SHOWN]
    losses = [figure(row[way.name].first_loss) if way.name in row else "" for way in SHOWN]
    causes = ["%s: %s" % (way.name, row[way.name].cause) for way in SHOWN if way.name in row and row[way.name].cause]
    installed = install and "`%s`" % install.strip()
    return (name.split(":")[0], installed, *results, lowered, taken, *losses, "; ".join(causes))
