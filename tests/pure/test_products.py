"""Products of XLA on CPUs where memory ends: right, or an error."""

import os
import subprocess
import sys
import textwrap

import pytest

from npu_shim.options import engine as options

PYTHON = os.environ.get(options.JAX) or (sys.executable if options.has_jax() else None)
needs_jax = pytest.mark.skipif(PYTHON is None, reason="no interpreter with JAX: NPU_SHIM_JAX names none")
# 5 MB hold some of oneDNN's kernels and not all; with none of them it computes without, and products are right
HEAD = """
import importlib.util as util, resource, sys
spec = util.spec_from_file_location("npu_shim", sys.argv[1])
sys.modules["npu_shim"] = util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["npu_shim"])
import jax, numpy as np
from npu_shim.engine.device.programs import InProcess
def limit(megabytes=5):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 1000000, -1))
"""


def output(code):
    import npu_shim

    ran = subprocess.run(
        [PYTHON, "-c", HEAD + textwrap.dedent(code), os.path.abspath(npu_shim.__file__)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
    )  # fmt: skip
    return ran.stdout.decode()


@needs_jax
def test_products_are_right_where_memory_ends_after_the_device_was_opened():
    text = output("""
        factor = np.random.RandomState(1).rand(16, 64).astype(np.float32)
        device = InProcess()
        product = jax.jit(lambda a: a.T @ a).lower(factor).compile()
        limit()
        value = np.asarray(product(factor))
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        print("right" if np.allclose(value, factor.T @ factor, 1e-4) else "wrong")
    """)
    assert text == "right\n"


@needs_jax
def test_no_memory_for_the_kernels_of_products_is_an_error():
    text = output("""
        from npu_shim.rewriter.errors import ConfigError
        compile = jax.stages.Lowered.compile
        def compile_and_limit(self):
            compiled = compile(self)
            limit()
            return compiled
        jax.stages.Lowered.compile = compile_and_limit
        for _ in range(2):
            try:
                InProcess()
            except ConfigError as error:
                print(error)
    """)
    lines = text.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "XLA computes wrong products in this process: it had no memory for their kernels (ulimit -v is " in line
