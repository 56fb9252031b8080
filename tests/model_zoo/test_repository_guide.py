"""What two guides type runs in a clone of google-research/bert, and prints what the pages say."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pages
import pytest

GUIDES = pages.ROOT / "docs" / "guides"
REPOSITORY, ALL_CARDS = GUIDES / "repository.md", GUIDES / "all_cards.md"
ELSEWHERE = ("git clone", "cd ", "npu-shim engine install")  # what a test leaves to the user


def typed(page):
    """[(line, lines that it prints)] of a page's console blocks, in order."""
    commands = []
    for block in pages.blocks(page):
        text = re.sub(r" *\\\n *", " ", block.text)  # lines that end in a backslash go on
        for line in text.splitlines() if block.language == "console" else ():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            else:
                commands[-1][1].append(line)
    return [(line, printed) for line, printed in commands if not line.startswith(ELSEWHERE)]


@pytest.fixture(params=[REPOSITORY, ALL_CARDS], ids=["repository", "all cards"])
def page(request):
    return request.param


@pytest.fixture
def clone(page, tmp_path):
    """A copy of the user's clone, with the page's files."""
    folder = pathlib.Path(os.environ.get("NPU_SHIM_REPOSITORIES", "")) / "google-research" / "bert"
    if not os.environ.get("NPU_SHIM_REPOSITORIES") or not folder.is_dir():
        pytest.skip("NPU_SHIM_REPOSITORIES names no folder with a clone of google-research/bert")
    if not os.environ.get("NPU_SHIM_JAX"):
        pytest.skip("NPU_SHIM_JAX names no interpreter for the engine")
    copy = tmp_path / "bert"
    shutil.copytree(str(folder), str(copy))
    for name, text in pages.files(page).items():
        (copy / name).write_text(text, encoding="utf-8")
    return copy


@pytest.mark.nightly
def test_what_a_guide_types_prints_what_it_says(page, clone):
    own = {**os.environ, "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]}
    for line, printed in typed(page):
        done = subprocess.run(
            line, shell=True, cwd=str(clone), env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stdout[-3000:])
        missing = [line for line in printed if not pages.is_printed(line, done.stdout)]
        assert not missing, (line, missing, done.stdout[-3000:])


def test_the_pages_have_the_commands_that_they_are_about():
    lines = [line for line, _ in typed(REPOSITORY)]
    assert any("--precision-mode auto --engine pjrt" in line for line in lines)
    assert any("--init_checkpoint=float32" in line for line in lines)
    lines = [line for line, _ in typed(ALL_CARDS)]
    assert [any("--devices %d" % count in line for line in lines) for count in (2, 8)] == [True, True]
