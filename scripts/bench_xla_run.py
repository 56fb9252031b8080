"""The half of scripts/bench_xla that needs JAX and no TensorFlow: runs exported programs beside hand-written ones."""

import functools
import json
import os

import bench_jax_models
import bench_xla_report
import jax
import jax.numpy as jnp
import jaxlib

from npu_shim import pjrt
from npu_shim.pjrt import arrays, jax_door, manifest

# form -> what the chip's limit is looked up by
LIMITS = {"float32": "highest", "tf32": "float32", "float16": "float16", "bfloat16": "bfloat16"}
HAND = {"jax-float16": jnp.float16, "jax-bfloat16": jnp.bfloat16}


def main(args):
    """Runs every model of DIR and writes the tables."""
    device = jax_door.device(jax, args.device)
    with open(os.path.join(args.folder, "bench.json"), encoding="utf-8") as f:
        described = json.load(f)
    forms = args.forms.split(",") if args.forms else [*LIMITS, *HAND]
    chosen = [row for row in described["programs"] if bench_xla_report.wanted(args, row["model"], row["sizes"])]
    rows = [measure(row, args, device, [f for f in forms if f in (*row["forms"], *HAND)]) for row in chosen]
    header = {"device": device.device_kind, "jax": jax.__version__, "jaxlib": jaxlib.__version__}
    header.update(tensorflow=described["tensorflow"], npu_shim=described["npu_shim"], size=described["size"])
    bench_xla_report.write(args.write, header, rows, bench_xla_report.run_table)


def measure(row, args, device, forms):
    """Returns the figures of one model: its forms take turns in single steps, then in loops on the device."""
    made = {}
    for form in forms:
        make = hand_written if form in HAND else exported
        made[form] = make(row, args, device, form)
        print("%s %s compiled" % (row["folder"], form), flush=True)
    single = bench_xla_report.alternate({form: each["step"] for form, each in made.items()}, args.rounds, args.steps)
    loops = bench_xla_report.alternate({form: each["loop"] for form, each in made.items()}, args.rounds, 1)
    limits = chip(device)
    found = {
        form: {
            "seconds": single[form], "loop_seconds": loops[form] / args.steps, "memory": each["memory"],
            "loss": each["loss"](), "limit": limits.get(LIMITS[form.replace("jax-", "")]),
        }
        for form, each in made.items()
    }  # fmt: skip
    return {"model": row["model"], "sizes": row["sizes"], "products": row["products"], "forms": found}


def exported(row, args, device, form):
    """An exported form: callables for a step and a loop of steps that wait, its memory, its last loss."""
    folder = os.path.join(args.folder, row["folder"], form)
    tensors = {t.name: (t.shape, arrays.dtype_of(t.dtype)) for t in manifest.read(folder).state}
    program = pjrt.load(folder, device=device, state=bench_xla_report.values(tensors, row["rules"]))
    one, many = _feeds(row, device), _feeds(row, device, args.steps)
    last = {}

    def run(feeds, iterations):
        last["loss"] = jax.block_until_ready(program.run(feeds, iterations))["loss:0"]

    return {
        "step": functools.partial(run, one, None),
        "loop": functools.partial(run, many, args.steps),
        "memory": _memory(program.compile()),
        "loss": lambda: float(last["loss"].reshape(-1)[-1]),
    }


def hand_written(row, args, device, form):
    """The same of the model written by hand."""
    some = manifest.read(os.path.join(args.folder, row["folder"], row["forms"][0]))
    own = {t.name: (t.shape, arrays.dtype_of(t.dtype)) for t in some.state if t.name in row["own"]}
    parameters = bench_xla_report.values(own, row["rules"])
    dtype = HAND[form]
    with jax.default_device(device):
        last = {"state": bench_jax_models.initial(row["model"], parameters, dtype)}
        step = bench_jax_models.step(row["model"], row["sizes"], dtype)
        one, many = _feeds(row, device), _feeds(row, device, args.steps)
        single = jax.jit(step, donate_argnums=0).lower(last["state"], one).compile()
        loop = jax.jit(lambda state, feeds: jax.lax.scan(step, state, feeds), donate_argnums=0)
        loop = loop.lower(last["state"], many).compile()

    def run(program, feeds):
        last["state"], last["loss"] = jax.block_until_ready(program(last["state"], feeds))

    return {
        "step": functools.partial(run, single, one),
        "loop": functools.partial(run, loop, many),
        "memory": _memory(single),
        "loss": lambda: float(last["loss"].reshape(-1)[-1]),
    }


def _feeds(row, device, count=None):
    return jax.device_put(bench_xla_report.feeds(row["feeds"], count=count), device)


def _memory(compiled):
    found = compiled.memory_analysis()
    held = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    return held + found.temp_size_in_bytes


def chip(device):
    """Limits of the device from bench_chips.json, {} where it has none."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_chips.json")
    with open(path, encoding="utf-8") as f:
        chips = json.load(f)
    names = [name for name in chips if name != "note" and name in device.device_kind]
    return chips[max(names, key=len)] if names else {}
