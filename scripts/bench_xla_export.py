"""The half of scripts/bench_xla that needs TensorFlow: exports programs."""

import concurrent.futures
import gc
import json
import multiprocessing
import os
import time

import bench_models
import bench_xla_report
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim import export as exporting
from npu_shim.export import cost
from npu_shim.xla.sources import Source

SMALL = {
    "resnet50": [{"batch": 8, "image": 64, "width": 16, "blocks": [1, 1, 1, 1], "classes": 100}],
    "bert": [{"batch": 8, "sequence": 64, "hidden": 128, "layers": 2, "heads": 4, "vocabulary": 2000}],
    "lstm": [{"batch": 16, "time": 16, "vocabulary": 2000, "hidden": 256}],
}
FULL = {
    "resnet50": [{"batch": 128}, {"batch": 256}],
    "bert": [{"batch": 16}, {"batch": 32}, {"batch": 64}, {"batch": 16, "sequence": 512}],
    "lstm": [{"batch": 64, "time": 64, "hidden": 1024}],
}
SIZES = {"small": SMALL, "full": FULL}
AS_WRITTEN = {"precision_mode": "must_keep_origin_dtype", "profile": "gpu", "attention": "off"}
# form -> (with loss scaling, precision of float32 products, options)
FORMS = {
    "float32": (False, "highest", AS_WRITTEN),
    "tf32": (False, "default", AS_WRITTEN),
    "float16": (True, "default", {"precision_mode": "allow_mix_precision"}),
    "bfloat16": (False, "default", {"precision_mode": "allow_mix_precision_bf16"}),
    "float16-memory": (True, "default", {"precision_mode": "allow_mix_precision", "recompute": "memory"}),
    "bfloat16-memory": (False, "default", {"precision_mode": "allow_mix_precision_bf16", "recompute": "memory"}),
    "bfloat16-unfused": (False, "default", {"precision_mode": "allow_mix_precision_bf16", "attention": "off"}),
}
ATTENTION = {"bert"}  # models that have some, and so a form without its kernels


def export(args):
    """Writes DIR/MODEL-NUMBER/FORM for every model, size and form, and DIR/bench.json that describes them."""
    described = {"size": args.size, "tensorflow": tf.__version__, "npu_shim": npu_shim.__version__, "programs": []}
    os.makedirs(args.folder)
    for model, all_sizes in SIZES[args.size].items():
        for number, sizes in enumerate(all_sizes):
            if not bench_xla_report.wanted(args, model, sizes):
                continue
            # a process of its own gives back the gigabytes of variables that BERT-large is exported with
            with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                row = alone.submit(_export_forms, args, model, sizes, "%s-%d" % (model, number)).result()
            described["programs"].append(row)
            with open(os.path.join(args.folder, "bench.json"), "w", encoding="utf-8") as f:
                json.dump(described, f, indent=1, sort_keys=True)


def _export_forms(args, model, sizes, folder):
    tf.disable_v2_behavior()
    row = {"model": model, "sizes": sizes, "folder": folder, "rules": {}, "forms": []}
    for form in forms_of(args, model):
        scaled, products, options = FORMS[form]
        begin = time.perf_counter()
        built = bench_models.build(model, sizes, scaled)
        out = os.path.join(args.folder, folder, form)
        written = exporting.export(
            built.graph, built.fetches, _shapes(built), out, float32_products=products, jax=args.jax, device="GPU",
            **options,
        )  # fmt: skip
        if options is not AS_WRITTEN and not written.plan["lowered"]:
            raise SystemExit("%s/%s: no slot was lowered, the program is float32: %s" % (folder, form, written.plan))
        row.update(feeds=built.feeds, rules=dict(row["rules"], **built.rules), own=built.own)
        row["forms"].append(form)
        gc.collect()
        print("%s %s: %.0f s" % (folder, form, time.perf_counter() - begin), flush=True)
    return dict(row, products=_products(model, sizes, args.jax))


def forms_of(args, model):
    """Returns the forms of a model that --forms chooses, all by default."""
    chosen = args.forms.split(",") if args.forms else FORMS
    return [form for form in FORMS if form in chosen and (model in ATTENTION or not form.endswith("-unfused"))]


def _products(model, sizes, jax):
    """Floating-point operations of the products of one step as written."""
    built = bench_models.build(model, sizes)
    plain, _ = cost.of_graph(Source.of(built.graph), built.fetches, _shapes(built), AS_WRITTEN, compiled=False, jax=jax)
    return sum(plain.products.values())


def _shapes(built):
    return {name: shape for name, (_, shape, _) in built.feeds.items()}
