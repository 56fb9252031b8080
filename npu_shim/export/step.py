"""Writes a training step as a folder that `npu_shim.pjrt` runs without TensorFlow.

    step_function.prepare -> packed graph -> step.lowering, where JAX is -> manifest.write

JAX cannot be installed beside every TensorFlow: `jax` names an interpreter that has it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

from npu_shim.export import description
from npu_shim.options import engine
from npu_shim.pjrt import arrays, manifest
from npu_shim.pjrt.manifest import ROWS, Manifest
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError, PlanError, nearest, one_of, unnamed
from npu_shim.step import apart
from npu_shim.xla import interpreted, step_checkpoint, step_function
from npu_shim.xla.sources import Source

PRODUCTS = ("default", "highest")


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
        jax: path of a Python interpreter with JAX, which makes the program; default this one where it has JAX, else
            $NPU_SHIM_JAX, else `npu-shim engine install`'s.
        device: "CPU" or "GPU", what it is for; one for a CPU computes low precision with float32's kernels, one for a
            GPU runs on CPUs too. None is as "GPU", but for options that depend on the device.
        **options: as for `npu_shim.rewrite`; `recompute`: "auto", "off" or "memory"; `attention`: "auto" or "off".

    Returns:
        The `pjrt.manifest.Manifest`.

    Raises:
        ConfigError: an argument that cannot be taken, a folder that cannot be written, or there is no JAX.
        PlanError: the graph cannot be rewritten or interpreted as asked; the error names the op, its node and feeds.
    """
    given = (constants, values, float32_products, jax, device)
    return exported(source, fetches, feeds, out, *given, **options)[0]


@dataclass(frozen=True)
class StepProgram:
    """A step's program.

    Attributes:
        manifest: its Manifest, without the files' hashes.
        artifacts: platform -> the program for it; what the manifest's own file holds is the first.
        step: the `interpreted.Interpreted` that it is of.
        state: the `states.StateVariable`s that it takes.
    """

    manifest: Manifest
    artifacts: Mapping[str, bytes]
    step: interpreted.Interpreted
    state: Sequence[Any]


def exported(
    source: Any, fetches: Any, feeds: Any, out: str, constants: Any = None, values: Any = None,
    float32_products: str = "default", jax: str | None = None, device: str | None = None, **options: Any,
) -> tuple[Manifest, interpreted.Interpreted]:  # fmt: skip
    """Exports as `export` does; returns (Manifest, the step that it is of)."""
    manifest.require_unused(out)  # before JAX traces for minutes
    source = (source if isinstance(source, Source) else Source.of(source)).of_step(fetches)
    lowered = program(source, fetches, feeds, constants, values, float32_products, jax, device, **options)
    if values is not None:
        _require_values(lowered.state, values, source)
    # a frozen graph has no values that could be missing: what draws random numbers is ours
    needed = [variable for variable in lowered.state if not step_checkpoint.is_of_random_ops(variable.name)]
    valued = values is not None or source.session is not None or not needed
    state = ((variable.name, variable.value) for variable in lowered.state) if valued else None
    keys = step_checkpoint.keys_of(source.graph, [variable.name for variable in lowered.state])
    slices = {name: [key, part] for name, (key, part) in keys.items() if part}
    given = {name: value for name, value in sorted(options.items()) if value is not None}
    described = replace(lowered.manifest, slices=slices, options=given)
    return manifest.write(out, lowered.artifacts, described, state), lowered.step


def program(
    source: Any, fetches: Any, feeds: Any, constants: Any = None, values: Any = None,
    float32_products: str = "default", jax: str | None = None, device: str | None = None, devices: int = 1,
    **options: Any,
) -> StepProgram:  # fmt: skip
    """Returns what `export` writes; arguments and errors likewise, but `source` is a `sources.Source`.

    `devices` is how many the program is made for, of which each computes a part of a batch.
    """
    one_of(float32_products, PRODUCTS, "float32_products")
    python = interpreter(jax)
    platform = "cpu" if device == "CPU" else "gpu"  # the program for GPUs comes with one for CPUs, or serves them too
    prepared = step_function.prepare(source, fetches, feeds, constants, values, device, **options).on(platform)
    shapes = [feed.with_shape().shape.as_list() for feed in prepared.feeds.values()]
    taken = description.arguments(prepared, shapes)
    step = interpreted.of(prepared, shapes)
    artifacts, answer = _lowered(step, taken, float32_products, platform, python, devices)
    if not answer["fetches"] and not answer["updated"]:
        raise ConfigError("the step has no result: it writes no variable and fetches operations only; fetch a tensor")
    _require_fixed_sizes(answer["fetches"])
    return StepProgram(
        description.described(prepared, step, taken, answer, float32_products), artifacts, step, prepared.state
    )


def interpreter(wanted: str | None = None) -> str | None:
    """Returns the path of a Python with JAX: the wanted one, None for this one if it has JAX, else the engine's.

    Raises:
        ConfigError: none has.
    """
    if engine.has_jax() and (not wanted or os.path.abspath(wanted) == sys.executable):
        return None
    if wanted:
        return wanted
    engine.require_jax("the program of a step")
    return engine.interpreter()


def _lowered(step, taken, products, platform, python, devices):
    """(platform -> artifact, what was said of it)."""
    asked = {**taken.asked(), "known": {}, "products": products, "platform": platform, "devices": devices}
    programs, answer = apart.lowered(step.content, asked, python)
    if answer["refusal"]:
        raise PlanError(_refusal(answer))
    return programs, answer


def _refusal(answer):
    text = unnamed(answer["refusal"])
    return "%s; give its value in constants (--constant)" % text if answer["feeds"] else text


def _require_fixed_sizes(fetches):
    """Raises PlanError for a result of open size: a program gives the most rows that there may be."""
    for name, _, _ in fetches:
        if name.startswith(ROWS):
            text = "'%s' has a number of rows that depends on the data, and the results of a program have fixed sizes"
            raise PlanError("%s; fetch it in a session" % (text % name[len(ROWS) :]))


def _require_values(state, values, source):
    names = [v.name for v in state if v.name not in values and not step_checkpoint.is_of_random_ops(v.name)]
    names = [name for name in names if not source.is_local(name)]
    if names:
        raise ConfigError(*("no value is given for variable '%s'%s" % (name, nearest(name, values)) for name in names))


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
