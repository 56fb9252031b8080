"""The part of scripts/bench_xla that compiles for cards that are not there: exported steps beside hand-written JAX."""

import json
import os
import tempfile

import bench_jax_models
import bench_xla_report
import jax
import numpy as np

from npu_shim.pjrt import manifest
from npu_shim.pjrt.cost import cards, on_cards
from npu_shim.pjrt.manifest import Manifest, Tensor

CUDNN = ("__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward")  # for the JAX at hand, not for others
REFERENCE = "float32"


def main(args):
    """Compiles every model of DIR and writes the tables anew behind each."""
    wanted = [cards.card(name) for name in args.target.split(",")]
    with open(os.path.join(args.folder, "bench.json"), encoding="utf-8") as f:
        described = json.load(f)
    header = {"device": "cards that are not here: " + ", ".join(card.name for card in wanted)}
    header.update(jax=jax.__version__, tensorflow=described["tensorflow"], npu_shim=described["npu_shim"])
    header.update(size=described["size"])
    rows = []
    for row in described["programs"]:
        if bench_xla_report.wanted(args, row["model"], row["sizes"]):
            rows.append(measure(row, args, wanted))
            bench_xla_report.write(args.write, header, rows, table, timed=False)


def measure(row, args, wanted):
    """Returns the figures of one model: card -> form -> `card_report.CardCost` as JSON."""
    known = [form for form in (*row["forms"], *bench_jax_models.hand_forms(row["model"])) if form != "tf32"]
    forms = [form for form in args.forms.split(",") if form in known] if args.forms else known
    with tempfile.TemporaryDirectory() as hand:
        paths = [os.path.join(args.folder, row["folder"], form) for form in forms if form in row["forms"]]
        paths += [hand_written(row, args.folder, form, hand) for form in forms if form not in row["forms"]]
        costs = on_cards.of_folders(paths, wanted, args.jax, lambda line: print(row["folder"], line, flush=True))
    values = on_cards.report(costs)[0]["cards"]
    steps = {key: {cost["name"]: cost for cost in card["steps"]} for key, card in values.items()}
    return {"model": row["model"], "sizes": row["sizes"], "cards": steps}


def hand_written(row, folder, form, out):
    """Writes the model written by hand as an exported step, and returns its path: one way to compile for all."""
    model = row["model"]
    name, more = bench_jax_models.hand_forms(model)[form]
    dtype = np.dtype(jax.numpy.dtype(name))
    known = {t.name: t.shape for t in manifest.read(os.path.join(folder, row["folder"], row["forms"][0])).state}
    own = {name: jax.ShapeDtypeStruct(known[name], np.float32) for name in row["own"]}
    state = jax.eval_shape(lambda values: bench_jax_models.initial(model, values, dtype), own)
    feeds = {name: jax.ShapeDtypeStruct(shape, kind) for name, (kind, shape, _) in row["feeds"].items()}
    flat, tree = jax.tree.flatten(state)
    step = bench_jax_models.step(model, row["sizes"], dtype, **more)

    def program(state, feeds):
        state, loss = step(jax.tree.unflatten(tree, state), feeds)
        return jax.tree.leaves(state), loss

    # an unchanged result keeps its argument, so every variable is an argument and a result
    unchecked = [jax.export.DisabledSafetyCheck.custom_call(name) for name in CUDNN]
    jitted = jax.jit(program, keep_unused=True)
    exported = jax.export.export(jitted, platforms=["cuda"], disabled_checks=unchecked)(flat, feeds)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    variables = tuple(_tensor("state", *pair) for pair in zip(paths, flat))
    arguments = (*variables, *(_tensor("feed", *pair) for pair in sorted(feeds.items())))
    results = (*variables, Tensor("fetch", "loss:0", (), "float32"))
    path = os.path.join(out, form)
    manifest.write(path, exported.mlir_module_serialized, Manifest(arguments, results))
    return path


def _tensor(kind, name, aval):
    role = ("optimizer" if "slots" in name else "parameter") if kind == "state" else ""
    return Tensor(kind, name, tuple(aval.shape), np.dtype(aval.dtype).name, role)


COLUMNS = (
    "| model | form | temporary, GB | of float32 | peak, GB | of float32 | of the card | moved, GB | of float32 | "
    "kernels | at least, ms | of float32 | limited by |"
)
NOTES = (
    "Compiled by JAX's CUDA plugin on a machine without a GPU, autotuning off. float32: as written, products in full",
    "float32. float16, bfloat16: rewritten by allow_mix_precision and allow_mix_precision_bf16, float16 with dynamic",
    "loss scaling. -memory: recompute=memory. jax-*: the same model written by hand in JAX; -wide: with the plan's own",
    "dtypes: a float32 residual stream, and GELU in float32, computed again; -cudnn: so, and attention by cuDNN.",
    "-unfused: attention=off. Temporary and peak memory: XLA's buffer assignment. Moved: bytes that kernels read and",
    "write in a step, loops as often as they run. At least: for each kernel the longer of its bytes over the bandwidth",
    "and its products over the card's peak, summed up; the products of cuDNN's attention are not among them.",
)


def table(rows):
    """The tables of `compile`: one for each card, and ours beside the hand-written models."""
    lines = []
    for key in rows[0]["cards"]:
        lines += ["## " + key, "", COLUMNS, "|---" * (COLUMNS.count("|") - 1) + "|"]
        for row in rows:
            forms = row["cards"][key]
            for form, form_cost in forms.items():
                cells = _cells(form_cost, forms.get(REFERENCE), cards.card(key).memory)
                lines.append("| %s | %s | %s |" % (bench_xla_report.title(row), form, " | ".join(cells)))
        lines += ["", "Beside hand-written JAX (below 1: ours is less):", ""]
        lines += [line for row in rows for line in _beside(row, row["cards"][key])] + [""]
    return [*lines, *NOTES]


def _cells(cost, reference, memory):
    def pair(key, scale, digits=2):
        share = "%.2f" % (cost[key] / reference[key]) if reference else "-"
        return ["%.*f" % (digits, cost[key] / scale), share]

    launches = sum(kind["kernels"] for kind in cost["kernels"].values())
    limit = "memory" if cost["by_memory"] >= 0.5 else "operations"
    over = "%.0f %%" % (100 * cost["peak"] / memory)
    return [*pair("temporary", 1e9), *pair("peak", 1e9), over, *pair("moved", 1e9, 1), str(launches),
            *pair("seconds", 1e-3), limit]  # fmt: skip


def _beside(row, forms):
    for hand, (low, _) in bench_jax_models.hand_forms(row["model"]).items():
        for form, cost in forms.items():
            if form.split("-")[0] == low and hand in forms:
                ratios = ["%s %.2f" % (title, cost[key] / forms[hand][key]) for key, title in BESIDE.items()]
                yield "- %s %s beside %s: %s" % (bench_xla_report.title(row), form, hand, ", ".join(ratios))


BESIDE = {"temporary": "temporary memory", "peak": "peak memory", "moved": "bytes", "seconds": "time at least"}
