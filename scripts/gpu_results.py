"""Results of scripts/gpu_check: a file for each part, which has a row for each case, and their table. No TensorFlow."""

import datetime
import json
import os
import platform

ENDED = "ended"


class Rows:
    """The cases of a part that have a result, in a file that is whole at any moment.

    Args:
        folder: of the results.
        part: its name.
    """

    def __init__(self, folder, part):
        self._path = os.path.join(folder, part + ".json")
        self.rows = {}
        if os.path.exists(self._path):
            with open(self._path, encoding="utf-8") as file:
                self.rows = json.load(file)

    def add(self, case, ok, **figures):
        """Adds a case: whether it holds (None: it cannot be tried here, and `why` says it), and its figures."""
        self.rows[case] = dict(figures, ok=ok)
        print("%s: %s %s" % (case, {True: "ok", False: "WRONG", None: "not tried"}[ok], figures), flush=True)
        self.write()

    def write(self):
        """Writes the file."""
        with open(self._path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.rows, file, indent=1, sort_keys=True)
        os.replace(self._path + ".new", self._path)


def end(folder, part, status):
    """Notes how the process of a part has ended: 0, another status, or what is said of it."""
    rows = Rows(folder, part)
    rows.rows[ENDED] = {"ok": status == 0, "why": "" if status == 0 else str(status)}
    rows.write()


def report(folder, parts):
    """Returns (text of all results, whether one is wrong), and writes the text as report.md."""
    lines, wrong = [], 0
    for part, shows in parts.items():
        rows = Rows(folder, part).rows
        lines += ["## %s: %s" % (part, shows), ""] if rows else []
        for case, row in rows.items():
            wrong += row["ok"] is False
            if case != ENDED or not row["ok"]:
                lines.append("- %s: %s" % (case, _said(row)))
        lines += [""] if rows else []
    head = "%s, Python %s" % (datetime.date.today(), platform.python_version())
    text = "\n".join(["# What a card showed", "", head, "", *lines, "%d wrong" % wrong]) + "\n"
    with open(os.path.join(folder, "report.md"), "w", encoding="utf-8") as file:
        file.write(text)
    return text, bool(wrong)


def _said(row):
    words = {True: "ok", False: "WRONG", None: "not tried"}[row["ok"]]
    figures = ", ".join("%s %s" % (name, _figure(value)) for name, value in row.items() if name != "ok" and value != "")
    return words + (" (%s)" % figures if figures else "")


def _figure(value):
    return "%.3g" % value if isinstance(value, float) else value
