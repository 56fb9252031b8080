"""Lowers a step where JAX is: in this process, or in one of another interpreter. Python 3.7, no JAX."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Mapping

from npu_shim.pjrt import artifacts, jax_compat, other_python
from npu_shim.rewriter.errors import ConfigError, unnamed

GRAPH, ASKED, ANSWER = "graph", "asked.json", "answer.json"  # files between the two processes
FAILED = "failed"  # in an answer: why JAX cannot be used
CPU = "cpu"
# in an artifact with ops that call functions which one kind of device has, and others do not
CALLS = (b"custom_call_v", b"composite_v")


def lowered(
    content: bytes, asked: Mapping[str, Any], python: str | None = None
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Lowers a step for a platform, and for CPUs too where they would not run the same program.

    Args:
        content: what `step.packing.packed` returns.
        asked: the other arguments of `step.lowering.lowered`.
        python: path of an interpreter with JAX; None for this process.

    Returns:
        platform -> StableHLO artifact that older releases of JAX read too, the asked one first, none if it is refused;
        and `step.lowering.Lowered.answer()`.

    Raises:
        ConfigError: the interpreter cannot be run, has no JAX or fails, or there is no room for temporary files.
    """
    if python is None:
        return _here(content, asked)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _in_another(folder, content, asked, python)
    except OSError as reason:
        text = "the folder of temporary files cannot be used: %s; TMPDIR names another"
        raise ConfigError(text % (reason.strerror or reason)) from reason


def _here(content: bytes, asked: Mapping[str, Any]) -> tuple[dict[str, bytes], dict[str, Any]]:
    jax_compat.require()
    from npu_shim.step import lowering

    done = lowering.lowered(content, **asked)
    if done.refusal:
        return {}, done.answer()
    programs = {asked["platform"]: done.artifact}
    if asked["platform"] != CPU and any(mark in done.artifact for mark in CALLS):
        other = lowering.lowered(content, **{**asked, "platform": CPU}).artifact
        programs.update({CPU: other} if other != done.artifact else {})
    return {platform: artifacts.for_older(artifact) for platform, artifact in programs.items()}, done.answer()


def _in_another(
    folder: str, content: bytes, asked: Mapping[str, Any], python: str
) -> tuple[dict[str, bytes], dict[str, Any]]:
    _write(folder, GRAPH, content)
    _write(folder, ASKED, json.dumps(asked).encode())
    said = other_python.run(python, __file__, folder)
    if not os.path.exists(os.path.join(folder, ANSWER)):
        raise ConfigError("'%s' does not lower the step: %s" % (python, said))
    platforms, answer = json.loads(_read(folder, ANSWER).decode())
    if FAILED in answer:
        raise ConfigError("'%s' does not lower the step: %s" % (python, answer[FAILED]))
    return {platform: _read(folder, platform) for platform in platforms}, answer


def main(folder: str) -> None:
    """Lowers what stands in files of a folder, and writes files there."""
    os.environ.update(JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")  # a GPU is not needed to lower for one
    answer: dict[str, Any]
    try:
        programs, answer = _here(_read(folder, GRAPH), json.loads(_read(folder, ASKED).decode()))
    except (ImportError, ConfigError) as reason:
        programs, answer = {}, {FAILED: unnamed(reason)}
    for platform, artifact in programs.items():
        _write(folder, platform, artifact)
    _write(folder, ANSWER, json.dumps([list(programs), answer]).encode())


def _write(folder: str, name: str, content: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as f:
        f.write(content)


def _read(folder: str, name: str) -> bytes:
    with open(os.path.join(folder, name), "rb") as f:
        return f.read()
