"""Programs of steps as HLO, made by TensorFlow or read from the folder for compiled programs.

TensorFlow makes HLO of the same graph in another order in each process, and takes minutes for large graphs. So the HLO
is kept as well, under a hash of the graph; what is compiled of it is found by its own (pjrt.stored).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import struct
import threading
from dataclasses import asdict
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim import __version__
from npu_shim.export import calls, dynamic_shapes
from npu_shim.export.description import plan_counts, state_roles
from npu_shim.export.step import PRODUCTS
from npu_shim.export.traced import products_of_sessions
from npu_shim.pjrt import manifest, program_cache
from npu_shim.pjrt.attention.spec import ATTRIBUTE
from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.rewriter.errors import ConfigError, PlanError, one_of
from npu_shim.session import devices, lines
from npu_shim.xla import open_rows, refusals, step_function

NAME = "step"  # of a program
_making = threading.Lock()
SUFFIX = ".hlo"
LENGTH = struct.Struct("<q")  # of the Manifest, in front of it; the HLO follows


def of(step: Any, cache: str = "", float32_products: str = "") -> tuple[Manifest, bytes]:
    """Returns a step's Manifest and the bytes of its HloModuleProto.

    Args:
        step: `xla.step_function.StepFunction`.
        cache: path of the folder, "" for none.
        float32_products: as in `export.step.export`, "" for those of the script's sessions.

    Raises:
        PlanError or ConfigError: XLA cannot compile the step, or a result has no fixed size.
    """
    float32_products = float32_products or products_of_sessions()
    if not cache:
        return _lowered(step, float32_products)
    name = _identity(step, float32_products) + SUFFIX
    try:
        return _unpacked(program_cache.read(cache, name))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except Exception as reason:  # a file of another release can fail in any way
        lines.once(program_cache.unusable(cache, name, reason))
    described, hlo = _lowered(step, float32_products)
    try:
        program_cache.write(cache, name, _packed(described, hlo))
    except Exception as reason:
        lines.once(program_cache.not_kept(cache, reason))
    return described, hlo


def _lowered(step, float32_products):
    module = hlo_module(step, float32_products)
    described = describe(step, module, kind="hlo", float32_products=float32_products, options={})
    require_fixed_sizes(described, module)
    return described, without_origins(module)


def _identity(step, float32_products):
    """A hash of all that the HLO depends on."""
    feeds = [(feed.name, feed.dtype.name, feed.shape.as_list()) for feed in step.feeds]
    fetches = [fetch if isinstance(fetch, str) else (fetch.name, fetch.dtype.name) for fetch in step.fetches]
    state = [
        (variable.name, variable.dtype.name, variable.shape, variable.updated)
        for variable in step.state
    ]
    counts = plan_counts(step.plan), step.recomputation.counts(), step.attention.counts()
    flags = [os.environ.get(name, "") for name in ("TF_XLA_FLAGS", "XLA_FLAGS")]
    settings = [tf.__version__, __version__, float32_products, devices.accelerator(), *flags]
    told = json.dumps([feeds, fetches, sorted(step.places.items()), state, counts, settings], default=str)
    digest = hashlib.sha256(told.encode("utf-8", "surrogateescape"))
    digest.update(step.graph_def.SerializeToString(deterministic=True))
    return digest.hexdigest()[:40]


def _packed(described, hlo):
    text = json.dumps(asdict(described)).encode()
    return LENGTH.pack(len(text)) + text + hlo


def _unpacked(content):
    (length,), rest = LENGTH.unpack_from(content), content[LENGTH.size :]
    return manifest.decoded(json.loads(rest[:length].decode())), rest[length:]


def hlo_of(step: step_function.StepFunction, float32_products: str, stage: str) -> Any:
    """Returns the step's HLO in that `stage`, its float32 products of the wanted precision.

    TensorFlow takes that precision from a flag of the process, which other threads' steps read too: it is switched for
    a program alone that is to differ from the process, and no other one is made meanwhile.
    """
    flags, wanted = tf.config.experimental, float32_products == "default"
    with _making:
        before = flags.tensor_float_32_execution_enabled()
        if before == wanted:
            return refusals.hlo_of(step, stage)
        flags.enable_tensor_float_32_execution(wanted)
        try:
            return refusals.hlo_of(step, stage)
        finally:
            flags.enable_tensor_float_32_execution(before)


def hlo_module(step: step_function.StepFunction, float32_products: str) -> Any:
    """Returns the step's HLO before optimization as an HloModuleProto.

    Raises:
        ConfigError: the step has no result, or `float32_products` is not one of PRODUCTS.
        PlanError: as `refusals.hlo_of`, or XLA loses track of an open size (`xla.open_rows`).
    """
    one_of(float32_products, PRODUCTS, "float32_products")
    if all(isinstance(fetch, str) for fetch in step.fetches) and not any(variable.updated for variable in step.state):
        raise ConfigError("the step has no result: it writes no variable and fetches operations only; fetch a tensor")
    module = refusals.parsed(hlo_of(step, float32_products, "hlo_serialized"))
    if step.unsized:
        open_rows.require_sized_branches(module)
    open_rows.require_bounds(module)
    open_rows.require_counts_of_loops(module)
    open_rows.require_equal_branches(module)
    return dynamic_shapes.written(calls.by_name(module))


def without_origins(module: Any) -> bytes:
    """Returns the bytes of an HloModuleProto that tell nothing of the process that made it.

    The file names and lines of the user's Python sources are left out. The module's name, which counts the functions
    that TensorFlow has made so far, is always the same.
    """
    for computation in module.computations:
        if computation.name == module.entry_computation_name:
            computation.name = NAME
        for instruction in computation.instructions:
            instruction.metadata.ClearField("source_file")
            instruction.metadata.ClearField("source_line")
    module.name = module.entry_computation_name = NAME
    return module.SerializeToString(deterministic=True)


def describe(step: step_function.StepFunction, module: Any, kind: str, float32_products: str, options: Any) -> Manifest:
    """Returns the Manifest of a StepFunction and its HloModuleProto, without the files' hashes."""
    program = module.host_program_shape
    held = program.parameters[len(step.feeds) :]  # a variable's own shape may be unknown, the program's never is
    roles = state_roles({variable.name: tuple(shape.dimensions) for variable, shape in zip(step.state, held)})
    names = [("feed", feed.name, feed.dtype, "") for feed in step.feeds]
    names += [("state", variable.name, variable.dtype, roles[variable.name]) for variable in step.state]
    fetched = [("fetch", fetch.name, fetch.dtype, "") for fetch in step.fetches if not isinstance(fetch, str)]
    results = program.result.tuple_shapes or [program.result]  # a single value is no tuple of one
    return Manifest(
        arguments=_tensors(names, program.parameters),
        results=_tensors(
            fetched + [row for row, variable in zip(names[len(step.feeds) :], step.state) if variable.updated], results
        ),
        kind=kind,
        float32_products=float32_products,
        options={name: value for name, value in sorted(options.items()) if value is not None},
        plan=dict(plan_counts(step.plan), recompute=step.recomputation.counts(), attention=step.attention.counts()),
        versions={"npu_shim": __version__, "tensorflow": tf.__version__, "python": platform.python_version()},
        attention=_attention(step.graph_def),
    )


