r"""The pages of the documentation: their links and anchors, and what of them runs.

A fenced block is by its first line

    ```python                a script that runs
    ```python title="a.py"   a file of the page's folder; so is any block with a title
    ```sh                    commands that run, one a line (or more, with \ at their ends); `# exit status N` behind one
                             says how it ends
    ```text                  lines that the page's commands print, `...` for what differs from run to run
    ```console               what a user types elsewhere: it is not run
"""

import pathlib
import re
from typing import NamedTuple, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(\w*)[ ]?(?:title=\"([^\"]+)\")?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = ("python", "sh", "text", "console", "json")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`]*`")
HEADING = re.compile(r"^#+ +(.*?)\s*#*$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, its title or "", and its text."""

    language: str
    title: str
    text: str


class Command(NamedTuple):
    """A line that runs, how it must end, and lines that it or those before it must have printed."""

    line: str
    status: int
    printed: Tuple[str, ...]


def all_pages():
    """Paths of the Markdown files that people read."""
    top = sorted(ROOT.glob("*.md"))
    return top + sorted(path for folder in ("docs", "examples", "tests") for path in (ROOT / folder).rglob("*.md"))


def blocks(page):
    """The page's fenced blocks in order."""
    fenced = [Block(*groups[:2], groups[3]) for groups in FENCE.findall(page.read_text(encoding="utf-8"))]
    return [block._replace(title=block.title or "") for block in fenced]


def files(page):
    """dict of file name -> text: the blocks with a title, and the scripts without one."""
    named = {}
    for number, block in enumerate(blocks(page)):
        name = block.title or ("block_%d.py" % number if block.language == "python" else "")
        if name:
            assert name not in named, "%s has two blocks called %s" % (page, name)
            named[name] = block.text
    return named


def commands(page):
    """The page's commands in order, with what each must print."""
    listed = []
    for number, block in enumerate(blocks(page)):
        if block.title:
            continue
        if block.language == "python":
            # what imports the compat module is a TensorFlow 2 script and runs with plain python
            launcher = "python" if "tensorflow.compat.v1" in block.text else "npu-shim run"
            listed.append(Command("%s block_%d.py" % (launcher, number), 0, ()))
        elif block.language == "sh":
            joined = re.sub(r" *\\\n *", " ", block.text)
            listed += [_command(line) for line in joined.splitlines() if line.strip()]
        elif block.language == "text":
            assert listed, "%s: nothing was run before: %s" % (page, block.text)
            lines = tuple(line for line in block.text.splitlines() if line.strip(" ."))
            listed[-1] = listed[-1]._replace(printed=listed[-1].printed + lines)
    return listed


def _command(line):
    status = re.search(r"# exit status (\d+)$", line)
    return Command(line, int(status.group(1)) if status else 0, ())


def is_printed(line, output):
    """Whether a line of a page is one of the output's: `...` stands for anything, blanks for any number of them."""
    words = [re.escape(word).replace(re.escape("..."), ".*") for word in line.split()]
    form = r"[ \t]+".join(words).replace(r"[ \t]+.*[ \t]+", r"[ \t].*[ \t]")
    return re.search(r"^[ \t]*%s[ \t]*$" % form, output, re.MULTILINE) is not None


def links(page):
    """Targets of the page's links outside of code."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    return LINK.findall(text)


class Table(NamedTuple):
    """Consecutive lines that begin with a bar: the number of the first, and of cells in each."""

    line: int
    cells: Tuple[int, ...]
    ruled: bool


def tables(text):
    """The runs of lines outside of fenced code that begin with a bar, as `Table`s. The second line is the rule."""
    parsed, run = [], []
    outside = FENCE.sub(lambda match: "\n" * match.group(0).count("\n"), text).splitlines()
    for number, line in enumerate([*outside, ""], 1):
        if line.startswith("|"):
            run.append(line)
        elif run:
            rows = [CODE.sub("code", row) for row in run]
            ruled = len(run) > 1 and re.fullmatch(r"\|( *:?-+:? *\|)+ *", rows[1]) is not None
            parsed.append(Table(number - len(run), tuple(_cells(row) for row in rows), ruled))
            run = []
    return parsed


def _cells(row):
    """How many cells a row has, or 0 where it does not end in a bar."""
    row = row.rstrip().replace("\\|", "")
    return row.count("|") - 1 if row.endswith("|") else 0


def broken_tables(text):
    """What of a page's tables is shown as text with bars: (line, why)."""
    for table in tables(text):
        if not table.ruled:
            yield table.line, "rows without a head: is a blank line in the middle of a table?"
        elif len(set(table.cells)) > 1:
            yield table.line, "its rows have %s cells" % sorted(set(table.cells))


def anchors(page):
    """The anchors of the page's headings, as GitHub and MkDocs make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}
