"""Compiled programs in a folder: loaded by later ones, never wrong, never in the way. Needs JAX."""

import os

import numpy as np
import pytest

from npu_shim import pjrt
from npu_shim.pjrt import jax_compat, manifest, program_cache
from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.step import lowered

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

STATE, FEED = Tensor("state", "w", (4,), "float32", "parameter"), Tensor("feed", "x:0", (4,), "float32")
FETCH = Tensor("fetch", "loss:0", (), "float32")
X = np.linspace(-1, 1, 4, dtype="f")


def exported(folder, rate=0.5):
    def step(x, w):
        return jax.numpy.tanh(x * w).sum(), w - rate * jax.numpy.sin(x * w)

    given = [jax.ShapeDtypeStruct((4,), np.float32)] * 2
    artifact = jax.export.export(jax.jit(step))(*given).mlir_module_serialized
    manifest.write(str(folder), artifact, Manifest((FEED, STATE), (FETCH, STATE)), [("w", np.ones(4, "f"))])
    return str(folder)


@pytest.fixture
def step(tmp_path):
    return exported(tmp_path / "step")


@pytest.fixture
def cache(tmp_path):
    return str(tmp_path / "not" / "there yet")


def run(step, cache, iterations=None):
    """(whether the program was loaded, the loss and the state that it gives)."""
    program = pjrt.load(step, device="cpu", cache=cache)
    fed = X if iterations is None else np.stack([X] * iterations)
    results = [program.run({"x": fed}, iterations)["loss:0"] for _ in range(2)]
    return program.is_old, [*map(np.asarray, results), program.state()["w"]]


def test_the_second_program_is_loaded_and_gives_the_same_bits(step, cache):
    expected = run(step, "")
    for iterations in (None, 3):  # a loop is another program
        first, second = run(step, cache, iterations), run(step, cache, iterations)
        assert (first[0], second[0]) == (False, True)
        for actual, wanted in zip(second[1], first[1]):
            np.testing.assert_array_equal(actual, wanted)
        if iterations is None:
            np.testing.assert_array_equal(second[1][2], expected[1][2])
    assert len(os.listdir(cache)) == 2
    assert os.stat(cache).st_mode & 0o077 == 0  # whoever writes there runs code here


def test_the_environment_names_a_folder_and_an_argument_wins(step, tmp_path, monkeypatch):
    monkeypatch.setenv(program_cache.VARIABLE, str(tmp_path / "a"))
    monkeypatch.chdir(tmp_path)
    run(step, None)
    run(step, "b")
    assert len(os.listdir(str(tmp_path / "a"))) == len(os.listdir(str(tmp_path / "b"))) == 1


def test_what_the_code_depends_on_is_in_its_name(step, cache, tmp_path, monkeypatch):
    run(step, cache)
    assert not run(exported(tmp_path / "other", rate=0.25), cache)[0]
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " --xla_cpu_enable_fast_math=false")
    assert not run(step, cache)[0]
    monkeypatch.undo()
    monkeypatch.setattr(jax, "__version__", "0.12.99")
    assert not run(step, cache)[0]
    monkeypatch.undo()
    monkeypatch.setattr(jax_compat, "compiler_options", lambda platform, devices=1: {})
    assert not run(step, cache)[0]
    monkeypatch.undo()
    assert run(step, cache)[0]
    assert len(os.listdir(cache)) == 5


def test_programs_for_cpus_round_where_the_graph_does(cache):
    """Sums that bfloat16 cannot hold, also where the float32 loop that reads them could take them as they are."""
    one = jax.numpy.ones((), "bfloat16")
    rounded = jax.jit(lambda x: jax.numpy.sum((x.astype("bfloat16") + one).astype(np.float32)) - 4)
    lowered_one = rounded.lower(jax.ShapeDtypeStruct((4,), np.float32))
    for folder in ("", cache):
        program = program_cache.compiled(jax, lowered_one, jax.devices("cpu"), folder).program
        assert program(np.full(4, 2.0**-12, "f")) == 0


def damaged(content):
    return content[:-100] + bytes(100)


@pytest.mark.parametrize("spoil", [damaged, lambda content: content[:1000], lambda _: b"", lambda _: b"text\n"])
def test_a_damaged_file_is_said_and_replaced(step, cache, spoil, caplog):
    expected = run(step, cache)[1]
    (name,) = os.listdir(cache)
    path = os.path.join(cache, name)
    with open(path, "rb") as f:
        content = f.read()
    with open(path, "wb") as f:
        f.write(spoil(content))
    is_old, actual = run(step, cache)
    assert not is_old
    assert ["'%s' cannot be used and is compiled again: it is damaged" % path] == said(caplog)
    np.testing.assert_array_equal(actual[2], expected[2])
    assert run(step, cache)[0]


