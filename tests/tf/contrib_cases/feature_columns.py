"""The feature columns of tf.contrib.layers: what they make of features, their keys, and models over them."""

import re

from . import case, values

HASH = 0xDECAFCAFFE


def _features(tf):
    def words(*rows):
        indices = [[row, column] for row, of_row in enumerate(rows) for column in range(len(of_row))]
        flat = [word for of_row in rows for word in of_row]
        return tf.SparseTensor(tf.constant(indices, tf.int64), tf.constant(flat), tf.constant([len(rows), 3], tf.int64))

    return {
        "wire": words(["omar", "marlo"], [], ["bunk"], ["omar", "unknown", "bunk"]),
        "country": words(["us"], ["fr", "de"], [], ["us"]),
        "dense": tf.constant([["a", "b"], ["", "c"], ["d", ""], ["a", "d"]]),
        "number": words([3, 12], [5], [], [100]),
        "weight": words([0.5, 2.0], [], [1.5], [1.0, -1.0, 3.0]),
        "price": tf.constant(100 * values("price", 4, 2)),
        "age": tf.constant([[1], [2], [3], [50]]),
    }


def _columns(layers):
    wire = layers.sparse_column_with_hash_bucket("wire", 20)
    keys = layers.sparse_column_with_keys("wire", ["omar", "marlo", "bunk"], combiner="mean")
    country = layers.sparse_column_with_hash_bucket("country", 10, combiner="sqrtn")
    price = layers.real_valued_column("price", 2, normalizer=lambda x: x / 10)
    buckets = layers.bucketized_column(price, [-5.0, 0.0, 2.5, 2.5])
    crossed = layers.crossed_column([wire, buckets, country], 50, hash_key=HASH)
    dense = layers.sparse_column_with_hash_bucket("dense", 7)
    return {
        "wire": wire, "keys": keys, "country": country, "price": price, "buckets": buckets, "crossed": crossed,
        "dense": dense,
        "hashes": layers.sparse_column_with_hash_bucket("wire", 30, hash_keys=[[1, 2], [3, 4]]),
        "number": layers.sparse_column_with_integerized_feature("number", 9),
        "age": layers.real_valued_column("age", default_value=3.0),
        "weighted": layers.weighted_sparse_column(keys, "weight"),
        "nested": layers.crossed_column([crossed, dense], 60, hash_key=HASH),
    }  # fmt: skip


@case
def columns_transformed(tf, contrib):
    columns = _columns(contrib.layers)
    transformed = contrib.layers.transform_features(_features(tf), list(columns.values()))
    out = []
    for name in sorted(columns):
        value = transformed[columns[name]]
        for part in value if type(value) is tuple else [value]:
            out += [part.indices, part.values, part.dense_shape] if isinstance(part, tf.SparseTensor) else [part]
    return out


@case
def columns_described(tf, contrib):
    layers = contrib.layers
    columns = _columns(layers)
    columns["embedded"] = layers.embedding_column(columns["crossed"], 3, max_norm=1.5)
    columns["hot"] = layers.one_hot_column(columns["weighted"])
    columns["scattered"] = layers.scattered_embedding_column("country", 90, 3, HASH)
    columns["first"], columns["second"] = layers.shared_embedding_columns(
        [columns["wire"], layers.sparse_column_with_hash_bucket("other", 20)], 5
    )
    lines = []
    for name, column in sorted(columns.items()):
        key = re.sub(", normalizer=<.*? at 0x[0-9a-f]+>", "", column.key)  # an address is another each time
        spec = sorted(layers.create_feature_spec_for_parsing([column]).items())
        lines.append("%s: %s, %s, %s" % (name, column.name, key, ["%s %s" % (n, type(k).__name__) for n, k in spec]))
    return [tf.constant(line) for line in lines]


@case
def columns_dense(tf, contrib):
    layers, features = contrib.layers, _features(tf)
    columns = _columns(layers)
    start = tf.constant_initializer(0.5)
    dense = [
        columns["price"], columns["age"], columns["buckets"], layers.one_hot_column(columns["weighted"]),
        layers.one_hot_column(columns["number"]), layers.embedding_column(columns["crossed"], 3, "sum"),
        layers.embedding_column(columns["weighted"], 4, "sqrtn", start, max_norm=0.7),
        layers.embedding_column(columns["dense"], 2, trainable=False, initializer=start),
        layers.scattered_embedding_column("country", 40, 3, HASH, "sum"),
    ]  # fmt: skip
    other = layers.sparse_column_with_hash_bucket("country", 20)
    dense += layers.shared_embedding_columns([columns["wire"], other], 5, combiner="sum")
    outputs = {}
    joined = layers.input_from_feature_columns(
        features, dense, weight_collections=["mine"], scope="deep", cols_to_outs=outputs
    )
    variables = sorted(tf.trainable_variables(), key=lambda v: v.op.name)
    gradients = [tf.convert_to_tensor(g) for g in tf.gradients(tf.reduce_sum(joined**2), variables)]
    names = sorted(v.op.name for v in tf.get_collection("mine"))
    return [joined, *[outputs[column] for column in dense], gradients, [tf.constant(name) for name in names]]


