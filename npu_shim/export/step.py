"""Writes a training step as a folder that `npu_shim.pjrt` runs without TensorFlow.

    step_function -> HLO -> StableHLO where a converter is at hand -> manifest.write

TensorFlow makes HLO. What makes StableHLO of it is jaxlib's and cannot be installed beside TensorFlow 2.15: `jax` names
an interpreter that has it. Without one the HLO is written, and `npu_shim.pjrt.load` converts it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import replace
from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim import __version__
from npu_shim.export import calls, dynamic_shapes
from npu_shim.options import engine
from npu_shim.pjrt import arrays, convert, manifest, other_python
from npu_shim.pjrt.attention.spec import ATTRIBUTE
from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError, PlanError, nearest, one_of
from npu_shim.rewriter.planner import report
from npu_shim.xla import open_rows, refusals, step_checkpoint, step_function
from npu_shim.xla.passes.resources import random_ops
from npu_shim.xla.sources import Source

PRODUCTS = ("default", "highest")
NAME = "step"  # of a program
_making = threading.Lock()


def export(
    source: Any,
    fetches: Any,
    feeds: Any,
    out: str,
    constants: Mapping[Any, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    float32_products: str = "default",
    jax: str | None = None,
    device: str | None = None,
    **options: Any,
) -> Manifest:  # fmt: skip
    """Exports one training step.

    Args:
        source: tf.Session (its variables are the initial state), tf.Graph, tf.GraphDef, or a `sources.Source`.
        fetches: tensors, operations or their names, as for sess.run.
        feeds: dict of tensors or their names to their shapes; or a list of them where the graph has their full shapes.
        out: path of the folder, new or empty.
        constants: dict of tensors or their names to values that become part of the program.
        values: variable name -> array, initial values of all variables. None takes a Session's; of a graph none are
            exported then.
        float32_products: "highest" computes float32 matrix products and convolutions in float32, "default" in what the
            device takes for them: TF32 on NVIDIA GPUs since Ampere.
        jax: path of a Python interpreter with JAX, which makes StableHLO of the HLO; default $NPU_SHIM_JAX, else
            `npu-shim engine install`'s, else this one where it has JAX, else the HLO stays.
        device: "CPU" or "GPU", what it is for; one for a CPU computes low precision with float32's kernels.
        **options: as for `npu_shim.rewrite`; `recompute`: "auto", "off" or "memory"; `attention`: "auto" or "off".

    Returns:
        The `pjrt.manifest.Manifest`.

    Raises:
        ConfigError: an argument that cannot be taken, or a folder that cannot be written.
        PlanError: the graph cannot be rewritten or compiled as asked.
    """
    given = (constants, values, float32_products, jax, device)
    return exported(source, fetches, feeds, out, *given, **options)[0]


def exported(
    source: Any, fetches: Any, feeds: Any, out: str, constants: Any = None, values: Any = None,
    float32_products: str = "default", jax: str | None = None, device: str | None = None, **options: Any,
) -> tuple[Manifest, step_function.StepFunction]:  # fmt: skip
    """Exports as `export` does; returns (Manifest, the `StepFunction` that it is of)."""
    require_xla()
    manifest.require_unused(out)  # before XLA compiles for minutes
    source = (source if isinstance(source, Source) else Source.of(source)).of_step(fetches)
    prepared = step_function.prepare(source, fetches, feeds, constants, values, device, **options)
    step = prepared.as_program().for_shapes()
    if values is not None:
        _require_values(step, values, source)
    module = hlo_module(step, float32_products)
    require_fixed_sizes(describe(step, module, kind="hlo", float32_products=float32_products, options={}), module)
    program, kind = stablehlo(without_origins(module), jax or engine.interpreter() or _own_jax())
    # a frozen graph has no values that could be missing: what draws random numbers is ours
    needed = [variable for variable in step.state if variable.name != random_ops.STATE]
    valued = values is not None or source.session is not None or not needed
    state = ((variable.name, variable.variable.numpy()) for variable in step.state) if valued else None
    described = describe(step, module, kind=kind, float32_products=float32_products, options=options)
    keys = step_checkpoint.keys_of(source.graph, [variable.name for variable in step.state])
    described = replace(described, slices={name: [key, part] for name, (key, part) in keys.items() if part})
    with tf_internals.eager_mode():
        return manifest.write(out, program, described, state), step


def _require_values(step, values, source):
    names = [
        variable.name for variable in step.state if variable.name not in values and variable.name != random_ops.STATE
    ]
    names = [name for name in names if not source.is_local(name)]
    if names:
        raise ConfigError(*("no value is given for variable '%s'%s" % (name, nearest(name, values)) for name in names))


def require_xla() -> None:
    """Raises ConfigError where TensorFlow has no XLA that gives its programs away."""
    if tf.__version__.startswith("1."):
        raise ConfigError("export and cost need TensorFlow 2.15 or later, this is %s" % tf.__version__)


def checkpoint(state: str, prefix: str) -> None:
    """Writes what `npu_shim.pjrt.Program.save` wrote as a TensorFlow checkpoint, which tf.train.Saver restores.

    Args:
        state: path of the .npz file.
        prefix: of the checkpoint.

    Raises:
        ConfigError: the file cannot be read.
    """
    values = arrays.read(state)
    slices = json.loads(str(values.pop(arrays.SLICES, "{}")))
    with tf_internals.eager_mode():
        step_checkpoint.save(prefix, values, {name: slices.get(name, (name, "")) for name in values})


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


def _own_jax():
    """This interpreter where it has JAX, which newer releases of TensorFlow allow."""
    return sys.executable if importlib.util.find_spec("jaxlib") else None


def stablehlo(hlo: bytes, interpreter: str | None) -> tuple[bytes, str]:
    """Returns (program's bytes, kind): StableHLO by that interpreter's jaxlib, or the HLO as it is without one.

    Raises:
        ConfigError: the interpreter cannot be run, has no JAX, or cannot convert the program, or there is no room for
            temporary files.
    """
    if not interpreter:
        return hlo, "hlo"
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, target = os.path.join(folder, "in"), os.path.join(folder, "out")
            with open(source, "wb") as f:
                f.write(hlo)
            _convert(interpreter, source, target)
            with open(target, "rb") as f:
                return f.read(), "stablehlo"
    except OSError as reason:
        text = "the folder of temporary files cannot be used: %s; TMPDIR names another"
        raise ConfigError(text % (reason.strerror or reason)) from reason


def _convert(interpreter, source, target):
    """Makes a file of StableHLO of a file of HLO."""
    own = other_python.environment()
    try:
        subprocess.run([interpreter, convert.__file__, source, target], check=True, capture_output=True, env=own)
    except OSError as reason:
        raise ConfigError("'%s' cannot be run: %s" % (interpreter, reason.strerror or reason)) from reason
    except subprocess.CalledProcessError as reason:
        last = (reason.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise ConfigError("'%s' made no StableHLO: %s" % (interpreter, last)) from reason


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


def plan_counts(plan: Any) -> dict[str, Any]:
    """Returns the summary of a Plan with how many slots each reason decided; {} for None."""
    if plan is None:
        return {}
    counts = {name: value for name, value in report.summary(plan).items() if value is not None}
    reasons = Counter(decision.reason.value for decision in plan.decisions())
    return dict(counts, reasons=dict(sorted(reasons.items())), policy=plan.policy.name)


def state_roles(shapes: Mapping[str, Any]) -> dict[str, str]:
    """Returns a role for every variable, by its name and shape.

    "optimizer" is what is named below another variable of its shape ("w/Adam" and "w"), "other" what has one value
    only, "parameter" the rest.

    Args:
        shapes: variable name -> shape.
    """
    return {name: _role(name, shape, shapes) for name, shape in shapes.items()}


def _role(name, shape, shapes):
    owner = name.rpartition("/")[0]
    while owner:
        if shapes.get(owner) == shape:
            return "optimizer"
        owner = owner.partition("/")[2]  # a slot below a scope of the optimizer's: "training/w/Adam" of "w"
    return "parameter" if shape not in ((), (1,)) else "other"
