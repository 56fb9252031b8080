"""The half of scripts/gpu_check that needs TensorFlow: writes what the machine with the card shall run.

step-NAME.npz       a packed step, its feeds and variables, and what this CPU computes for them
random.npz          likewise, of seeded random ops, with what a session draws
net-NAME-FORM.npz   likewise, of a step that gpu_recording has recorded
wheel-NAME.whl.K    a part of a wheel
script-NAME.py      a script, and what lies beside it as data-NAME
"""

import glob
import gzip
import json
import os
import shutil
from dataclasses import replace

import bench_models
import bench_xla_report
import numpy as np
import tensorflow.compat.v1 as tf
from bench_xla_export import FORMS
from gpu_steps import STEPS, STORED, OnDevice, Step, described_by

from npu_shim.export import traced
from npu_shim.rewriter import tf_internals
from npu_shim.step import lowering
from npu_shim.xla import step_function
from npu_shim.xla.sources import Source

MOST = 60 * 10**6  # bytes of a file
SMALL = {"bert": {"batch": 4, "sequence": 32, "hidden": 64, "layers": 1, "heads": 2, "vocabulary": 300}}
CHECK = {
    "bert": {"batch": 8, "sequence": 128, "hidden": 256, "layers": 4, "heads": 4, "vocabulary": 4000},
    "lstm": {"batch": 16, "time": 32, "vocabulary": 4000, "hidden": 256, "layers": 2},
    "resnet50": {"batch": 8, "image": 96, "width": 32, "blocks": (2, 2, 2, 2), "classes": 100},
}
# what is measured, and not compared with a CPU
LARGE = {
    "resnet50": {"batch": 128}, "bert": {"batch": 32}, "bert-512": {"batch": 16, "sequence": 512},
    "lstm": {"batch": 64, "time": 64, "hidden": 1024},
}  # fmt: skip
FORMS_CHECKED = ("float32", "float16", "bfloat16")
# what is compared with this CPU, in which forms, and what is measured
SIZES = {"small": (SMALL, FORMS_CHECKED[:2], SMALL), "full": (CHECK, FORMS_CHECKED, LARGE)}
RECORDED = {"precision_mode": b"must_keep_origin_dtype", "npu_shim_profile": b"gpu", "npu_shim_engine": b"pjrt"}
SEEDED = 20  # values of each random op


class _Lowering:
    """Stands for the engine's device where steps are only lowered for a platform; `asked` is what it was asked last."""

    def __init__(self, platform, products):
        self.platform, self._products = platform, products
        self.asked = None

    def lower(self, content, asked, _cache):
        self.asked = dict(asked, products=self._products)
        return dict(lowering.lowered(content, platform=self.platform, **self.asked).answer(), trouble="")


def write(folder, size, graphs=None, wheels=None, scripts=None, recorded=None):
    """Writes all pieces that are not there; arguments as of scripts/gpu_check. Ends the process at another size's."""
    os.makedirs(folder, exist_ok=True)
    _note_size(os.path.join(folder, "size"), size)
    tf.disable_v2_behavior()
    checked, forms, large = SIZES[size]
    for model, sizes in checked.items():
        for form in forms:
            write_step(folder, "step-%s-%s" % (model, form), *_model(model, sizes, form))
    for model, sizes in large.items():
        write_step(
            folder, "large-%s-bfloat16" % model, *_model(model.partition("-")[0], sizes, "bfloat16"), compare=False
        )
    for path in sorted(glob.glob(os.path.join(graphs, "*.pb.gz"))) if graphs else ():
        for form in forms:
            name = os.path.basename(path).partition(".")[0]
            write_step(folder, "step-%s-%s" % (name, form), *_graph(graphs, name, form))
    write_step(folder, "random", *_random(), compare=False, session=True)
    for path in sorted(glob.glob(os.path.join(recorded, "net-*.npz"))) if recorded else ():
        to = os.path.join(folder, os.path.basename(path))
        if not os.path.exists(to):
            step = Step.read(path)
            step.expect(*OnDevice(step).result())
            step.write(to)
    for path in sorted(glob.glob(os.path.join(wheels, "*.whl"))) if wheels else ():
        _split(path, os.path.join(folder, "wheel-" + os.path.basename(path)))
    for path in sorted(glob.glob(os.path.join(scripts, "*"))) if scripts else ():
        kind = "script" if path.endswith(".py") else "data"
        shutil.copy(path, os.path.join(folder, "%s-%s" % (kind, os.path.basename(path))))


def _note_size(path, size):
    """Writes the size of the pieces in a folder to a file there; ends the process where they have another one."""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            there = file.read()
        if there != size:
            raise SystemExit("'%s' has pieces of size %s: give another folder" % (os.path.dirname(path), there))
    with open(path, "w", encoding="utf-8") as file:
        file.write(size)


def record(folder):
    """Records a step of a small network with an iterator, as the suites record theirs."""
    import gpu_recording

    import npu_shim

    tf.disable_v2_behavior()
    npu_shim.patch()
    gpu_recording.begin(folder, "images")
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        data = tf.data.Dataset.from_tensor_slices(np.random.RandomState(0).rand(8, 12, 12, 3).astype("f")).batch(4)
        x = tf.nn.relu(tf.nn.conv2d(tf.data.make_one_shot_iterator(data).get_next(), _weight([3, 3, 3, 8]), 1, "SAME"))
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.dropout(tf.reduce_mean(x, [1, 2]), rate=0.3), _weight([8, 4]))))
        config = tf.ConfigProto()
        entry = config.graph_options.rewrite_options.custom_optimizers.add(name="NpuOptimizer")
        for key, value in RECORDED.items():
            entry.parameter_map[key].s = value
        with tf.Session(config=config) as session:
            train = tf.train.AdamOptimizer().minimize(loss)
            session.run(tf.global_variables_initializer())
            session.run([train, loss])


