"""The documentation: its links hold, its site builds, and it says what the code has."""

import ast
import importlib.util
import os
import re
import subprocess
import sys

import pages
import pytest
import readme

ROOT = pages.ROOT
DOCS = ROOT / "docs"
PAGES = {str(path.relative_to(ROOT)): path for path in pages.all_pages()}
API = (DOCS / "api.md").read_text(encoding="utf-8")


def broken(page):
    """The page's relative links that lead nowhere."""
    for link in pages.links(page):
        name, _, anchor = link.partition("#")
        target = page if not name else (page.parent / name).resolve()
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and anchor not in pages.anchors(target)):
            yield link


@pytest.mark.parametrize("name", sorted(PAGES))
def test_links_hold(name):
    assert list(broken(PAGES[name])) == []


def test_a_broken_link_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A head\n[a](page.md#a-head) [b](nowhere.md) [c](#none) [d](https://example.org)\n`[e](no.md)`\n")
    assert list(broken(page)) == ["nowhere.md", "#none"]


@pytest.mark.parametrize("name", [name for name in sorted(PAGES) if name.startswith("docs") or name == "README.md"])
def test_every_block_is_of_a_kind_that_is_run_or_said_not_to(name):
    assert {block.language for block in pages.blocks(PAGES[name])} <= set(pages.LANGUAGES)
    assert PAGES[name].read_text(encoding="utf-8").count("```") == 2 * len(pages.blocks(PAGES[name]))


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_table_renders(name):
    assert list(pages.broken_tables(PAGES[name].read_text(encoding="utf-8"))) == []


HEAD = "| a | b |\n|---|---|\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (HEAD + "| 1 | `x \\| y` |\n", []), ("text\n\n" + HEAD + "| 1 | 2 |\n\n| 3 | 4 |\n", [7]),
        (HEAD + "| 1 | 2\n", [1]),
        (HEAD + "| 1 | 2 | 3 |\n", [1]), ("```text\n| 1\n```\n", []), ("| a | b |\n", [1]),
    ],
)  # fmt: skip
def test_a_broken_table_is_seen(text, wrong):
    assert [line for line, _ in pages.broken_tables(text)] == wrong


WIDEST = 125  # characters of a code block that does not scroll sideways at 1,300 pixels, see docs/site/wide.css


@pytest.mark.parametrize("name", [name for name in sorted(PAGES) if name.startswith("docs") or name == "README.md"])
def test_code_does_not_scroll_sideways(name):
    lines = (line for block in pages.blocks(PAGES[name]) for line in block.text.splitlines())
    assert [line for line in lines if len(line) > WIDEST] == []


def test_the_readme_fits_on_some_screens():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_contributing_fits_on_one():
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 70


@pytest.mark.parametrize(
    ("line", "output", "printed"),
    [
        ("loss ...", "a\nloss 0.5\n", True), ("cast   w  f32 -> f16", "cast w f32 -> f16", True),
        ("... b", "a b", True),
        ("... float slots, ... s", "m: 3 of 4 float slots, casts 2, 0.1 s", True), ("loss 1", "loss 10", False),
        ("loss ...", "no loss 1", False), ("a b", "a\nc b", False),
    ],
)  # fmt: skip
def test_what_a_page_says_is_printed_is_looked_for(line, output, printed):
    assert pages.is_printed(line, output) == printed


def test_python_versions_agree():
    """versions.md says which Pythons a TensorFlow has; all other places follow it."""

    def text(name):
        return (ROOT / name).read_text(encoding="utf-8")

    rows = re.findall(r"^\| ([\d.]+) \| ([\d., ]+) \|", text("docs/versions.md"), re.MULTILINE)
    pythons = {tensorflow: row.split(", ") for tensorflow, row in rows}
    assert len(pythons) == 3
    assert dict(rows) == dict(re.findall(r"^\| ([\d.]+) \| ([\d., ]+) \|", text("BUILD.md"), re.MULTILINE))
    reference = pythons["2.15.1"]
    for name in ("README.md", "CONTRIBUTING.md", "docs/guides/script.md"):
        assert "Python %s or %s" % (", ".join(reference[:-1]), reference[-1]) in text(name), name
    for tensorflow in ("2.21.0", "1.15.5"):
        assert "TensorFlow %s (Python %s)" % (tensorflow, ", ".join(pythons[tensorflow])) in text("README.md")
    assert "versions=${*:-%s}" % " ".join(reversed(reference)) in text("scripts/python")
    classifiers = re.findall(r"Python :: (3\.\d+)", text("pyproject.toml"))
    assert set(classifiers) == {version for row in pythons.values() for version in row}


def test_readme_has_the_figures_of_the_committed_files():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.written(text) == text, "run: python scripts/readme.py"


def test_readme_has_each_rate_of_what_nobody_here_had_run_before():
    text = (ROOT / "benchmarks" / "unseen.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (20[\d-]+) \| (\w+) \| (\d+) \| (\d+) \|", text, re.MULTILINE)
    assert {kind for _, kind, _, _ in rows} == {"networks", "repositories"}
    told = readme.results().splitlines()
    for day, kind, of, whole in rows:
        assert [line for line in told if kind in line.lower() and "%s of %s (%s)" % (whole, of, day) in line], (
            day,
            kind,
        )


