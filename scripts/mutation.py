"""Changes one thing at a time in the rules of planning and asks whether a test notices: what `scripts/mutate` does.

    scripts/mutate --seed 7 --count 60                          random mutants, tests/pure
    scripts/mutate --seed 7 --then tests/tf/test_functions.py   survivors meet these files too
    scripts/mutate --only rewriter/ties.py:57                   all mutants of a line
    scripts/mutate --list                                       all that can be changed

A mutant is a comparison, an `and`, an operator, a constant, a branch or a returned value that was changed in a copy of
the tree in a temporary folder. It dies when a test fails or runs out of time. Of two equal seeds on one tree the
mutants are equal. The status is 1 when fewer than `--least` per cent die in the first tests.
"""

import argparse
import ast
import collections
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
# the modules whose rules the pure tests are to hold; see `modules`
NAMES = (
    "planner/conditions", "graph/emulation", "graph/lists", "graph/references", "graph/ties", "planner/casts",
    "planner/loops", "planner/placement", "planner/plan", "planner/verify", "graphdef/inlining", "graphdef/outlining",
    "ops/customize", "ops/mixlist", "options/precision", "options/table", "managers/schedule",
    "checkpoint/plan", "checkpoint/ranges",
)  # fmt: skip
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
# what states nothing about a result: types, caches, checks of our own assumptions
SILENT = (ast.Assert, ast.Import, ast.ImportFrom)


class Mutant(NamedTuple):
    """One change: the file, the first byte and the one after the last, the line, and the text before and after."""

    path: str
    begin: int
    end: int
    line: int
    before: str
    after: str

    def __str__(self):
        return "%s:%d  %s  ->  %s" % (self.path, self.line, _short(self.before), _short(self.after))


def _short(text):
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def modules(names, root=ROOT):
    """Paths of modules by name, with their folder where several are called so: "ties", "checkpoint/plan".

    Raises:
        SystemExit: a name that stands for no file, or for several.
    """
    files = [p.relative_to(root) for folder in ("npu_shim", "rewriter") for p in (root / folder).rglob("*.py")]
    paths_of = {}
    for name in names:
        *above, stem = name.split("/")
        paths_of[name] = [str(p) for p in files if p.stem == stem and above in ([], [p.parent.name])]
    wrong = [(name, " and ".join(paths) or "nowhere") for name, paths in paths_of.items() if len(paths) != 1]
    if wrong:
        sys.exit("mutate: %s; expected one file each" % "; ".join("%s is %s" % pair for pair in wrong))
    return [paths[0] for paths in paths_of.values()]


def mutants_of(path, text):
    """Every mutant of a module; `text` is its source in bytes."""
    starts = [0]
    for line in text.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    mutants = []
    for node, after in _changes(ast.parse(text), False):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        mutants.append(Mutant(path, begin, end, node.lineno, text[begin:end].decode(), after))
    return mutants


def _changes(node, in_comparison):
    """(node, the text that takes its place) of every change in a tree."""
    if isinstance(node, SILENT) or _is_docstring(node):
        return
    if not isinstance(node, ast.Constant) or in_comparison or not isinstance(node.value, str):
        yield from ((at, _text(new)) for at, new in _of_node(node))
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_minus(node):
                yield from _changes(child, isinstance(node, ast.Compare))


def _is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _text(node):
    written = ast.unparse(ast.fix_missing_locations(node))
    return "(%s)" % written if isinstance(node, (ast.BoolOp, ast.Compare, ast.BinOp, ast.UnaryOp)) else written


def _of_node(node):
    """(node to write anew, what it becomes) for the changes that a node itself has."""
    rule = RULES.get(type(node))
    if rule is not None:
        yield from rule(node)


def _comparison(node):
    if len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        yield node, ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)


def _boolean(node):
    yield node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)


def _arithmetic(node):
    of_text = any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (node.left, node.right))
    if type(node.op) in OPERATORS and not of_text:
        yield node, ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)


def _unary(node):
    if isinstance(node.op, ast.Not):
        yield node, node.operand
    elif _is_minus(node):  # -1, which often stands for "none", becomes 0, which never does
        yield node, ast.Constant(1 - node.operand.value)