def _weight(shape):
    return tf.get_variable("w%d" % len(shape), shape, use_resource=True)


def _model(model, sizes, form):
    """(graph, fetches, feeds, values of variables, form) of one of the benchmark's models."""
    built = bench_models.build(model, sizes, FORMS[form][0])
    return built.graph, built.fetches, bench_xla_report.feeds(built.feeds), built.rules, form


def _graph(folder, name, form):
    """The same of a training graph in a file."""
    with open(os.path.join(folder, "graphs.json"), encoding="utf-8") as file:
        described = json.load(file)[name]
    with tf.Graph().as_default() as graph, gzip.open(os.path.join(folder, name + ".pb.gz")) as file:
        tf.import_graph_def(tf.GraphDef.FromString(file.read()), name="")
    random = np.random.RandomState(0)
    feeds = {key: _drawn(random, key, *shape) for key, shape in described["feeds"].items()}
    with tf.Session(graph=graph) as session:
        session.run(described["init"])
        handles = [op for op in graph.get_operations() if op.type in ("VariableV2", "VarHandleOp")]
        rules, stored = described_by(session.run({op.name: _read(op) for op in handles}))
    return graph, [described["loss"], described["train_op"]], feeds, {**rules, **stored}, form


def _read(op):
    with op.graph.as_default():
        return op.outputs[0] if op.type == "VariableV2" else tf.raw_ops.ReadVariableOp(
            resource=op.outputs[0], dtype=op.get_attr("dtype"))  # fmt: skip


def _drawn(random, key, dtype, *shape):
    sizes = [(4 if axis == 0 else 6) if size is None else size for axis, size in enumerate(shape)]
    if dtype == "float32":
        return random.randn(*sizes).astype(np.float32)
    return np.full(sizes, 6, dtype) if "len" in key else random.randint(0, 2, sizes).astype(dtype)


def _random():
    """The same of seeded random ops, without variables."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(7)
        shape = [SEEDED]
        drawn = [
            tf.random_uniform(shape, seed=1), tf.random_normal(shape, seed=2), tf.truncated_normal(shape, seed=3),
            tf.random_uniform(shape, 0, 1000, tf.int32, seed=4), tf.random_shuffle(tf.range(SEEDED), seed=5),
            tf.multinomial(tf.zeros([1, 7]), SEEDED, seed=6), tf.random_normal(shape, dtype=tf.float16, seed=8),
            tf.nn.dropout(tf.ones(shape), rate=0.5, seed=9),
        ]  # fmt: skip
    return graph, [tensor.name for tensor in drawn], {}, {}, "float32"


def write_step(folder, name, graph, fetches, feeds, rules, form, compare=True, session=False):
    """Writes a step.

    Args:
        folder: of the pieces.
        name: of the step.
        graph: its tf.Graph.
        fetches: as for sess.run; the first is the loss.
        feeds: name -> np.ndarray.
        rules: of its variables' values, as of `bench_xla_report.values`; or arrays in the place of rules.
        form: key of `bench_xla_export.FORMS`.
        compare: whether this CPU runs the step, too.
        session: whether a session computes what is expected, in STEPS runs.
    """
    path = os.path.join(folder, name + ".npz")
    if os.path.exists(path):
        return
    products = "highest" if form == "float32" else FORMS[form][1]
    shapes = {key: list(value.shape) for key, value in feeds.items()}
    source = Source.of(graph).of_step(fetches)
    prepared = step_function.prepare(source, fetches, shapes, None, None, "GPU", **FORMS[form][2]).on("gpu")
    with tf_internals.eager_mode():
        stored = {v.name: v.value for v in prepared.state if v.name not in rules}  # counters of random ops
    stored.update((name, rule) for name, rule in rules.items() if isinstance(rule, np.ndarray))
    known = {v.name: [STORED] if v.name in stored else rules[v.name] for v in prepared.state}
    given = known, {name: value for name, value in stored.items() if name in known}, feeds
    step = _lowered(prepared, given, products, "gpu")
    if compare:
        step.expect(*OnDevice(_lowered(prepared, given, products, "cpu")).result())
    if session:
        step.expected = _drawn_in_session(graph, fetches)
    step.write(path)
    print("%s: %.1f MB" % (name, os.path.getsize(path) / 1e6), flush=True)


def _lowered(prepared, given, products, platform):
    """The Step for a platform. Raises PlanError if it is refused."""
    device = _Lowering(platform, products)
    shapes = [np.shape(given[-1][feed.name]) for feed in prepared.feeds.values()]
    described, step = traced.of(prepared, shapes, {}, device)
    return Step(step.content, device.asked, replace(described, float32_products=products), *given)


def _drawn_in_session(graph, fetches):
    with tf.Session(graph=graph) as session:
        runs = [session.run(fetches) for _ in range(STEPS)]
    return {"drawn/" + name: np.stack([run[at] for run in runs]) for at, name in enumerate(fetches)}


def _split(path, to):
    with open(path, "rb") as file:
        for number in range(-(-os.path.getsize(path) // MOST)):
            with open("%s.%d" % (to, number), "wb") as part:
                part.write(file.read(MOST))
