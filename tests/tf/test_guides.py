"""The commands and Python examples of README and docs/ run as they stand, and print what the pages say."""

import os
import re
import subprocess

import forked
import pages
import pytest
import tensorflow.compat.v1 as tf
from test_export import interpreter_with_jax, package

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not tf.__version__.startswith("2.15"), reason="the pages are written for TensorFlow 2.15"),
]
ROOT = pages.ROOT
# a page of each kind by day: the entrances of a script, what the command prints, compile_step, export
BY_DAY = (
    "BUILD.md", "README.md", "docs/guides/compiled-step.md", "docs/guides/estimator.md", "docs/guides/export.md",
    "docs/guides/moved-names.md", "docs/guides/session.md",
)  # fmt: skip
PAGES = {
    name: page for name, page in ((str(page.relative_to(ROOT)), page) for page in pages.all_pages())
    if pages.commands(page) and (os.environ.get("NPU_SHIM_NIGHTLY") or name in BY_DAY)
}  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """dict of page -> (its folder, [(Command, what has been printed up to its end, Done)])."""
    folders = {name: tmp_path_factory.mktemp("page") for name in PAGES}
    for name, folder in folders.items():
        for file, text in pages.files(PAGES[name]).items():
            (folder / file).write_text(text)
    typed = [(name, command) for name in PAGES for command in pages.commands(PAGES[name])]
    ended = forked.run([(command.line, folders[name]) for name, command in typed], timeout=900)
    results = {name: (folders[name], []) for name in PAGES}
    for (name, command), done in zip(typed, ended):
        before = "".join(output for _, output, _ in results[name][1])
        results[name][1].append((command, before + done.output, done))
    return results


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_runs_and_prints_what_it_says(ran, name):
    for command, output, done in ran[name][1]:
        assert done.status == command.status, (command.line, done.output)
        missing = [line for line in command.printed if not pages.is_printed(line, output)]
        assert not missing, (command.line, missing, output)


def test_there_are_examples_of_all_entrances():
    words = "".join(pages.files(PAGES["README.md"]).values())
    assert all(word in words for word in ("NPURunConfig", "custom_optimizers"))


def test_the_exported_step_runs_where_jax_is(ran, tmp_path):
    jax, folder = interpreter_with_jax(), ran["docs/guides/export.md"][0]
    done = subprocess.run(
        [jax, "run_step.py"], cwd=str(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "PYTHONPATH": package(tmp_path), "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search("^it learns: True$", done.stdout, re.MULTILINE)
