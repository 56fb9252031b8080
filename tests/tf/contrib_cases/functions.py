"""Functions and layers: tf.contrib.crf, image, data, layers and their like."""

import numpy as np

from . import case, module, values


@case
def crf(tf, contrib):
    inputs, tags = tf.constant(values("unary", 4, 5, 3)), tf.constant(np.arange(20).reshape(4, 5) % 3, tf.int32)
    lengths, bitmap = tf.constant([5, 1, 3, 0]), tf.constant(values("bitmap", 4, 5, 3) > -0.5)
    likelihood, transitions = contrib.crf.crf_log_likelihood(inputs, tags, lengths)
    decoded = contrib.crf.crf_decode(inputs, transitions, lengths)
    single = contrib.crf.crf_decode(inputs[:, :1], transitions, tf.constant([1, 1, 1, 0]))
    return [likelihood, tf.gradients(likelihood, transitions), decoded, single,
            contrib.crf.crf_multitag_sequence_score(inputs, bitmap, lengths, transitions),
            contrib.crf.crf_log_norm(inputs[:, :1], lengths, transitions)]  # fmt: skip


@case
def images(tf, contrib):
    picture, c = tf.constant(values("image", 2, 6, 5, 3)), contrib.image
    turns = c.angles_to_projective_transforms([0.3, -1.2], 6.0, 5.0)
    moves = c.translations_to_projective_transforms([1.0, -2.0])
    flow = tf.constant(3 * values("flow", 2, 6, 5, 2))
    points = tf.constant(8 * values("points", 2, 7, 2))
    return [
        c.rotate(picture, 0.7),
        c.rotate(picture, [0.2, 3.0], "BILINEAR"),
        c.rotate(picture[0, :, :, 0], 1.0),
        c.translate(picture, [1.0, 2.0]),
        c.translate(picture[0], [0.5, -0.25], "BILINEAR"),
        c.compose_transforms(turns, moves),
        c.flat_transforms_to_matrices(turns),
        c.dense_image_warp(picture, flow),
        contrib.resampler.resampler(picture, points + 2.0),
        c.transform(picture, turns, output_shape=[3, 4]),
    ]


@case
def small_functions(tf, contrib):
    x = tf.constant(values("x", 3, 5))
    p = contrib.sparsemax.sparsemax(x * 3)
    labels = tf.one_hot([0, 1, 2], 5)
    ids = tf.constant([[0, 1, 1], [2, 0, 3]])
    f = contrib.framework
    return [
        p,
        contrib.sparsemax.sparsemax_loss(x * 3, p, labels),
        contrib.nn.scaled_softplus(x, 0.5, 1.0),
        contrib.layers.embed_sequence(ids, 4, 3),
        contrib.layers.embed_sequence(ids, 4, 3, unique=True, scope="u"),
        contrib.layers.bow_encoder(ids, 4, 3),
        contrib.layers.bow_encoder(ids, 4, 3, sparse_lookup=False, scope="d"),
        f.reduce_sum_n([x, x]),
        f.with_shape([3, 5], x),
        f.with_same_shape(x, x * 2),
        f.py_func(lambda a, b: {"c": a + b}, (x,), {"b": x}, {"c": tf.float32}, {"c": [3, 5]}),
        contrib.lookup.string_to_index(tf.constant(["b", "z"]), tf.constant(["a", "b"])),
    ]


@case
def datasets(tf, contrib):
    numbers = tf.data.Dataset.range(11)
    out = []
    for change in (contrib.data.batch_and_drop_remainder(4), contrib.data.sliding_window_batch(3, 2),
                   contrib.data.sliding_window_batch(3, window_shift=1, window_stride=2),
                   contrib.data.map_and_batch(lambda x: x * 2, 3), contrib.data.assert_element_shape([])):  # fmt: skip
        iterator = tf.data.make_one_shot_iterator(numbers.apply(change))
        first = iterator.get_next()
        with tf.control_dependencies([first]):
            out.append([first, iterator.get_next()])
    return out


@case
def slim_layers(tf, contrib):
    layers, x = contrib.layers, tf.constant(values("x", 2, 8, 8, 4))
    with contrib.framework.arg_scope(
        [layers.conv2d], normalizer_fn=layers.batch_norm, normalizer_params={"scale": True}
    ):
        y = layers.conv2d(x, 6, 3, stride=2)
    y = layers.separable_conv2d(layers.max_pool2d(y, 2), 4, 3, 1)
    z = layers.fully_connected(layers.flatten(y), 5, weights_regularizer=layers.l2_regularizer(0.1))
    group = layers.group_norm(x, groups=2)
    return [z, layers.layer_norm(z), layers.instance_norm(x), group, tf.losses.get_regularization_losses()]


