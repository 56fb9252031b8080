"""What docs/guides/repository.md types runs in a clone of google-research/bert, and prints what the page says."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pages
import pytest

PAGE = pages.ROOT / "docs" / "guides" / "repository.md"
ELSEWHERE = ("git clone", "cd ", "npu-shim engine install")  # what a test leaves to the user


def typed():
    """[(line, lines that it prints)] of the page's console blocks, in order."""
    commands = []
    for block in pages.blocks(PAGE):
        text = re.sub(r" *\\\n *", " ", block.text)  # lines that end in a backslash go on
        for line in text.splitlines() if block.language == "console" else ():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            else:
                commands[-1][1].append(line)
    return [(line, printed) for line, printed in commands if not line.startswith(ELSEWHERE)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the user's clone, with the page's files."""
    folder = pathlib.Path(os.environ.get("NPU_SHIM_REPOSITORIES", "")) / "google-research" / "bert"
    if not os.environ.get("NPU_SHIM_REPOSITORIES") or not folder.is_dir():
        pytest.skip("NPU_SHIM_REPOSITORIES names no folder with a clone of google-research/bert")
    if not os.environ.get("NPU_SHIM_JAX"):
        pytest.skip("NPU_SHIM_JAX names no interpreter for the engine")
    copy = tmp_path_factory.mktemp("guide") / "bert"
    shutil.copytree(str(folder), str(copy))
    for name, text in pages.files(PAGE).items():
        (copy / name).write_text(text, encoding="utf-8")
    return copy


@pytest.mark.nightly
def test_bert_gets_from_its_clone_to_a_mixed_step_on_pjrt(clone):
    own = {**os.environ, "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]}
    for line, printed in typed():
        done = subprocess.run(
            line, shell=True, cwd=str(clone), env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stdout[-3000:])
        missing = [line for line in printed if not pages.is_printed(line, done.stdout)]
        assert not missing, (line, missing, done.stdout[-3000:])


def test_the_page_has_the_commands_that_it_is_about():
    lines = [line for line, _ in typed()]
    assert any("--precision-mode auto --engine pjrt" in line for line in lines)
    assert any("--init_checkpoint=float32" in line for line in lines)
