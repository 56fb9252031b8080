"""Kernels as text, and the tables of GPU kernels that are shipped."""

import itertools
import os
import random

import pytest

import graphs
from npu_shim import configs
from npu_shim.rewriter.graph.graph_view import Layout, Slot
from npu_shim.rewriter.graph.kernel_table import ANY_DEVICE, Kernel, KernelTable, device_type, of_rows, to_rows
from npu_shim.rewriter.tables.dtypes import BFLOAT16, FLOAT16, FLOAT32, NUMBERS

F, H, B, I32 = FLOAT32, FLOAT16, BFLOAT16, NUMBERS["int32"]
SHIPPED = sorted(os.listdir(configs.folder("gpu_kernels")))


def kernel(device="GPU", **dtypes):
    return Kernel(device, tuple((attr, frozenset(allowed)) for attr, allowed in dtypes.items()))


@pytest.mark.parametrize(
    ("kernels", "rows"),
    [
        ([kernel()], [""]),
        ([kernel(T=[H])], ["T:float16"]),
        ([kernel(T=[F]), kernel(T=[H])], ["T:float16,float32"]),
        ([kernel(T=[H]), kernel(ANY_DEVICE, T=[H])], ["T:float16"]),
        ([kernel(T=[H], U=[F]), kernel(T=[F], U=[F])], ["T:float16,float32 U:float32"]),
        ([kernel(T=[H], U=[H]), kernel(T=[F], U=[F])], ["T:float16 U:float16", "T:float32 U:float32"]),
        ([kernel(T=[H]), kernel(U=[H])], ["T:float16", "U:float16"]),
        ([kernel(T=[29])], ["T:dtype29"]),  # a dtype that has no name here
    ],
)
def test_kernels_that_differ_in_one_attribute_are_one_row(kernels, rows):
    assert to_rows(kernels) == rows


@pytest.mark.parametrize("seed", range(20))
def test_rows_admit_what_the_kernels_admit_and_no_more(seed):
    draw = random.Random(seed)
    kernels = [kernel(T=draw.sample([F, H, B, I32], 2), U=draw.sample([F, H, B], 1)) for _ in range(6)]
    layout = Layout("Op", (Slot("T"), Slot("U")), (0, 1), (0,), (None, None), frozenset(), frozenset())
    before, after = kernels, of_rows(to_rows(kernels), "GPU")
    for dtypes in itertools.product([F, H, B, I32], repeat=2):
        assert any(k.runs(layout, dtypes) for k in before) == any(k.runs(layout, dtypes) for k in after), dtypes


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_tables_read_and_lower_products(name):
    rows = configs.load("gpu_kernels", name)["kernels"]
    table = KernelTable({op: of_rows(of_op, "GPU") for op, of_op in rows.items()}, "GPU")
    layout = graphs.layout("MatMul", 2)
    assert table.runs(layout, "", (H,))
    assert not table.runs(layout, "", (I32,))  # TensorFlow multiplies integers on CPUs only
    assert not table.runs(layout, "/device:CPU:0", (H,))
    assert table.runs(layout, "", (B,)) == (name != "1.15.json")


def test_a_kernel_for_any_device_runs_on_each():
    table = KernelTable({"MatMul": (kernel(ANY_DEVICE, T=[H]),)}, "XLA")
    layout = graphs.layout("MatMul", 2)
    assert [table.runs(layout, device, (H,)) for device in ("", "/gpu:0", "/job:a/device:CPU:0")] == [True] * 3
    assert not table.runs(layout, "", (F,))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("", ""), ("/gpu:0", "GPU"), ("/job:a/device:GPU:0", "GPU"), ("/device:CPU:1", "CPU"), ("/job:a/task:0", "")],
)
def test_device_types_are_read_of_device_names(name, kind):
    assert device_type(name) == kind