def _attention(graph_def):
    """Name of a function that computes attention -> its Spec as JSON."""
    functions = graph_def.library.function
    return {f.signature.name: f.attr[ATTRIBUTE].s.decode() for f in functions if ATTRIBUTE in f.attr}


def require_fixed_sizes(described: Manifest, module: Any) -> None:
    """Raises PlanError for a result of open size: PJRT gives the most rows that there may be, anything in the rest.

    Args:
        described: the program's Manifest.
        module: its HloModuleProto.
    """
    result = module.host_program_shape.result
    for tensor, shape in zip(described.results, result.tuple_shapes or [result]):
        if any(shape.is_dynamic_dimension):
            text = "'%s' has a number of rows that depends on the data, and the results of a program have fixed sizes"
            raise PlanError("%s; fetch it in a session" % (text % tensor.name))


def _tensors(rows, shapes):
    """Tensors of (kind, name, tf.DType, role) and of the shapes that the program has for them."""
    if len(rows) != len(shapes):  # XLA leaves out what is not written, as by a sparse update of no rows
        text = "the program gives %d values, expected %d: for these feeds it does not write all variables of the step"
        raise PlanError(text % (len(shapes), len(rows)))
    return tuple(
        Tensor(kind, name, tuple(shape.dimensions), dtype.name, role)
        for (kind, name, dtype, role), shape in zip(rows, shapes)
    )