def test_readme_shows_lines_of_a_real_run():
    shown = [block.text for block in pages.blocks(ROOT / "README.md") if block.text.startswith("npu_shim: ")]
    run = (ROOT / "benchmarks" / "digits.txt").read_text(encoding="utf-8").splitlines()
    assert len(shown) == 1
    lines = shown[0].splitlines()
    assert len(lines) == 5
    assert set(lines) <= set(run)


PATHS = sorted(
    (name, path)
    for name in ("README.md", "CONTRIBUTING.md", "BUILD.md", "docs/code.md")
    for path in set(re.findall(r"`((?:rewriter|npu_shim|configs|scripts|tests|docs|benchmarks)/[\w/.-]+)`",
                               (ROOT / name).read_text(encoding="utf-8")))
)  # fmt: skip


@pytest.mark.parametrize(("name", "path"), PATHS)
def test_paths_that_pages_name_exist(name, path):
    assert (ROOT / path).exists()


def test_the_reference_has_every_public_name():
    import npu_shim
    import npu_shim.loss_scale

    listed = set(re.findall(r"^::: ([\w.]+)$", API, re.MULTILINE))
    public = {"npu_shim." + name for name in npu_shim._HOMES}
    public |= {"npu_shim.loss_scale." + name for name in npu_shim.loss_scale.__all__}
    public |= {"npu_shim.pjrt.load", "npu_shim.pjrt.Program", "npu_shim.export.export", "npu_shim.export.checkpoint"}
    public |= {"npu_shim.export.cost.on_cards", "npu_shim.export.as_jax", "npu_shim.export.write_jax"}
    assert public - listed == {"npu_shim.loss_scale.POLICIES"}  # a table, which the page names
    assert listed - public == set()


COMMANDS = (DOCS / "commands.md").read_text(encoding="utf-8")


def test_every_command_has_its_row():
    from npu_shim import cli

    assert set(re.findall(r"^\| `npu-shim ([\w-]+)", COMMANDS, re.MULTILINE)) == set(cli.COMMANDS)


def test_every_environment_variable_has_its_row():
    """Those that the package itself reads, by their names in its strings."""
    sources = [path for folder in ("npu_shim", "rewriter") for path in (ROOT / folder).rglob("*.py")]
    read = {name for path in sources for name in re.findall(r'"(NPU_SHIM_[A-Z_]+)"', path.read_text(encoding="utf-8"))}
    assert set(re.findall(r"^\| `(NPU_SHIM_[A-Z_]+)`", COMMANDS, re.MULTILINE)) == read


def messages():
    """Every string of the sources, what is formatted into it as `...`."""
    for folder in ("npu_shim", "rewriter"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = getattr(node, "value" if sys.version_info >= (3, 8) else "s", None)
                if isinstance(text, str):
                    yield re.sub(r"%[sdrg]", "...", text)
    yield (ROOT / "npu_shim" / "session" / "native" / "hook.cc").read_text(encoding="utf-8")


# errors of TensorFlow's own, and parts of paths and commands
THEIRS = (
    "only supports NHWC",
    "do not yet support dilation rates larger than 1",
    "expected dtype float does not equal original dtype half",
    "Key ... not found in checkpoint",
)


def quoted():
    """The messages in the first column of troubleshooting.md."""
    rows = re.findall(r"^\| (`.*?`) \|", (DOCS / "troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE)
    texts = [text for row in rows for text in re.findall(r"`([^`]+)`", row)]
    return [text.replace("\\|", "|") for text in texts if text not in THEIRS]


def test_messages_that_troubleshooting_quotes_are_those_of_the_code():
    texts = list(messages())
    missing = []
    for message in quoted():
        parts = [part.strip() for part in message.split("...") if part.strip()]
        form = re.compile(".*".join(map(re.escape, parts)))
        if not any(form.search(text) for text in texts):
            missing.append(message)
    assert len(quoted()) > 100
    assert missing == [], "\n".join(missing)


def test_the_site_builds(tmp_path):
    """Strictly: a link, an anchor, a page outside of the navigation or an API name that does not resolve ends it."""
    for name in ("mkdocs", "material", "mkdocstrings", "griffe"):
        if importlib.util.find_spec(name) is None:
            pytest.skip("%s is not installed: pip install 'npu-shim[docs]'" % name)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(DOCS / "site" / "mkdocs.yml")]
    built = subprocess.run(
        [*command, "-d", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stdout
    pages_built = {str(path.relative_to(tmp_path).parent) for path in tmp_path.rglob("index.html")}
    assert {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")} - pages_built == {"index"}
    torn = [str(path) for path in tmp_path.rglob("*.html") if re.search(r"<p>\|", path.read_text(encoding="utf-8"))]
    assert not torn  # tables that are shown as text
    api = (tmp_path / "api" / "index.html").read_text(encoding="utf-8")
    assert re.search(r">\s*npu_shim\.rewrite\s*<", api)
    loaded = re.findall(r"(?:src|href)=\"(https?://[^\"]+)\"", (tmp_path / "index.html").read_text(encoding="utf-8"))
    assert not [address for address in loaded if address.endswith((".js", ".css"))]  # it reads offline


def test_the_public_ci_runs_what_ci_runs():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))["jobs"]
    commands = [step.get("run") for job in jobs.values() for step in job["steps"]]
    assert ".ci/run" in commands
    assert os.access(str(ROOT / ".ci" / "run"), os.X_OK)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert {hook["id"] for repo in hooks for hook in repo["hooks"]} == {"ruff", "mypy"}
