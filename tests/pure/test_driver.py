"""What is told of cards: those that JAX knows and TensorFlow does not, old drivers, taken memory, and none at all.

A program in the place of nvidia-smi answers for the driver.
"""

import importlib.util

import pytest

from npu_shim.pjrt import driver
from npu_shim.pjrt.driver import Jax

TF_215 = ("2.15.1", ["sm_50", "sm_60", "sm_70", "sm_75", "compute_80"])
CPU, CUDA12, CUDA13, ON_CARD = Jax("", "cpu"), Jax("cuda12", "cpu", "/p"), Jax("cuda13", "cpu"), Jax("cuda12", "gpu")
B200, RTX5090 = "570.86, NVIDIA B200, 183359, 512, 10.0", "580.65, NVIDIA GeForce RTX 5090, 32607, 400, 12.0"
K80 = "535.104, Tesla K80, 11441, 0, 3.7"
V100, A100 = "580.65, Tesla V100-SXM2-16GB, 16160, 0, 7.0", "535.104, NVIDIA A100, 40960, 1000, 8.0"

TOO_OLD = "driver 470.57 is too old for JAX: update it to 525 or later, for CUDA 13 to 580"


@pytest.fixture
def answering(tmp_path, monkeypatch):
    """Returns a function that makes a driver answer with lines, or with a status and what it says."""
    for name in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)

    def answer(*lines, status=0, fields="compute_cap"):
        program = tmp_path / "nvidia-smi"
        refused = 'echo "Field \\"compute_cap\\" is not a valid field to query."; exit 2'
        says = "\n".join("echo '%s'" % line for line in lines)
        program.write_text("#!/bin/sh\ncase $1 in *%s*) ;; *) %s;; esac\n%s\nexit %d\n" % (
            fields, refused, says, status
        ))  # fmt: skip
        program.chmod(0o755)
        monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % tmp_path)
        return driver.seen()

    return answer


@pytest.mark.parametrize(
    ("card", "jax", "said"),
    [
        (B200, ON_CARD, ""),
        (B200, None, "the engine has no JAX: npu-shim engine install cuda12"),
        (RTX5090, None, "the engine has no JAX: npu-shim engine install cuda13"),
        (V100, None, "the engine has no JAX: npu-shim engine install cuda12"),
        (RTX5090, CPU, "JAX (beside TensorFlow) has no CUDA: pip install 'jax[cuda13]'"),
        (A100, CUDA13, ("JAX (beside TensorFlow) is for CUDA 13, which needs driver 580, and 535.104 is here: "
                       "pip install 'jax[cuda12]', or a newer driver")),
        (V100, CUDA13, ("JAX (beside TensorFlow) is for CUDA 13, which knows cards from sm_75 on, and "
                       "Tesla V100-SXM2-16GB is sm_70: pip install 'jax[cuda12]'")),
        ("470.57, NVIDIA A100, 40960, 0, 8.0", None, TOO_OLD),
        (K80, CPU, ("no JAX knows Tesla K80 (sm_37), but cards from sm_52 on: there TensorFlow alone can train, in "
                    "sessions (--engine session)")),
        (A100, CUDA12, ("JAX (/p) is for CUDA 12 and sees no card: /p -c \"import jax; jax.devices('cuda')\" "
                        "says why")),
    ],
)  # fmt: skip
def test_why_jax_does_not_use_a_card(answering, card, jax, said):
    assert driver.why_not_jax(answering(card), jax) == said


def test_a_card_that_no_jax_knows_does_not_hide_one_that_it_knows(answering):
    told = answering(A100, K80)
    assert [driver.best_kind(told), driver.why_not_jax(told, ON_CARD)] == ["cuda12", ""]
    assert driver.why_not_jax(told, None) == "the engine has no JAX: npu-shim engine install cuda12"
    apart = "no JAX knows Tesla K80 (sm_37), but cards from sm_52 on: name the other cards in CUDA_VISIBLE_DEVICES"
    assert driver.why_not_jax(told, CUDA12) == apart
    assert driver.why_not_tensorflow(told, *TF_215).endswith("not for Tesla K80 (sm_37): its kernels do not run there")


def test_a_card_that_tensorflow_was_not_built_for(answering):
    for card, name in ((B200, "NVIDIA B200 (sm_100)"), (RTX5090, "NVIDIA GeForce RTX 5090 (sm_120)")):
        said = driver.why_not_tensorflow(answering(card), *TF_215)
        assert "2.15.1 was built for sm_50, sm_60, sm_70, sm_75, compute_80, and not for %s: " % name in said
        assert said.endswith("train with the engine (--engine pjrt)")
    assert driver.why_not_tensorflow(answering(V100), "2.15.1", []) == "TensorFlow 2.15.1 has no CUDA, and uses no card"
    for card, about in ((A100, TF_215), (V100, TF_215), (B200, ("1.15.5", None))):
        assert driver.why_not_tensorflow(answering(card), *about) == ""


def test_memory_that_others_hold(answering):
    told = answering(B200, "570.86, NVIDIA B200, 183359, 180000, 10.0")
    assert told.cards[1].text == "NVIDIA B200 (sm_100, 3.5 of 192.3 GB free)"
    (line,) = driver.held(told)
    assert "programs hold 188.7 of its 192.3 GB (nvidia-smi lists them)" in line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("580.95, NVIDIA GB10, [N/A], [N/A], 12.1", "NVIDIA GB10 (sm_121)"),
        ("570.86, NVIDIA A100, 40960, [Insufficient Permissions], 8.0", "NVIDIA A100 (sm_80, 42.9 of 42.9 GB free)"),
        ("580.95, NVIDIA GB10, [N/A], [N/A], [N/A]", "NVIDIA GB10"),
    ],
)
def test_a_card_of_whose_memory_the_driver_does_not_tell(answering, line, said):
    told = answering(line)
    assert ([card.text for card in told.cards], driver.held(told)) == ([said], [])
    assert driver.why_not_jax(told, None).startswith("the engine has no JAX: npu-shim engine install cuda")


def test_a_driver_that_is_none_or_old_or_does_not_answer(answering, monkeypatch, tmp_path):
    old = answering("470.57, Tesla T4, 15109, 0", fields="driver_version")
    assert (old.version, old.cards[0].capability) == ("470.57", None)
    assert driver.why_not_tensorflow(old, *TF_215) == ""
    broken = answering("Failed to initialize NVML: Driver/library version mismatch", status=18)
    assert broken.trouble.startswith("nvidia-smi says: Failed to initialize NVML: Driver/library version mismatch: ")
    (tmp_path / "nvidia-smi").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    for files, said in (((), driver.NO_DRIVER), ((str(tmp_path),), "a driver is here, and nvidia-smi is not")):
        monkeypatch.setattr(driver, "FILES", files)
        assert driver.seen().trouble.startswith(said)


def test_what_hides_cards_is_named(answering, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert driver.are_hidden() == ""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert driver.why_not_jax(answering(A100), CUDA12).endswith("sees no card with CUDA_VISIBLE_DEVICES=: unset it")


def test_the_kind_of_a_jax_is_that_of_its_plugin(monkeypatch):
    for plugins, kind in ((("jax_cuda13_plugin",), "cuda13"), (("jax_cuda12_plugin",), "cuda12"), ((), "")):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, plugins=plugins: name in plugins)
        assert driver.kind_of_jax() == kind
