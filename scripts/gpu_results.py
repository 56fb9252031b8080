"""Results of scripts/gpu_check: a file for each part, which has a row for each case, and their table. No TensorFlow."""

import contextlib
import datetime
import json
import os
import traceback

ENDED = "ended"
TRIES = 2  # of a case with which a part's process ends: other cases go first
DATE = "date"
FIRST = ("card", "driver")  # of what is said of a machine


class Rows:
    """The cases of a part that have a result, in a file that is whole at any moment.

    Args:
        folder: of the results.
        part: its name.
        machine: what the results are of: {"card": .., "JAX": .., ...}; None to read only.

    Attributes:
        machine: that of the file.
        rows: case -> {"ok": whether it holds, "date": .., figures}.
        ended: why the part came to no end, "" where it did, None where nothing is known.

    Raises:
        ValueError: the file has results of another machine.
    """

    def __init__(self, folder, part, machine=None):
        self._path = os.path.join(folder, part + ".json")
        self.machine, self.rows, self.ended, self._begun = machine, {}, None, {}
        if os.path.exists(self._path):
            with open(self._path, encoding="utf-8") as file:
                read = json.load(file)
            self.machine, self.rows, self.ended, self._begun = (
                read[key] for key in ("machine", "cases", ENDED, "begun")
            )
        if machine is None:
            return
        if self.rows and machine != self.machine:
            raise ValueError("%s has results of another machine: give another --out" % self._path)
        self.machine = machine
        # what could not be tried is tried again: wheels may have come
        self.rows = {case: row for case, row in self.rows.items() if row["ok"] is not None}

    def left(self, cases):
        """The cases that have no result yet; what the process ended with comes last, and TRIES times in all."""
        waiting = [case for case in cases if case not in self.rows]
        for case in sorted(waiting, key=lambda case: self._begun.get(case, 0)):
            if self._begun.get(case, 0) >= TRIES:
                self.add(case, False, why="the process came to its end with it, %d times" % TRIES)
                continue
            self._begun[case] = self._begun.get(case, 0) + 1
            self._write()
            yield case

    @contextlib.contextmanager
    def tried(self, case):
        """Scope of a case: an error in it is its result, and other cases go on."""
        try:
            yield
        except Exception as reason:
            traceback.print_exc()
            self.add(case, False, why=said(reason))

    def add(self, case, ok, **figures):
        """Adds a case: whether it holds (None: it cannot be tried here, and `why` says it), and its figures."""
        self.rows[case] = dict(figures, ok=ok, date=datetime.datetime.now().isoformat(" ", "minutes"))
        self._begun.pop(case, None)
        print("%s: %s %s" % (case, {True: "ok", False: "WRONG", None: "not tried"}[ok], figures), flush=True)
        self._write()

    def end(self, why=""):
        """Notes that the part has come to its end, or why it did not."""
        self.ended = why
        self._write()

    def _write(self):
        text = {"machine": self.machine, "cases": self.rows, ENDED: self.ended, "begun": self._begun}
        with open(self._path + ".new", "w", encoding="utf-8") as file:
            json.dump(text, file, indent=1, sort_keys=True)
        os.replace(self._path + ".new", self._path)


def said(reason):
    """An exception in one line."""
    return "%s: %s" % (type(reason).__name__, str(reason).strip().partition("\n")[0])


def report(folder, parts):
    """Returns (text of all results, whether one is wrong), and writes the text as report.md."""
    lines, wrong, heads, dates = [], 0, {}, []
    for part, shows in parts.items():
        of = Rows(folder, part)
        rows = dict(of.rows, **({ENDED: {"ok": False, "why": of.ended}} if of.ended else {}))
        heads[_head(of.machine)] = None
        dates += [row[DATE][:10] for row in of.rows.values()]
        wrong += sum(row["ok"] is False for row in rows.values())
        lines += ["## %s: %s" % (part, shows), ""]
        lines += ["- %s: %s" % (case, _said(row)) for case, row in rows.items()]
        lines += ([] if rows else ["- not begun" if of.ended is None else "- nothing to try"]) + [""]
    when = " to ".join(sorted({min(dates), max(dates)})) if dates else "no results"
    head = ["# What a card showed", "", when, "", *filter(None, heads), ""]
    text = "\n".join([*head, *lines, "%d wrong" % wrong]) + "\n"
    with open(os.path.join(folder, "report.md"), "w", encoding="utf-8") as file:
        file.write(text)
    return text, bool(wrong)


def _head(machine):
    said = {**{name: (machine or {}).get(name) for name in FIRST}, **(machine or {})}
    return ", ".join("%s %s" % (name, value) for name, value in said.items() if value)


def _said(row):
    words = {True: "ok", False: "WRONG", None: "not tried"}[row["ok"]]
    shown = {name: value for name, value in row.items() if name not in ("ok", DATE) and value != ""}
    figures = ", ".join("%s %s" % (name, _figure(value)) for name, value in shown.items())
    return words + (" (%s)" % figures if figures else "")


def _figure(value):
    return "%.3g" % value if isinstance(value, float) else value