@case
def columns_wide(tf, contrib):
    layers, features = contrib.layers, _features(tf)
    columns = _columns(layers)
    used = [columns[name] for name in ("wire", "keys", "price", "buckets", "crossed", "age", "weighted", "hashes")]
    sums, variables, bias = layers.weighted_sum_from_feature_columns(features, used, 2, weight_collections=["mine"])
    names = sorted(v.op.name for v in tf.get_collection("mine"))
    of_columns = [variables[column][0].op.name for column in used]
    joint = layers.joint_weighted_sum_from_feature_columns(features, [columns["wire"], columns["dense"]], 3)
    return [sums, bias, [tf.constant(name) for name in (*names, *of_columns)], joint[0], joint[2]]


@case
def columns_parsed(tf, contrib):
    layers = contrib.layers

    def feature(kind, values):
        return tf.train.Feature(**{kind + "_list": getattr(tf.train, kind.capitalize() + "List")(value=values)})

    def serialized(example):
        return example.SerializeToString()

    examples = [
        {"wire": feature("bytes", [b"omar", b"bunk"]), "price": feature("float", [1.0, 2.0])},
        {"price": feature("float", [30.0, -40.0]), "age": feature("float", [7.0])},
    ]
    examples = [serialized(tf.train.Example(features=tf.train.Features(feature=features))) for features in examples]
    columns = _columns(layers)
    used = [columns[name] for name in ("keys", "price", "buckets", "age")]
    parsed = layers.parse_feature_columns_from_examples(tf.constant(examples), used)
    steps = [tf.train.FeatureList(feature=[feature("bytes", [b"marlo"]), feature("bytes", [b"omar", b"bunk"])])]
    numbers = tf.train.FeatureList(feature=[feature("float", [1.0, 2.0]), feature("float", [3.0, 4.0])])
    sequence = tf.train.SequenceExample(
        context=tf.train.Features(feature={"age": feature("float", [5.0])}),
        feature_lists=tf.train.FeatureLists(feature_list={"wire": steps[0], "price": numbers}),
    )
    context, sequences = layers.parse_feature_columns_from_sequence_examples(
        serialized(sequence), [columns["age"]], [columns["keys"], columns["price"]]
    )
    batch = {"wire": tf.sparse.expand_dims(sequences["wire"], 0), "price": sequences["price"][None]}
    embedded = layers.embedding_column(columns["keys"], 3)
    joined = layers.sequence_input_from_feature_columns(batch, [embedded, columns["price"]])
    placed = layers.make_place_holder_tensors_for_base_features(used)
    return [
        parsed[columns["keys"]].values, parsed[columns["keys"]].indices, *[parsed[column] for column in used[1:]],
        context["age"], joined, [tf.constant(name) for name in sorted(placed)],
        [tf.constant(str(t.shape.as_list())) for name, t in sorted(placed.items()) if isinstance(t, tf.Tensor)],
    ]  # fmt: skip


@case
def columns_refused(tf, contrib):
    layers = contrib.layers
    columns, features = _columns(layers), _features(tf)
    number, wire, price = (columns[name] for name in ("number", "wire", "price"))
    calls = [
        lambda: layers.sparse_column_with_hash_bucket("a", 0),
        lambda: layers.sparse_column_with_hash_bucket("a", 5, dtype=tf.float32),
        lambda: layers.sparse_column_with_integerized_feature("a", 0),
        lambda: layers.sparse_column_with_integerized_feature("a", 5, dtype=tf.string),
        lambda: layers.sparse_column_with_vocabulary_file("a", "file"),
        lambda: layers.weighted_sparse_column(wire, "w", tf.string),
        lambda: layers.real_valued_column("a", dimension=0),
        lambda: layers.real_valued_column("a", dimension="two"),
        lambda: layers.real_valued_column("a", default_value="word"),
        lambda: layers.real_valued_column("a", 3, default_value=[1.0, 2.0]),
        lambda: layers.real_valued_column("a", dtype=tf.string),
        lambda: layers.bucketized_column(wire, [1.0]),
        lambda: layers.bucketized_column(price, []),
        lambda: layers.bucketized_column(price, [2.0, 1.0]),
        lambda: layers.crossed_column([wire], 10),
        lambda: layers.crossed_column([wire, number], 1),
        lambda: layers.crossed_column([wire, price], 10),
        lambda: layers.embedding_column(wire, 3, initializer=7),
        lambda: layers.embedding_column(wire, 3, ckpt_to_load_from="model"),
        lambda: layers.shared_embedding_columns([], 3),
        lambda: layers.shared_embedding_columns([wire, columns["country"]], 3),
        lambda: layers.shared_embedding_columns(wire, 3),
        lambda: layers.scattered_embedding_column("a", 0, 3, HASH),
        lambda: layers.check_feature_columns([wire, layers.sparse_column_with_hash_bucket("wire", 20)]),
        lambda: layers.input_from_feature_columns(features, [wire]),
        lambda: layers.weighted_sum_from_feature_columns(features, [layers.embedding_column(wire, 3)], 2),
        lambda: layers.create_feature_spec_for_parsing(["a"]),
    ]
    kinds = []
    for call in calls:
        try:
            kinds.append("%s" % call().name)
        except Exception as reason:
            kinds.append(type(reason).__name__)
    return [tf.constant(kind) for kind in kinds]