@case
def tables_and_checks(tf, contrib):
    words, keys = tf.constant(["a", "b"]), tf.constant(["b", "z", "y", "x"])
    lookup, strong = contrib.lookup, contrib.lookup.StrongHashSpec([3, 5])
    start = contrib.lookup.KeyValueTensorInitializer(words, tf.constant([5, 7], tf.int64))
    return [
        lookup.index_table_from_tensor(mapping=words, num_oov_buckets=5, hasher_spec=strong).lookup(keys),
        lookup.string_to_index_table_from_tensor(words, 5, -1, strong).lookup(keys),
        lookup.string_to_index_table_from_tensor(words, 5).lookup(keys),
        lookup.index_to_string_table_from_tensor(mapping=words).lookup(tf.constant([1, 9], tf.int64)),
        lookup.HashTable(start, -1, "shared", "named").lookup(keys),
        contrib.framework.remove_squeezable_dimensions(predictions=tf.ones([3, 1]), labels=tf.zeros([3])),
    ]


@case
def sparsemax_of_infinite_and_double(tf, contrib):
    inf, nan = float("inf"), float("nan")
    rows = [
        [0, -inf, 0],
        [0, -inf, -inf],
        [-inf, -inf, -inf],
        [0, inf, 0],
        [-inf, inf, 0],
        [0, nan, 0],
        [0.5, 0.1, 2.0],
    ]
    labels = np.eye(3)[[2, 2, 2, 2, 2, 2, 0]]
    out = []
    for dtype in (tf.float32, tf.float64):
        p = contrib.sparsemax.sparsemax(tf.constant(rows, dtype))
        out += [p, contrib.sparsemax.sparsemax_loss(tf.constant(rows, dtype), p, tf.constant(labels, dtype))]
    return out


@case
def buckets(tf, contrib):
    """All batches of ten rows of different lengths, by length and by a number, until the input ends."""

    def by_length(number, smaller):
        length = (number * 7) % 5 + 1
        row = {"row": tf.fill([length], number), "number": number}
        lengths, batch = contrib.training.bucket_by_sequence_length(
            length, row, 2, [2, 4], dynamic_pad=True, allow_smaller_final_batch=smaller, keep_input=number > 0
        )
        return [lengths, batch["row"], batch["number"]]

    def by_number(number, smaller):
        which, batch = contrib.training.bucket([number * 10], number % 2, [2, 3], 2, allow_smaller_final_batch=smaller)
        return [which, batch]

    return [
        tf.constant(_until_the_end(tf, make, smaller)) for make in (by_length, by_number) for smaller in (True, False)
    ]