def test_a_file_of_another_program_is_not_loaded(step, cache, tmp_path, caplog):
    """Regression: the other program ran."""
    expected = run(step, cache)[1]
    (name,) = os.listdir(cache)
    run(exported(tmp_path / "other", rate=0.25), cache)
    (other,) = set(os.listdir(cache)) - {name}
    os.replace(os.path.join(cache, other), os.path.join(cache, name))
    is_old, actual = run(step, cache)
    assert not is_old
    assert "it is damaged" in said(caplog)[0]
    np.testing.assert_array_equal(actual[2], expected[2])


def said(caplog):
    return [record.getMessage().replace("npu_shim: ", "", 1) for record in caplog.records if record.name == "npu_shim"]


def test_a_whole_file_that_is_no_program_is_said_and_replaced(step, cache, caplog):
    run(step, cache)
    (name,) = os.listdir(cache)
    program_cache.write(cache, name, b"no pickle")
    assert not run(step, cache)[0]
    assert "it holds no program" in said(caplog)[0]
    assert run(step, cache)[0]


def test_another_user_s_file_is_left_alone(step, cache, caplog, monkeypatch):
    run(step, cache)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result([0] * 4 + [777] + [0] * 5))
    assert not run(step, cache)[0]
    assert "belongs to another user (777)" in said(caplog)[0]


def test_a_folder_that_cannot_be_written_is_said_and_the_step_runs(step, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    is_old, losses = run(step, str(tmp_path / "file" / "below"))
    assert not is_old
    assert np.isfinite(losses[0])
    assert len(said(caplog)) == 1
    assert said(caplog) == ["compiled programs are not kept in '%s': Not a directory" % (tmp_path / "file" / "below")]


def test_a_full_disk_leaves_nothing_half_written(step, cache, caplog, monkeypatch):
    class Full:
        def __init__(self, path):
            self.path = path

        def __enter__(self):
            raise OSError(28, "No space left on device")

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(program_cache.atomic_write, "file", Full)
    assert not run(step, cache)[0]
    assert said(caplog) == ["compiled programs are not kept in '%s': No space left on device" % cache]
    assert os.listdir(cache) == []


def test_where_jax_has_a_cache_of_its_own_that_serves(step, cache, tmp_path, caplog):
    """What JAX had loaded was kept anew, without some of its functions: a later process failed at its first step."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "jax"))
    try:
        assert not run(step, cache)[0]
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
    assert "JAX's own cache of compiled programs is on" in said(caplog)[0]
    assert not os.path.exists(cache)


def test_without_a_folder_nothing_is_kept(step, tmp_path, monkeypatch):
    monkeypatch.delenv(program_cache.VARIABLE, raising=False)
    before = sorted(os.listdir(str(tmp_path)))
    assert not run(step, None)[0]
    assert sorted(os.listdir(str(tmp_path))) == before


def test_a_step_that_was_lowered_before_is_not_traced_again(tmp_path, monkeypatch):
    asked, traced = {"platform": "cpu", "known": {"n:0": [[2]]}}, []
    step = lowered.Lowered(b"artifact", [["loss:0", "float32", []]], ["w"])

    def trace(content, asked):
        traced.append(content)
        return step._replace(refusal="no rule") if content == b"other" else step

    monkeypatch.setattr(lowered, "_lowered", trace)
    cache = str(tmp_path / "cache")
    assert [lowered.of(b"graph", asked, cache) for _ in range(2)] == [(step, "")] * 2
    assert lowered.of(b"graph", {**asked, "known": {"n:0": [[3]]}}, cache) == (step, "")
    assert traced == [b"graph"] * 2
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert "is compiled again: it is damaged" in lowered.of(b"graph", asked, cache)[1]
    assert lowered.of(b"graph", asked, cache) == (step, "")
    assert [lowered.of(b"other", asked, cache)[0].refusal for _ in range(2)] == ["no rule"] * 2  # refusals are not kept
    assert traced == [b"graph"] * 3 + [b"other"] * 2
    (tmp_path / "file").write_text("")
    assert "are not kept in '" in lowered.of(b"graph", asked, str(tmp_path / "file"))[1]
