"""Runs test methods in place of unittest's own program, or of pytest's, and reports each as it ends."""

import json
import os
import sys
import time
import traceback
import unittest

KEPT = 6000  # characters of a traceback


class Reporter:
    """Says events to the process that watches, one JSON object a line."""

    def __init__(self, sending):
        self._sending = sending
        self.told = False

    def say(self, event, **details):
        """Says one event."""
        self.told = True
        line = (json.dumps(dict(details, event=event)) + "\n").encode()
        while line:
            line = line[os.write(self._sending, line) :]

    def broken(self, kind, error, trace):
        """Says that the file itself stopped; a sys.excepthook."""
        self.say("broken", **described((kind, error, trace)))


class Result(unittest.TestResult):
    """What unittest tells of each method."""

    def __init__(self, reporter):
        super().__init__()
        self._reporter = reporter
        self._verdict = None
        self._began = 0.0

    def startTest(self, test):  # noqa: D102  unittest's names
        super().startTest(test)
        self._verdict = {"state": "pass", "error": "", "trace": ""}
        self._began = time.time()
        self._reporter.say("begin", name=name_of(test))

    def stopTest(self, test):  # noqa: D102
        super().stopTest(test)
        seconds = round(time.time() - self._began, 2)
        self._reporter.say("end", name=name_of(test), seconds=seconds, **self._verdict)
        self._verdict = None

    def addError(self, test, err):  # noqa: D102
        self._bad("fail", test, err)

    def addFailure(self, test, err):  # noqa: D102
        self._bad("fail", test, err)

    def addSubTest(self, test, subtest, err):  # noqa: D102
        if err is not None:
            self._bad("fail", test, err)

    def addSkip(self, test, reason):  # noqa: D102
        if self._verdict is None:  # a class that is skipped as a whole starts none of its methods
            self.startTest(test)
            self.addSkip(test, reason)
            self.stopTest(test)
        elif self._verdict["state"] == "pass":
            self._verdict = {"state": "skip", "error": reason, "trace": ""}

    def addUnexpectedSuccess(self, test):  # noqa: D102
        self._verdict = {"state": "fail", "error": "unexpected success", "trace": ""}

    def _bad(self, state, test, err):
        if self._verdict is not None:
            if self._verdict["state"] != state:  # the first error counts, not that of tearDown
                self._verdict = dict(described(err), state=state)
        else:  # setUpClass: none of the class's methods starts
            self._reporter.say("end", name=str(test), seconds=0.0, state=state, **described(err))


def capture(reporter, only, done):
    """Makes every way to unittest's program (tf.test.main, absltest's, ...) run these methods instead.

    Args:
        reporter: Reporter.
        only: names of methods, or None for all.
        done: names that have a verdict already.
    """

    def program(self, *_, **__):
        suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
        tests = [test for test in flat(suite) if test._testMethodName not in ("test_session", "testSession_")]
        if only is not None:
            tests = [test for test in tests if name_of(test) in only]
        reporter.say("methods", names=[name_of(test) for test in tests])
        unittest.TestSuite([test for test in tests if name_of(test) not in done]).run(Result(reporter))
        raise SystemExit(0)

    unittest.TestProgram.__init__ = program


def capture_pytest(reporter, only, done):
    """Makes pytest's program run these tests only, and report them; the arguments are those of `capture`."""
    import pytest

    original = pytest.main
    pytest.main = lambda args: original(args, plugins=[Watching(reporter, only, done)])


class Watching:
    """A plugin of pytest: reports what pytest says of each test."""

    def __init__(self, reporter, only, done):
        self._reporter, self._only, self._done = reporter, only, done
        self._verdict = None

    def pytest_collection_modifyitems(self, items):  # noqa: D102  pytest's names
        tests = [item for item in items if self._only is None or inner_name(item.nodeid) in self._only]
        self._reporter.say("methods", names=[inner_name(item.nodeid) for item in tests])
        items[:] = [item for item in tests if inner_name(item.nodeid) not in self._done]

    def pytest_collectreport(self, report):  # noqa: D102
        if report.failed:
            self._reporter.say("broken", **told(report))

    def pytest_runtest_logstart(self, nodeid, location):  # noqa: D102
        self._verdict = {"state": "pass", "error": "", "trace": "", "seconds": 0.0}
        self._reporter.say("begin", name=inner_name(nodeid))

    def pytest_runtest_logreport(self, report):  # noqa: D102
        self._verdict["seconds"] = round(self._verdict["seconds"] + report.duration, 2)
        if self._verdict["state"] == "pass" and (report.failed or report.skipped):
            self._verdict.update(told(report), state="fail" if report.failed else "skip")

    def pytest_runtest_logfinish(self, nodeid, location):  # noqa: D102
        self._reporter.say("end", name=inner_name(nodeid), **self._verdict)


def inner_name(nodeid):
    """What pytest calls a test within its file: Class::method[parameters]."""
    return nodeid.partition("::")[2]


def told(report):
    """The last words of an error in a report of pytest, and the end of its traceback."""
    text = report.longreprtext
    words = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")] or text.splitlines()[-1:]
    return {"error": " | ".join(word for word in words if word)[:500], "trace": text[-KEPT:]}


def flat(suite):
    """All tests of nested suites."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def name_of(test):
    """Class.method: an id of absl's parameterized tests may hold addresses."""
    return "%s.%s" % (type(test).__name__, getattr(test, "_testMethodName", test))


def described(err):
    """The last words of an error, and the end of its traceback."""
    kind, error, trace = err
    text = "".join(traceback.format_exception(kind, error, trace))
    last = "".join(traceback.format_exception_only(kind, error)).strip()
    return {
        "error": " | ".join(line.strip() for line in last.splitlines() if line.strip())[:500],
        "trace": text[-KEPT:],
    }
