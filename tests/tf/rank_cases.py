"""What several ranks compute, and what one process makes of all their data; run by test_rank_collectives.

Each case is a function without arguments that returns what JSON can hold. Ranks run all cases, but for those that
they are given the names of, in one process each.
"""

import hashlib
import json
import os
import pathlib
import sys
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

from npu_bridge.npu_init import (
    ExponentialUpdateLossScaleManager,
    NPUDistributedOptimizer,
    NPUEstimator,
    NPUEstimatorSpec,
    NPULossScaleOptimizer,
    NPUOptimizer,
    NPURunConfig,
    get_rank_id,
    get_rank_size,
    hccl_ops,
    npu_allreduce,
    npu_tf_optimizer,
    set_split_strategy_by_idx,
)  # fmt: skip
from npu_shim.distributed.job import ranks, settings
from npu_shim.loss_scale.optimizers.accumulate import AccumulatingOptimizer

tf.disable_eager_execution()
RANK, SIZE = get_rank_id(), get_rank_size()
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def session(mode="force_fp32", xla=b"off"):
    config = tf.ConfigProto()
    entry = config.graph_options.rewrite_options.custom_optimizers.add(name="NpuOptimizer")
    entry.parameter_map["precision_mode"].s = mode.encode()
    entry.parameter_map["npu_shim_xla"].s = xla
    return tf.Session(config=config)


def collectives(step):
    """How many collectives of each type the training op of this graph runs."""
    reached = tf.graph_util.extract_sub_graph(tf.get_default_graph().as_graph_def(), [step.name])
    types = [node.op for node in reached.node]
    return {kind: types.count(kind) for kind in ("CollectiveReduce", "CollectiveGather", "CollectiveAllToAllV2")}


def digest(values):
    return hashlib.sha256(b"".join(np.ascontiguousarray(value).tobytes() for value in values)).hexdigest()


def floats(values):
    return {name: np.asarray(value, np.float64).tolist() for name, value in sorted(values.items())}


def train(build, optimizer, feeds, wrapped=npu_tf_optimizer):
    """Trains in this graph; returns the variables' values at the end by name, a digest of them after each step, and how
    many collectives a step has."""
    loss, places, variables = build()
    variables = sorted(variables, key=lambda variable: variable.name)  # ranks make them in different orders
    step = wrapped(optimizer()).minimize(loss)
    digests = []
    with session() as running:
        running.run(tf.global_variables_initializer())
        for feed in feeds:
            running.run(step, dict(zip(places, feed)))
            values = running.run(variables)
            digests.append(digest(values))
    return floats({v.op.name: value for v, value in zip(variables, values)}), digests, collectives(step)


def both(build, optimizer, feeds, wrapped=npu_tf_optimizer, plainly=lambda plain: plain):
    """Trains on this rank's feeds, and plainly on all ranks' feeds at once.

    `build(chosen)` builds the model for some ranks' data: its loss is the mean of these ranks' losses, its placeholders
    are theirs. `feeds` are by step and rank.
    """
    with tf.Graph().as_default():
        values, digests, counts = train(lambda: build([RANK]), optimizer, [feed[RANK] for feed in feeds], wrapped)
    with tf.Graph().as_default():
        everything = [[place for rank in rank_feeds for place in rank] for rank_feeds in feeds]
        expected, _, _ = train(lambda: build(range(SIZE)), optimizer, everything, plainly)
    return {"values": values, "expected": expected, "digests": digests, **counts}


def momentum():
    return tf.train.MomentumOptimizer(0.125, 0.5)


def mean_of(build_one, chosen):
    """Joins the models of several ranks, each `build_one()` -> (loss, places), with the same variables."""
    losses, places = [], []
    for _ in chosen:
        with tf.variable_scope("", reuse=tf.AUTO_REUSE):
            loss, own = build_one()
        losses.append(loss)
        places += own
    return tf.add_n(losses) / len(losses), places, tf.trainable_variables()


def numbers(*shape, seed):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


@case
def many_small():
    """500 variables of 12 bytes: one collective. One process trains them as one variable."""
    start = numbers(500, 3, seed=0)

    def build(chosen):
        if len(chosen) == 1:
            variables = [tf.get_variable("v%d" % at, initializer=value) for at, value in enumerate(start)]
        else:
            variables = [tf.get_variable("all", initializer=start)]
        places = [tf.placeholder(tf.float32, [None, 3]) for _ in chosen]
        total = tf.reduce_sum(tf.reshape(tf.stack(variables), [500, 3]), 0)
        return tf.add_n([tf.reduce_mean(tf.square(total * x)) for x in places]) / len(chosen), places, variables

    feeds = [[[numbers(4, 3, seed=10 * step + rank)] for rank in range(SIZE)] for step in range(2)]
    result = both(build, lambda: tf.train.GradientDescentOptimizer(2.0**-12), feeds)
    (everything,) = result["expected"].values()
    return {**result, "expected": {"v%d" % at: value for at, value in enumerate(everything)}}


