"""The results of public repositories as a table: a row a script, what it came to in each way, and the figures."""

from judge import OWN_FAULT, WHOLE
from table import figure
from ways import ENGINE, FLOAT32, MIXED, WAYS

OURS = [name for name, way in WAYS.items() if not way.python]
HEAD = (
    "repository", "script", *OURS, "mode", "slots lowered", "steps taken", "first loss", "mixed", "engine", "cause",
)  # fmt: skip


def key(name, way):
    """What the results of a recipe in a way are stored under."""
    return "%s %s" % (name, way.name)


def counts(outcomes):
    """How many scripts were whole in each way, and in all that they were run in; `outcomes`: key -> Outcome."""
    rows = by_name(outcomes)
    words = []
    for name in OURS:
        ran = [row[name] for row in rows.values() if name in row]
        if ran:
            words.append("%d of %d whole in %s" % (sum(map(_is_whole, ran)), len(ran), name))
    whole = sum(all(map(_is_whole, row.values())) for row in rows.values())
    return "%d scripts: %s; %d in every way" % (len(rows), ", ".join(words), whole)


def markdown(outcomes):
    """All results as a Markdown table; `outcomes`: key -> Outcome."""
    lines = ["| %s |" % " | ".join(HEAD), "|" + " --- |" * len(HEAD)]
    for name, row in sorted(by_name(outcomes).items()):
        lines.append("| %s |" % " | ".join(cell.replace("|", "\\|") for cell in _cells(name, row)))
    return "\n".join([*lines, "", counts(outcomes), ""])


def by_name(outcomes):
    """The results as name -> way -> Outcome; `outcomes`: key -> Outcome."""
    rows = {}
    for stored, outcome in outcomes.items():
        name, way = stored.rsplit(" ", 1)
        rows.setdefault(name, {})[way] = outcome
    return rows


def _is_whole(outcome):
    return outcome.result == WHOLE


def _cells(name, row):
    repository, script = name.split(":")
    mixed, engine = row.get(MIXED.name), row.get(ENGINE.name)
    lowered = "%d of %d" % (mixed.lowered, mixed.slots) if mixed and mixed.slots else ""
    taken = "%d of %d" % (engine.taken, engine.written) if engine and engine.taken is not None else ""
    losses = [figure(row[way.name].first_loss) if way.name in row else "" for way in (FLOAT32, MIXED, ENGINE)]
    results = [row[way].result if way in row else "" for way in OURS]
    causes = ["%s: %s" % (way, row[way].cause) for way in OURS if way in row and row[way].cause]
    own = [row[way].cause for way in row if row[way].result == OWN_FAULT]
    why = "; ".join(own[:1] or causes)
    return (repository, script, *results, mixed.mode if mixed else "", lowered, taken, *losses, why)
