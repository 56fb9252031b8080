"""The half of scripts/bench_xla that needs JAX and no TensorFlow: runs exported programs beside hand-written ones."""

import concurrent.futures
import functools
import json
import os
import time

import bench_jax_models
import bench_xla_report
import jax
import jax.numpy as jnp
import jaxlib

from npu_shim import pjrt
from npu_shim.pjrt import arrays, jax_compat, manifest

# form -> what the chip's limit is looked up by
LIMITS = {"float32": "highest", "tf32": "float32", "float16": "float16", "bfloat16": "bfloat16"}
MEMORY = ("float16-memory", "bfloat16-memory")  # recompute=memory: the least memory, for some more bytes
HAND = ("jax-float16", "jax-bfloat16")  # --forms chooses other ones


def main(args):
    """Runs every model of DIR and writes the tables anew behind each."""
    device = jax_compat.device(jax, args.device)
    with open(os.path.join(args.folder, "bench.json"), encoding="utf-8") as f:
        described = json.load(f)
    forms = args.forms.split(",") if args.forms else [*LIMITS, *MEMORY, *HAND]
    header = {"device": device.device_kind, "jax": jax.__version__, "jaxlib": jaxlib.__version__}
    header.update(tensorflow=described["tensorflow"], npu_shim=described["npu_shim"], size=described["size"])
    rows = []
    for row in described["programs"]:
        if bench_xla_report.wanted(args, row["model"], row["sizes"]):
            rows.append(measure(row, args, device, chosen(row, forms)))
            bench_xla_report.write(args.write, header, rows, bench_xla_report.run_table)


def chosen(row, forms):
    """Returns those of some forms that the model has."""
    return [form for form in forms if form in (*row["forms"], *bench_jax_models.hand_forms(row["model"]))]


def measure(row, args, device, forms):
    """Returns the figures of one model: its forms take turns in single steps, then in loops on the device."""
    begin = time.perf_counter()
    given = Given(row, args, device)
    looped = forms if args.loops is None else args.loops.split(",")
    with concurrent.futures.ThreadPoolExecutor(args.compilers) as pool:  # XLA lets go of Python while it compiles
        futures = {
            f: pool.submit(exported if f in row["forms"] else hand_written, row, given, f, f in looped) for f in forms
        }
        runs = {form: future.result() for form, future in futures.items()}
    print("%s: compiled in %.0f s" % (row["folder"], time.perf_counter() - begin), flush=True)
    single = bench_xla_report.alternate({form: run["step"] for form, run in runs.items()}, args.rounds, args.steps)
    loops = {form: run["loop"] for form, run in runs.items() if "loop" in run}
    loops = bench_xla_report.alternate(loops, args.rounds, 1)
    print("%s: measured behind %.0f s" % (row["folder"], time.perf_counter() - begin), flush=True)
    limits = chip(device)
    figures = {
        form: {
            "seconds": single[form], "loop_seconds": loops[form] / args.steps if form in loops else None,
            "memory": run["memory"], "loss": run["loss"](),
            "limit": limits.get(LIMITS[form.replace("jax-", "").split("-")[0]]),
        }
        for form, run in runs.items()
    }  # fmt: skip
    return {"model": row["model"], "sizes": row["sizes"], "products": row["products"], "forms": figures}


class Given:
    """What the forms of a model share: values of variables by rule, and feeds on the device.

    Attributes:
        folder: of the model's exported forms.
        device: jax device.
        values: variable name -> array, for the variables of all forms.
        own: those of them that are the model's, not an optimizer's or a loss scale's.
        one: feeds of a step.
        many: feeds of `steps` steps, stacked.
        steps: in a loop.
    """

    def __init__(self, row, args, device):
        self.folder, self.device, self.steps = os.path.join(args.folder, row["folder"]), device, args.steps
        state = [t for form in row["forms"] for t in manifest.read(os.path.join(self.folder, form)).state]
        tensors = {t.name: (t.shape, arrays.dtype_of(t.dtype)) for t in state}
        self.values = bench_xla_report.values(tensors, row["rules"])
        self.own = {name: self.values[name] for name in row["own"]}
        self.one, self.many = (
            jax.device_put(bench_xla_report.feeds(row["feeds"], count=count), device) for count in (None, args.steps)
        )


def exported(row, given, form, looped):
    """An exported form: callables for a step and a loop of steps that wait, its memory, its last loss."""
    program = pjrt.load(os.path.join(given.folder, form), device=given.device, state=given.values)
    last = {}

    def run(feeds, iterations):
        last["loss"] = jax.block_until_ready(program.run(feeds, iterations))["loss:0"]

    figures = {
        "step": functools.partial(run, given.one, None),
        "memory": memory(program.compile()),
        "loss": lambda: float(last["loss"].reshape(-1)[-1]),
    }
    if looped:
        program.compile(given.steps)
        figures["loop"] = functools.partial(run, given.many, given.steps)
    return figures


def hand_written(row, given, form, looped):
    """The same of the model written by hand."""
    name, more = bench_jax_models.hand_forms(row["model"])[form]
    dtype = jnp.dtype(name)
    with jax.default_device(given.device):
        last = {"state": bench_jax_models.initial(row["model"], given.own, dtype)}
        step = bench_jax_models.step(row["model"], row["sizes"], dtype, **more)
        single = jax.jit(step, donate_argnums=0).lower(last["state"], given.one).compile()

    def run(program, feeds):
        last["state"], last["loss"] = jax.block_until_ready(program(last["state"], feeds))

    figures = {
        "step": functools.partial(run, single, given.one),
        "memory": memory(single),
        "loss": lambda: float(last["loss"].reshape(-1)[-1]),
    }
    if looped:
        with jax.default_device(given.device):
            loop = jax.jit(lambda state, feeds: jax.lax.scan(step, state, feeds), donate_argnums=0)
            figures["loop"] = functools.partial(run, loop.lower(last["state"], given.many).compile(), given.many)
    return figures


def memory(compiled):
    """Bytes that a compiled program takes at once, as the compiler has planned them."""
    sizes = compiled.memory_analysis()
    held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return held + sizes.temp_size_in_bytes


def chip(device):
    """Limits of the device from bench_chips.json, {} where it has none."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_chips.json")
    with open(path, encoding="utf-8") as f:
        chips = json.load(f)
    names = [name for name in chips if name != "note" and name in device.device_kind]
    return chips[max(names, key=len)] if names else {}