def layers(order, sizes=(5, 7, 6, 4, 3, 1)):
    """A network whose variables are made in some order."""
    x = tf.placeholder(tf.float32, [None, sizes[0]])
    built = {at: tf.get_variable("layer_%d" % at, initializer=numbers(*sizes[at : at + 2], seed=at)) for at in order}
    built["spare"] = tf.get_variable("spare", initializer=numbers(3, seed=99))  # no gradient reaches it
    hidden = x
    for at in sorted(order):
        hidden = tf.tanh(tf.matmul(hidden, built[at]))
    return tf.reduce_mean(tf.square(hidden - x[:, :1])), [x]


DENSE = [[[numbers(8, 5, seed=100 * step + rank)] for rank in range(SIZE)] for step in range(4)]


@case
def another_order():
    """Each rank makes its variables, and so its gradients, in another order."""
    order = [0, 1, 2, 3, 4] if RANK % 2 else [2, 4, 0, 1, 3]
    return both(lambda chosen: mean_of(lambda: layers(order), chosen), momentum, DENSE)


@case
def small_buckets():
    """Buckets that are full at 100 bytes: 140, 168, 96, 48 and 12 bytes."""
    os.environ[settings.BUCKET] = str(100 / 2**20)
    try:
        return both(lambda chosen: mean_of(lambda: layers(range(5)), chosen), momentum, DENSE)
    finally:
        del os.environ[settings.BUCKET]


@case
def split_by_index():
    set_split_strategy_by_idx([0, 2])
    try:
        return both(lambda chosen: mean_of(lambda: layers(range(5)), chosen), momentum, DENSE)
    finally:
        ranks._splits.clear()


@case
def unknown_shapes():
    """A variable whose shape is known when the graph runs, beside others."""

    def one():
        x = tf.placeholder(tf.float32, [None, 4])
        start = tf.placeholder_with_default(numbers(4, 2, seed=1), [None, None])
        v = tf.get_variable("open", initializer=start, validate_shape=False)
        w = tf.get_variable("known", initializer=numbers(2, 1, seed=2))
        return tf.reduce_mean(tf.square(tf.matmul(tf.matmul(x, v), w) - 1.0)), [x]

    feeds = [[[numbers(6, 4, seed=30 * step + rank)] for rank in range(SIZE)] for step in range(3)]
    return both(lambda chosen: mean_of(one, chosen), lambda: tf.train.GradientDescentOptimizer(0.0625), feeds)


def digit_batches(steps=8, batch=32):
    """[steps, ranks, batch, 64] images and their labels."""
    with np.load(str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "data" / "digits.npz")) as data:
        images, labels = data["images"], data["labels"]
    taken = np.arange(steps * SIZE * batch) % len(labels)
    shape = (steps, SIZE, batch)
    images = images.reshape(len(labels), -1)[taken].astype(np.float32) / images.max()
    return images.reshape(*shape, -1), labels[taken].astype(np.int32).reshape(shape)


def digit_loss(x, y):
    hidden = tf.nn.relu(tf.matmul(x, tf.get_variable("first", initializer=0.25 * numbers(64, 32, seed=1))))
    logits = tf.matmul(hidden, tf.get_variable("last", initializer=0.25 * numbers(32, 10, seed=2)))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


@case
def digits():
    def one():
        x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
        return digit_loss(x, y), [x, y]

    images, labels = digit_batches()
    feeds = [[list(array) for array in zip(*step)] for step in zip(images, labels)]
    return both(lambda chosen: mean_of(one, chosen), momentum, feeds)


@case
def digits_estimator():
    """The same steps by NPUEstimator; its input_fn has this rank's share."""
    images, labels = digit_batches()

    def model_fn(features, labels, mode):
        loss = digit_loss(features, labels)
        step = npu_tf_optimizer(momentum()).minimize(loss, tf.train.get_or_create_global_step())
        return NPUEstimatorSpec(mode, loss=loss, train_op=step)

    def input_fn():
        return tf.data.Dataset.from_tensor_slices((images[:, RANK], labels[:, RANK]))

    config = NPURunConfig(model_dir=tempfile.mkdtemp(), precision_mode="force_fp32")
    estimator = NPUEstimator(model_fn, config=config)
    estimator.train(input_fn)
    return {"seen": floats({name: estimator.get_variable_value(name) for name in ("first", "last")})}


