"""The results as a table: text for people, Markdown for docs, JSON that later runs add to."""

import json
import pathlib

from judge import OTHER, OWN_FAULT, STOPS, WHOLE, Outcome

HEAD = ("network", "script", "result", "mode", "slots lowered", "steps", "first loss", "ms a step", "float32", "cause")

ENGINE_HEAD = (
    "network", "script", "result", "steps taken", "programs", "host ops a step", "first loss", "ms a step", "why",
)  # fmt: skip


def row(name, outcome):
    """The cells of a result, as text."""
    if outcome.taken is not None:
        return _engine_row(name, outcome)
    network, script = name.split(":")
    lowered = "%d of %d" % (outcome.lowered, outcome.slots) if outcome.slots else ""
    figures = (figure(outcome.first_loss), figure(outcome.step_ms), figure(outcome.float32_ms))
    short = network.replace("TensorFlow/", "", 1)
    return (short, script, outcome.result, outcome.mode, lowered, str(outcome.steps), *figures, outcome.cause)


def _engine_row(name, outcome):
    network, script = name.split(":")
    figures = (str(outcome.programs), str(outcome.host_ops), figure(outcome.first_loss), figure(outcome.step_ms))
    taken = "" if outcome.taken is None else "%d of %d" % (outcome.taken, outcome.written)
    short = network.replace("TensorFlow/", "", 1)
    return (short, script, outcome.result, taken, *figures, outcome.cause or outcome.why_not)


def line(name, outcome):
    """A result as one line for a terminal."""
    return "  ".join(filter(None, row(name, outcome)))


def counts(outcomes):
    """How many came to what, in one line; `outcomes`: name -> Outcome."""
    outcomes = list(outcomes.values())
    results = [outcome.result for outcome in outcomes]
    text = "%d scripts: " % len(results) + ", ".join(
        "%d %s" % (results.count(result), result) for result in (WHOLE, OTHER, STOPS, OWN_FAULT)
    )
    ran = [outcome for outcome in outcomes if outcome.taken is not None]
    if not ran:
        return text
    taken = sum(outcome.taken > outcome.written / 2 for outcome in ran)
    return text + "; the engine took the steps of %d of %d" % (taken, len(ran))


def markdown(outcomes):
    """All results as a Markdown table. `outcomes`: name -> Outcome."""
    engine = any(outcome.taken is not None for outcome in outcomes.values())
    head, cells_of = (ENGINE_HEAD, _engine_row) if engine else (HEAD, row)
    lines = ["| %s |" % " | ".join(head), "|" + " --- |" * len(head)]
    for name, outcome in sorted(outcomes.items()):
        lines.append("| %s |" % " | ".join(cell.replace("|", "\\|") for cell in cells_of(name, outcome)))
    return "\n".join([*lines, "", counts(outcomes), ""])


def read(path):
    """The results of a JSON file: name -> Outcome; none if there is no such file."""
    path = pathlib.Path(path)
    rows = json.loads(path.read_text()) if path.exists() else {}
    return {name: Outcome(**fields) for name, fields in rows.items()}


def write(path, outcomes):
    """Writes the results as JSON."""
    fields = {name: outcome._asdict() for name, outcome in sorted(outcomes.items())}
    pathlib.Path(path).write_text(json.dumps(fields, indent=1) + "\n")


def figure(value):
    """A number with four digits, or nothing."""
    return "" if value is None else "%.4g" % value