def _is_minus(node):
    """Whether a node is a negative number."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return negative and isinstance(node.operand, ast.Constant)


def _constant(node):
    value = node.value
    if isinstance(value, bool):
        yield node, ast.Constant(not value)
    elif isinstance(value, (int, float)):
        yield node, ast.Constant(value + 1)
    elif isinstance(value, str):
        yield node, ast.Constant(value + "_")


def _branch(node):
    for asked in (node.test,):
        if not isinstance(asked, (ast.Compare, ast.BoolOp, ast.UnaryOp)):  # these have changes of their own
            yield asked, ast.UnaryOp(ast.Not(), asked)


def _conditions(node):
    for asked in node.ifs:
        if not isinstance(asked, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            yield asked, ast.UnaryOp(ast.Not(), asked)


def _return(node):
    value = node.value
    if value is not None and not isinstance(value, (ast.Constant, ast.Compare, ast.BoolOp)):
        yield value, ast.Constant(None)


def _jump(node):
    yield node, ast.Break() if isinstance(node, ast.Continue) else ast.Continue()


RULES = {
    ast.Compare: _comparison, ast.BoolOp: _boolean, ast.BinOp: _arithmetic, ast.UnaryOp: _unary,
    ast.Constant: _constant, ast.If: _branch, ast.IfExp: _branch, ast.While: _branch, ast.comprehension: _conditions,
    ast.Return: _return, ast.Continue: _jump, ast.Break: _jump,
}  # fmt: skip


class Copy:
    """A copy of the tree from which the tests import, with one mutant in it at a time."""

    def __init__(self, folder):
        self.root, installed = pathlib.Path(folder, "tree"), pathlib.Path(folder, "installed")
        self._killers = collections.Counter()  # file of tests -> mutants that it killed
        self._age = 0  # seconds by which the last mutant was older than the file
        listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=str(ROOT)).decode()
        for name in filter(lambda name: (ROOT / name).is_file() or (ROOT / name).is_symlink(), listed.splitlines()):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(ROOT / name), str(self.root / name), follow_symlinks=False)
        installed.mkdir()
        for name, target in _folders().items():
            if "." not in name:  # npu_shim has links to its other folders in a checkout
                (installed / name).symlink_to(self.root / target)
        subprocess.check_call([sys.executable, "-m", "compileall", "-q", "npu_shim", "rewriter"], cwd=str(self.root))
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
        self.environment = dict(os.environ, PYTHONPATH=str(installed), PYTHONDONTWRITEBYTECODE="1", **quiet)

    def killed_by(self, mutant, tests, limit):
        """Name of the test that fails on a mutant, "time" where none ends within `limit` seconds, or None."""
        path = self.root / mutant.path
        text, stat = path.read_bytes(), path.stat()
        path.write_bytes(text[: mutant.begin] + mutant.after.encode() + text[mutant.end :])
        # no compiled text is this one's, not even what processes that tests start have compiled of another mutant
        self._age += 100
        os.utime(str(path), (stat.st_mtime - self._age, stat.st_mtime - self._age))
        try:
            return self.failed(tests, limit, mutant.path)
        finally:
            path.write_bytes(text)
            os.utime(str(path), ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def failed(self, tests, limit, path=""):
        """Name of the first test that fails, "time", or None.

        Files that import the module at `path` are asked first, with those that killed most so far.
        """
        files = sorted(str(p.relative_to(self.root)) for test in tests for p in self._files(test))
        imports = re.compile(r"^(from|import) .*\b%s\b" % pathlib.Path(path).stem, re.MULTILINE)
        best = [name for name, _ in self._killers.most_common(4)]
        near = [name for name in files if path and (name in best or imports.search((self.root / name).read_text()))]
        far = [name for name in files if name not in near]
        killer = (near and self._run(near, limit)) or (far and self._run(far, limit)) or None
        self._killers.update([killer.partition("::")[0]] if path and killer else [])
        return killer

    def _run(self, files, limit):
        asked = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
        command = [sys.executable, "-m", "pytest", *asked, "--hypothesis-seed=0", *files]
        try:
            done = subprocess.run(command, cwd=str(self.root), env=self.environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=limit, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            return "time"
        if done.returncode == 0:
            return None
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        names = [line.split(" - ")[0].partition(" ")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))]
        return names[0] if names else "pytest ends with %d: %s" % (done.returncode, " ".join(lines[-2:]))

    def _files(self, test):
        path = self.root / test
        return path.glob("test_*.py") if path.is_dir() else [path]


def _folders():
    """Import name -> folder, as setup.py has them."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "FOLDERS":
            return eval(compile(ast.Expression(node.value), "setup.py", "eval"), {"os": os})
    sys.exit("mutate: setup.py has no FOLDERS")