def embedding(rows, count):
    """Rows of a table, picked by ids; `count` ids, or as many as are fed."""
    ids, y = tf.placeholder(tf.int32, [count]), tf.placeholder(tf.float32, [count, 4])
    table = tf.get_variable("table", initializer=numbers(rows, 4, seed=5))
    other = tf.get_variable("other", initializer=numbers(rows, 2, seed=6))
    rows_of_table, more = tf.gather(table, ids), tf.gather(other, ids)
    return tf.reduce_sum(tf.square(rows_of_table - y)) + tf.reduce_sum(tf.square(more)), [ids, y]


def picked(counts, rows):
    """Feeds of `embedding`: ids with repetitions, another number for each step and rank."""
    draws = np.random.RandomState(3)
    return [
        [[draws.randint(0, rows, count), draws.randn(count, 4).astype(np.float32)] for count in number]
        for number in counts
    ]


@case
def sparse_unequal():
    """Ranks with different numbers of slices, also none at all, and other numbers in each step."""
    counts = [
        [3 + rank for rank in range(SIZE)],
        [5 - rank for rank in range(SIZE)],
        [4 * rank for rank in range(SIZE)],
    ]
    return both(lambda chosen: mean_of(lambda: embedding(40, None), chosen), momentum, picked(counts, 40))


@case
def sparse_as_dense():
    """More slices than rows: the whole table travels, and rows that nobody has keep their momentum."""
    feeds = picked([[48] * SIZE] * 3, 6)
    for step in feeds:
        for ids, _ in step:
            ids[ids == 2] = 3
    return both(lambda chosen: mean_of(lambda: embedding(8, 48), chosen), momentum, feeds)


def sharded(optimizer):
    return NPUDistributedOptimizer(optimizer, is_weight_update_sharding=True)


@case
def sharded_momentum():
    return both(lambda chosen: mean_of(lambda: layers([2, 4, 0, 1, 3]), chosen), momentum, DENSE, sharded)


@case
def sharded_adam():
    def adam():
        return tf.train.AdamOptimizer(0.125, epsilon=0.125)  # else it divides rounding by rounding

    return both(lambda chosen: mean_of(lambda: layers(range(5)), chosen), adam, DENSE, sharded)


class ByNorm:
    """An optimizer whose gradients are clipped by their global norm."""

    def __init__(self, optimizer):
        self._optimizer = optimizer

    def minimize(self, loss):
        gradients, variables = zip(*self._optimizer.compute_gradients(loss))
        return self._optimizer.apply_gradients(zip(tf.clip_by_global_norm(gradients, 0.5)[0], variables))


def sharded_by_norm_of(build_one, feeds):
    sums = lambda chosen: mean_of(build_one, chosen)  # noqa: E731
    return both(sums, momentum, feeds, lambda plain: ByNorm(sharded(plain)), ByNorm)


@case
def sharded_by_norm():
    return sharded_by_norm_of(lambda: layers(range(5)), DENSE)


def dense_and_sparse():
    """One rank has the dense variable alone: others need its gradient for the norm, and it needs theirs."""
    loss, (ids, y) = embedding(40, None)
    weight = tf.get_variable("weight", initializer=numbers(4, 300, seed=7))
    return loss + tf.reduce_mean(tf.square(tf.matmul(y, weight))), [ids, y]


@case
def sharded_sparse():
    return both(lambda chosen: mean_of(dense_and_sparse, chosen), momentum, picked([[3] * SIZE] * 3, 40), sharded)


@case
def sharded_sparse_by_norm():
    return sharded_by_norm_of(dense_and_sparse, picked([[3] * SIZE] * 3, 40))


@case
def sharded_checkpoint():
    """One rank saves; the file has every slot, and a plain optimizer goes on from it."""
    seen = {}
    for name, wrapped in (("sharded", sharded), ("plain", npu_tf_optimizer)):
        with tf.Graph().as_default():
            loss, (x,), _ = mean_of(lambda: layers(range(5)), [RANK])
            step = wrapped(momentum()).minimize(loss)
            path, saver = os.path.join(tempfile.mkdtemp(), "model"), tf.train.Saver()
            with session() as running:
                running.run(tf.global_variables_initializer())
                if RANK == 0:
                    saver.save(running, path)  # before any step
                for feed in DENSE:
                    running.run(step, {x: feed[RANK][0]})
                if RANK == SIZE - 1:
                    saver.save(running, path)
                    reader = tf.train.load_checkpoint(path)
                    seen[name] = floats({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()})
    return {"seen": seen}