def _until_the_end(tf, make, *args):
    """What tensors made of numbers below ten have been until there are no more, as sorted text."""
    told = []
    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.train.range_input_producer(10, num_epochs=1, shuffle=False).dequeue()
        tensors = make(number, *args)
        session.run(tf.local_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        try:
            while True:
                told.append(str([value.tolist() for value in session.run(tensors)]))
        except tf.errors.OutOfRangeError:
            pass
        coordinator.request_stop()
        coordinator.join(threads)
    return "; ".join([str([tensor.shape.as_list() for tensor in tensors]), *sorted(told)])


@case
def sampled_losses(tf, contrib):
    weights, biases = tf.constant(values("weights", 9, 4)), tf.constant(values("biases", 9))
    labels, inputs = tf.constant([[0, 1], [1, 5]], tf.int64), tf.constant(values("inputs", 2, 4))
    sampled = ([3, 4, 5, 6, 7], [[0.5, 0.2], [0.5, 0.1]], [0.5, 0.4, 0.3, 0.2, 0.1])
    parts = {"div": [weights[:5], weights[5:]], "mod": [weights[::2], weights[1::2]]}
    losses = [
        contrib.nn.rank_sampled_softmax_loss(part, biases, labels, inputs, 5, 3, 9, 2, sampled, 0.7, remove, strategy)
        for strategy, part in sorted(parts.items())
        for remove in (False, True)
    ]
    one = ([3, 4, 5], [[0.5], [0.5]], [0.5, 0.4, 0.3])
    sparse = contrib.nn.sampled_sparse_softmax_loss(weights, biases, labels[:, :1], inputs, 3, 9, one)
    x = tf.constant(values("x", 3, 2))
    forward = module(tf, "nn.python.ops.fwd_gradients").fwd_gradients([x * x, tf.sin(x)], [x], [2 * tf.ones_like(x)])
    return [losses, sparse, tf.gradients(losses[0], inputs), forward, contrib.nn.scaled_softplus(x, 0.3, 0.4)]


@case
def warps_and_colours(tf, contrib):
    picture = tf.constant(np.abs(values("image", 2, 6, 5, 3)))
    corners = [[0, 0], [0, 4], [5, 0], [5, 4], [2, 2]]  # far apart: what is solved for is well determined
    points = np.array([corners, corners[::-1]], np.float32)
    moved = points + values("moves", 2, 5, 2) / 2
    image, query = contrib.image, tf.constant(values("query", 2, 7, 2))
    splines = [
        image.interpolate_spline(points, values("at", 2, 5, 2), query, order, weight)
        for order, weight in ((1, 0.0), (2, 0.01), (3, 0.0), (4, 0.1))
    ]
    warped = [image.sparse_image_warp(picture, points, moved, order, 0.0, edge) for order, edge in ((1, 0), (2, 1))]
    colours = module(tf, "image.python.ops.distort_image_ops")
    turned = [colours.adjust_hsv_in_yiq(picture, 0.4, 0.5, 1.5), colours.adjust_hsv_in_yiq(picture[0], -2.0)]
    return [splines, warped, turned, tf.gradients(warped[1][0], picture)]


@case
def placed_variables(tf, contrib):
    cluster = tf.train.ClusterSpec({"ps": ["a:1", "b:1", "c:1"], "worker": ["d:1"]})
    training, out = contrib.training, []
    for strategy in (
        training.RandomStrategy(3, seed=4),
        training.GreedyLoadBalancingStrategy(3, training.byte_size_load_fn),
    ):
        with tf.Graph().as_default():
            with tf.device(tf.train.replica_device_setter(cluster=cluster, ps_strategy=strategy)):
                variables = [tf.Variable(np.zeros(size, np.float32), name="v%d" % size) for size in (8, 2, 3, 4, 9, 1)]
            out.append([v.device for v in variables])
    return [tf.constant(device) for devices in out for device in devices]


@case
def resampled(tf, contrib):
    training = contrib.training
    inputs = [tf.constant(values("a", 4, 2)), tf.range(4)]
    kept = training.resample_at_rate(inputs, tf.constant([0.0, 0.0, 0.0, 0.0]))
    _, rates = training.weighted_resample([tf.range(3)], tf.constant([50.0, 50.0, 50.0]), 40.0, seed=3)
    probs = [0.0, 1.0, 0.0]
    data, labels = training.stratified_sample(
        [tf.constant(values("x", 3, 2)), tf.range(3)], tf.constant([1, 1, 1]), probs, 4, [0.0, 1.0, 0.0], True
    )
    rejected = training.rejection_sample([tf.constant([2.0, 3.0])], lambda x: tf.constant(1.0), 2)
    shapes = [str(t.shape.as_list()) for t in (*data, labels, *rejected)]
    return [kept, tf.reduce_max(rates), tf.reduce_min(rates), [tf.constant(shape) for shape in shapes]]


@case
def bags_of_words(tf, contrib):
    ids = tf.constant([[0, 1], [2, 3], [3, 3], [0, 0]])
    make = contrib.layers.bow_encoder
    return [make(ids, 4, 5, scope="sparse"), make(ids, 4, 5, sparse_lookup=False, scope="dense")]


@case
def shapes_that_are_checked(tf, contrib):
    f, x = contrib.framework, tf.constant(values("x", 2, 3))
    open_x = tf.placeholder_with_default(values("x", 2, 3), [None, 3])
    kinds = [f.with_shape([2, 3], x) is x, f.with_same_shape(tf.ones([2, 3]), x) is x]
    for shape in ([3, 2], [2, 3, 1], [2.0, 3.0], [[2, 3]]):
        try:
            kinds.append(f.with_shape(shape, x).shape)
        except ValueError as reason:
            kinds.append(type(reason).__name__)
    fits = f.with_shape(tf.placeholder_with_default([2, 3], [2]), x)
    return [tf.constant(str(kind)) for kind in kinds] + [f.with_shape([2, 3], open_x), fits]


@case
def image_matches(tf, contrib):
    rows = np.array([[1, 1, 0, 2, 2], [0, 1, 0, 0, 2], [3, 0, 2, 2, 2], [3, 3, 0, 1, 0]], np.int32)
    spiral = values("spiral", 2, 9, 8) > -0.2
    distances = tf.constant(values("distances", 5, 4))
    return [contrib.image.connected_components(tf.constant(rows)), contrib.image.connected_components(spiral),
            contrib.image.bipartite_match(distances, -1), contrib.image.bipartite_match(distances, [3]),
            contrib.image.bipartite_match(tf.transpose(distances), 3, top_k=2)]  # fmt: skip