def _of_line(path, line):
    """The mutants of a file, or of a line of it; ends the program where there are none to choose from."""
    if not (ROOT / path).is_file():
        sys.exit("mutate: --only: there is no file %r below the repository's root" % path)
    if line and not line.isdigit():
        sys.exit("mutate: --only %s:%s: expected FILE or FILE:LINE" % (path, line))
    every = mutants_of(path, (ROOT / path).read_bytes())
    mutants = [mutant for mutant in every if not line or mutant.line == int(line)]
    return mutants or sys.exit("mutate: --only: nothing can be changed in %s" % ":".join(filter(None, (path, line))))


def chosen(arguments):
    """The mutants to try."""
    if arguments.only:
        return _of_line(*arguments.only.partition(":")[::2])
    paths = modules(arguments.modules)
    every = [mutant for path in sorted(paths) for mutant in mutants_of(path, (ROOT / path).read_bytes())]
    if arguments.list:
        return every
    return random.Random(arguments.seed).sample(every, min(arguments.count, len(every)))


def main():
    """Tries the mutants, prints a line for each and the score, and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="chooses the mutants")
    parser.add_argument("--count", type=int, default=60, help="how many mutants; 60")
    parser.add_argument("--modules", type=lambda text: text.split(","), default=NAMES, help="names, commas between")
    parser.add_argument("--only", help="FILE or FILE:LINE: every mutant there")
    parser.add_argument("--tests", nargs="+", default=["tests/pure"], help="what kills; tests/pure")
    parser.add_argument("--then", nargs="+", default=[], help="files of tests that the survivors meet")
    parser.add_argument("--limit", type=float, default=300, help="seconds for the tests of a mutant; 300")
    parser.add_argument("--least", type=float, default=90, help="per cent that must die in --tests; 90")
    parser.add_argument("--list", action="store_true", help="only say what can be changed")
    arguments = parser.parse_args()
    mutants = chosen(arguments)
    if arguments.list:
        print("\n".join(map(str, mutants)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(folder)
        for tests in filter(None, (arguments.tests, arguments.then)):
            fails = copy.failed(tests, arguments.limit)
            if fails:
                sys.exit("mutate: without a mutant already, %s fails" % fails)
        score = _score(copy, mutants, arguments)
    return 0 if score >= arguments.least else 1


def _score(copy, mutants, arguments):
    """Tries each mutant, says what became of it, and returns how many per cent died in the first tests."""
    begin, first, second = time.time(), 0, 0
    for number, mutant in enumerate(mutants, 1):
        test = copy.killed_by(mutant, arguments.tests, arguments.limit)
        first += test is not None
        if test is None and arguments.then:
            test = copy.killed_by(mutant, arguments.then, arguments.limit)
            second += test is not None
        print("%3d  %-90s %s" % (number, mutant, test or "ALIVE"), flush=True)
    words = "%d mutants, %d die in %s (%.0f %%), %d more in what is named then, %d live; seed %d, %d s"
    share = 100.0 * first / max(1, len(mutants))
    counts = (len(mutants), first, " ".join(arguments.tests), share, second, len(mutants) - first - second)
    print(words % (*counts, arguments.seed, time.time() - begin))
    return share


if __name__ == "__main__":
    sys.exit(main())