LOSS_SCALED = {
    "distributed": lambda: NPULossScaleOptimizer(npu_tf_optimizer(momentum()), manager(), is_distributed=True),
    "local": lambda: NPULossScaleOptimizer(npu_tf_optimizer(momentum()), manager()),
    "vendors": lambda: NPUOptimizer(momentum(), manager(), is_distributed=True, is_loss_scale=True),
    "sharded": lambda: NPULossScaleOptimizer(sharded(momentum()), manager()),
    "accumulated": lambda: accumulated(npu_tf_optimizer(momentum())),
    "accumulated_sharded": lambda: accumulated(sharded(momentum())),
}


def manager():
    return ExponentialUpdateLossScaleManager(2.0**10, 2, 1, decr_ratio=0.5)


def accumulated(optimizer):
    return AccumulatingOptimizer(NPULossScaleOptimizer(optimizer, manager(), is_distributed=True), 2)


@case
def overflows():
    """The last rank's data overflow in the third step of seven; what the scale is, and a digest, after each."""
    seen = {}
    for name, make in LOSS_SCALED.items():
        with tf.Graph().as_default():
            loss, (x,), variables = mean_of(lambda: layers(range(5)), [RANK])
            step, scale = make().minimize(loss), []
            with session() as running:
                running.run(tf.global_variables_initializer())
                for number in range(7):
                    planted = np.float32(np.inf if (number, RANK) == (2, SIZE - 1) else 1)
                    running.run(step, {x: DENSE[number % len(DENSE)][RANK][0] * planted})
                    scale.append([float(running.run("loss_scale:0")), digest(running.run(variables))])
            seen[name] = {"scale": scale, **collectives(step)}
    return {"seen": seen}


@case
def travelling():
    """Gradients that travel in 16 bits, in graphs of the same names; 1 + 2**-11 is no float16, and twice 40000 is
    infinite."""
    seen = {}
    for name, dtype, sums, own in (
        ("own", "own", "own", tf.float32), ("float16", "float16", "own", tf.float32),
        ("wide", "float16", "float32", tf.float32), ("low", "own", "float32", tf.float16),
        ("bfloat16", "bfloat16", "float32", tf.float32),
    ):  # fmt: skip
        os.environ.update({settings.DTYPE: dtype, settings.SUMS: sums})
        with tf.Graph().as_default(), session() as running:
            (mean,) = npu_allreduce([tf.constant([1.0, 1 + 2.0**-11, 40000.0], own)])
            assert mean.dtype == own
            seen[name] = running.run(tf.cast(mean, tf.float32)).tolist()
    del os.environ[settings.DTYPE], os.environ[settings.SUMS]
    return {"seen": seen}


@case
def calls():
    """A script's own allreduce calls, one of which needs others; how many collectives the session runs, by fusion."""
    seen = {}
    with tf.Graph().as_default(), session() as running:
        x = tf.placeholder(tf.float32, [3])
        for name, fusion, ids in (("by bytes", 1, [-1] * 6), ("by id", 2, [7, 8] * 3), ("alone", 0, [-1] * 6)):
            sums = [hccl_ops.allreduce(x * (2.0 + at), "sum", fusion, number) for at, number in enumerate(ids)]
            sums.append(hccl_ops.allreduce(tf.reshape(sums[0] + sums[1], [3, 1]) * 2.0, "sum", fusion, ids[0]))
            sums.append(hccl_ops.allreduce(tf.cast(x, tf.int32), "prod", fusion, ids[0]))
            told = tf.RunMetadata()
            values = running.run(sums, {x: [RANK, 1, 2]}, tf.RunOptions(output_partition_graphs=True), told)
            ops = [node.op for graph in told.partition_graphs for node in graph.node]
            seen[name] = [[value.tolist() for value in values], ops.count("CollectiveReduce")]
    return {"seen": seen}


def each_rank_of(values):
    """A [ranks, rows, columns] tensor, the part of this rank alone a variable of the gradient: (all, this rank's)."""
    parts = [tf.constant(part) for part in values]
    return tf.stack(parts), parts[RANK]


