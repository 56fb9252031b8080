"""Libraries in C++: whose are loaded, and what builds leave behind that are killed."""

import ctypes
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import pytest

from npu_shim.session.native import build


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """The folder of the cache; and the temporary folder is one of this test's."""
    monkeypatch.setenv("NPU_SHIM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "cache"


@pytest.fixture
def answer(tmp_path):
    """Sources of a library with one function, and the number that it returns."""
    source = tmp_path / "answer.cc"
    source.write_text('extern "C" int answer() { return 42; }\n')
    return (str(source),)


def as_another_user(path, monkeypatch):
    """Makes a file or folder one of another user's, as far as this process can tell."""
    if os.getuid() == 0:
        os.chown(str(path), 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)


def test_a_library_is_built_where_nobody_else_writes(cache, answer):
    umask = os.umask(0o002)
    try:
        library = build.load(answer)
    finally:
        os.umask(umask)
    assert library.answer() == 42
    assert os.path.dirname(library._name) == str(cache)
    assert [os.stat(place).st_mode & 0o022 for place in (str(cache), library._name)] == [0, 0]
    assert build.build(answer) == library._name


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o1777])
def test_a_folder_that_others_may_write_serves_nothing(cache, answer, mode, caplog):
    planted = build.build(answer)
    with open(planted, "wb") as file:
        file.write(b"planted")
    cache.chmod(mode)
    library = build.load(answer)  # that which is planted is none, and would not load
    assert library.answer() == 42
    assert library._name.startswith(tempfile.gettempdir())
    assert "no library is built in or loaded from '%s', which other users may write" % cache in caplog.text
    assert os.path.dirname(library._name) in caplog.text


def test_another_user_s_folder_serves_nothing(cache, answer, monkeypatch, caplog):
    cache.mkdir(mode=0o755)
    if os.getuid():
        pytest.skip("only root can give a folder away")
    as_another_user(cache, monkeypatch)
    assert os.path.dirname(build.build(answer)) == os.path.join(tempfile.gettempdir(), "npu_shim-%d" % os.getuid())
    assert "belongs to another user (12345)" in caplog.text


@pytest.mark.parametrize("how", ["its mode", "its owner"])
def test_a_library_that_others_may_have_written_is_built_anew(cache, answer, monkeypatch, how):
    library = pathlib.Path(build.build(answer))
    library.write_bytes(b"planted")
    if how == "its mode":
        library.chmod(0o775)
    elif os.getuid():
        pytest.skip("only root can give a file away")
    else:
        as_another_user(library, monkeypatch)
    assert build.load(answer).answer() == 42
    assert library.stat().st_mode & 0o022 == 0
    assert library.stat().st_uid == os.getuid()


def test_where_no_folder_serves_the_error_names_both(cache, answer):
    for folder in (cache, pathlib.Path(tempfile.gettempdir()) / ("npu_shim-%d" % os.getuid())):
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(build.BuildError, match="'%s', which other users may write .* or .*set NPU_SHIM_CACHE" % cache):
        build.build(answer)


def started(answer, monkeypatch, tmp_path):
    """Starts a build whose compiler runs until it is stopped, in a fork; returns its process once it compiles."""
    compiler = tmp_path / "slow"
    compiler.write_text('#!/bin/sh\necho $$ > "%s/running"\ntouch "$TMPDIR/own"\nexec sleep 60\n' % tmp_path)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    child = os.fork()
    if not child:
        try:
            build.build(answer)
        finally:
            os._exit(3)
    running = tmp_path / "running"
    until = time.monotonic() + 60
    while not (running.exists() and running.read_text().strip()):
        assert time.monotonic() < until
        time.sleep(0.02)
    monkeypatch.delenv("CXX")
    return child, int(running.read_text())


def status_of(child):
    status = os.waitpid(child, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class SlowPopen(subprocess.Popen):
    """Starts a process and returns a while after it has begun, as on a busy machine."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            time.sleep(0.02)


@pytest.mark.parametrize("when", ["as it compiles", "as it starts the compiler"])
def test_sigterm_leaves_nothing_of_a_build(cache, answer, monkeypatch, tmp_path, when):
    if when == "as it starts the compiler":
        monkeypatch.setattr(subprocess, "Popen", SlowPopen)
    child, compiler = started(answer, monkeypatch, tmp_path)
    os.kill(child, signal.SIGTERM)
    assert status_of(child) == -signal.SIGTERM
    assert [path.name for path in cache.iterdir()] == ["lock"]
    assert is_gone(compiler)


def is_gone(process):
    """Whether a process ends; on a busy machine it is a zombie for a while."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_what_sigkill_leaves_of_a_build_the_next_one_removes(cache, answer, monkeypatch, tmp_path):
    child, compiler = started(answer, monkeypatch, tmp_path)
    os.kill(child, signal.SIGKILL)
    assert status_of(child) == -signal.SIGKILL
    os.kill(compiler, signal.SIGKILL)
    assert len(list(cache.glob("tmp*.tmp"))) == 1
    (cache / "tmpolder.tmp").write_bytes(b"as earlier releases left it")
    assert ctypes.CDLL(build.build(answer)).answer() == 42
    assert sorted(path.suffix for path in cache.iterdir()) == ["", ".so"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
