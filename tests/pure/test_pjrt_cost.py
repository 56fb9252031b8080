"""The counts against XLA's own, and the cost of an exported step. Needs JAX."""

import json

import numpy as np
import pytest

from npu_shim import cli
from npu_shim.pjrt import manifest
from npu_shim.pjrt.cost import counts, hlo
from npu_shim.pjrt.manifest import Manifest, Tensor

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")


def gradient(strides, padding, groups):
    """A convolution and its gradients: padded, strided, dilated convolutions."""

    def loss(x, w):
        names = ("NHWC", "HWIO", "NHWC")
        conv_general_dilated = jax.lax.conv_general_dilated(
            x, w, strides, padding, dimension_numbers=names, feature_group_count=groups
        )  # fmt: skip
        return conv_general_dilated.sum()

    return jax.grad(loss, (0, 1))


@pytest.mark.parametrize(("strides", "padding"), [((1, 1), "SAME"), ((2, 2), "SAME"), ((2, 3), "VALID")])
@pytest.mark.parametrize("groups", [1, 2])
def test_products_are_those_of_xlas_cost_analysis(strides, padding, groups):
    x, w = np.ones((2, 9, 8, 4), np.float32), np.ones((3, 3, 4 // groups, 6), np.float32)
    lowered = jax.jit(gradient(strides, padding, groups)).lower(x, w)
    module = hlo.parse(lowered.compiler_ir("hlo").as_hlo_text())
    cost = counts.count(module)
    total = cost.products["float32"] + cost.other["float32"]
    # XLA's is of the same module but for elementwise work that each side may name differently
    assert total == pytest.approx(lowered.cost_analysis()["flops"], rel=0.02)
    assert cost.products["float32"] > 0.9 * total


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Two exported steps, x @ w in float32 and in bfloat16."""
    folder, w = tmp_path_factory.mktemp("steps"), Tensor("state", "w", (16, 16), "float32", "parameter")
    for dtype in ("float32", "bfloat16"):
        def step(x, w, dtype=dtype):
            product = (x.astype(dtype) @ w.astype(dtype)).astype("float32")
            return product.sum(), w + product[:16]

        given = [jax.ShapeDtypeStruct((32, 16), "float32"), jax.ShapeDtypeStruct((16, 16), "float32")]
        program = jax.export.export(jax.jit(step))(*given).mlir_module_serialized
        described = Manifest(
            (Tensor("feed", "x:0", (32, 16), "float32"), w), (Tensor("fetch", "loss:0", (), "float32"), w)
        )
        manifest.write(str(folder / dtype), program, described)
    return folder


def test_exported_steps_side_by_side(steps, capsys):
    argv = ["cost", str(steps / "float32"), str(steps / "bfloat16"), "--device", "cpu", "--json", "-"]
    assert cli.main(argv) == 0
    plain, low = json.loads(capsys.readouterr().out)
    assert plain["products"] == {"float32": 2 * 32 * 16 * 16}
    assert low["products"] == {"bfloat16": 2 * 32 * 16 * 16}
    assert plain["state"]["parameter"] == 1024
    assert plain["moved"] > 0
    assert "JAX" in plain["compiled_for"]


def test_without_compiling(steps, capsys):
    assert cli.main(["cost", str(steps / "float32"), "--no-compile"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["float32"]
    assert ["products", "in", "float32", "16.38", "KFLOP"] in [line.split() for line in out.splitlines()]
    assert "compiled for" not in out


def test_figures_go_to_a_file_or_the_error_names_it(steps, tmp_path, capsys):
    argv = ["cost", str(steps / "float32"), "--no-compile", "--json"]
    assert cli.main([*argv, str(tmp_path / "cost.json")]) == 0
    assert json.loads((tmp_path / "cost.json").read_text())[0]["name"] == "float32"
    assert cli.main([*argv, str(tmp_path / "absent" / "cost.json")]) == 2
    assert "cost.json' cannot be written: No such file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cost.json"]


def test_a_folder_that_is_no_export(tmp_path, capsys):
    assert cli.main(["cost", str(tmp_path)]) == 2
    assert "is not an exported step" in capsys.readouterr().err
    assert cli.main(["cost", str(tmp_path), "graph.pb"]) == 2
    assert "'graph.pb' is not a folder" in capsys.readouterr().err