COLLECTIVES = {  # name -> (what the ranks run, the same in one process: [ranks, 4, 2] -> one result for each rank)
    **{
        reduction: (
            lambda x, by=reduction: hccl_ops.allreduce(x, by),
            lambda every, reduce=reduce: [reduce(every, 0)] * SIZE,
        )
        for reduction, reduce in (
            ("sum", tf.reduce_sum), ("max", tf.reduce_max), ("min", tf.reduce_min), ("prod", tf.reduce_prod)
        )
    },
    "mean": (lambda x: npu_allreduce(x), lambda every: [tf.reduce_mean(every, 0)] * SIZE),
    "scattered max": (
        lambda x: hccl_ops.reduce_scatter(x, "max", SIZE), lambda every: tf.split(tf.reduce_max(every, 0), SIZE)
    ),
    "gathered": (
        lambda x: hccl_ops.allgather(x, SIZE), lambda every: [tf.concat(tf.unstack(every, SIZE), 0)] * SIZE
    ),
    "sent": (lambda x: hccl_ops.broadcast([x], SIZE - 1)[0], lambda every: [every[SIZE - 1]] * SIZE),
}  # fmt: skip


@case
def differentiated():
    """Gradients of collectives, and what TensorFlow makes of the same sum over all ranks in one process."""
    values = np.random.RandomState(5).randint(1, 4, [SIZE, 4, 2]).astype("f")  # some of them are equal
    actual, expected = {}, {}
    for name, (together, alone) in COLLECTIVES.items():
        with tf.Graph().as_default(), session() as running:
            every, own = each_rank_of(values)
            results = alone(every)
            weights = [numbers(*result.shape.as_list(), seed=rank) for rank, result in enumerate(results)]
            whole = tf.add_n([tf.reduce_sum(result * weight) for result, weight in zip(results, weights)])
            losses = [tf.reduce_sum(together(own) * weights[RANK]), whole]
            actual[name], expected[name] = (running.run(tf.gradients(loss, own)[0]).tolist() for loss in losses)
    return {"found": actual, "expected": expected}


@case
def empty():
    """Tensors without elements on all ranks, and no row of a table on any: the shapes of what comes back."""
    shapes = {}
    with tf.Graph().as_default(), session() as running:
        x = tf.zeros([0, 3])
        tensors = {"sum": hccl_ops.allreduce(x, "sum"), "gathered": hccl_ops.allgather(x, SIZE)}
        tensors["scattered"] = hccl_ops.reduce_scatter(x, "sum", SIZE)
        rows = tf.placeholder(tf.int32, [None])
        tensors["slices"] = npu_allreduce([tf.IndexedSlices(tf.zeros([tf.size(rows), 3]), rows, [100, 3])])[0].values
        for name, tensor in tensors.items():
            shapes[name] = list(running.run(tensor, {rows: []}).shape)
    return {"shapes": shapes}


@case
def compiled():
    """What lies around a collective compiled by XLA, with values that depend on constants alone."""
    seen = []
    for switch in (b"off", b"on"):
        with tf.Graph().as_default(), session(xla=switch) as running:
            x, fixed = tf.placeholder(tf.float32, [4, 4]), tf.constant(numbers(4, 4, seed=3))
            for _ in range(6):
                fixed = tf.tanh(tf.matmul(fixed, fixed))
            mixed = hccl_ops.allreduce(tf.matmul(fixed, x), "sum")
            for _ in range(6):
                mixed = tf.tanh(tf.matmul(mixed, fixed))
            seen.append(running.run(mixed, {x: numbers(4, 4, seed=RANK)}).tolist())
    return {"seen": seen}


@case
def second_graph():
    """A second graph of a process, whose first collective has another dtype than the first graph's."""
    seen = []
    for dtype in (tf.float32, tf.int32, tf.int8, tf.bool, tf.bfloat16, tf.float16):
        with tf.Graph().as_default(), session() as running:
            row = tf.cast([[RANK, 1]], dtype)
            fetches = [hccl_ops.allgather(row, SIZE), hccl_ops.broadcast([row], SIZE - 1)[0]]
            if dtype != tf.bool:
                fetches.append(hccl_ops.allreduce(row, "max"))
            fetched = running.run([tf.cast(fetch, tf.float32) for fetch in fetches])
            seen.append([np.asarray(value).tolist() for value in fetched])
    return {"seen": seen}


def main(left_out):
    print(json.dumps({name: CASES[name]() for name in CASES if name not in left_out}))


if __name__ == "__main__":
    main(sys.argv[1:])
