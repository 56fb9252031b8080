"""Wide and deep: feature columns, crosses and embeddings, DNNLinearCombinedClassifier with an NPU RunConfig."""

import sys
import tempfile

import numpy as np
import tensorflow as tf

from npu_bridge.npu_init import *

# mixed precision; with the argument float32 the script computes what it says, in TensorFlow's own dtypes
FLOAT32 = sys.argv[1:] == ["float32"]
BATCH, STEPS = 32, 6
OCCUPATIONS = ["clerk", "farmer", "nurse", "pilot"]


def census(rows=256):
    """Features as a dict of columns, and the label of each row."""
    rng = np.random.RandomState(0)
    age, hours = rng.randint(18, 80, rows), rng.randint(10, 60, rows)
    occupation = np.array(OCCUPATIONS)[rng.randint(0, len(OCCUPATIONS), rows)]
    city = np.array(["city%d" % c for c in rng.randint(0, 30, rows)])
    label = ((age > 40) & (hours > 30) | (occupation == "pilot")).astype(np.int32)
    features = {"age": age.astype(np.float32), "hours": hours.astype(np.float32)}
    features.update(occupation=occupation, city=city)
    return features, label


def build_columns():
    age = tf.feature_column.numeric_column("age", normalizer_fn=lambda x: (x - 49.0) / 18.0)
    hours = tf.feature_column.numeric_column("hours", normalizer_fn=lambda x: (x - 35.0) / 15.0)
    buckets = tf.feature_column.bucketized_column(tf.feature_column.numeric_column("age"), [25, 35, 45, 55, 65])
    occupation = tf.feature_column.categorical_column_with_vocabulary_list("occupation", OCCUPATIONS)
    city = tf.feature_column.categorical_column_with_hash_bucket("city", hash_bucket_size=20)
    crossed = tf.feature_column.crossed_column([buckets, "occupation"], hash_bucket_size=50)
    wide = [buckets, occupation, crossed]
    deep = [age, hours, tf.feature_column.indicator_column(occupation)]
    deep.append(tf.feature_column.embedding_column(city, dimension=8))
    return wide, deep


class LoadWeights(tf.train.SessionRunHook):
    """Starts from weights that numpy draws, where those of the layers come from the seeds of their ops."""

    def after_create_session(self, session, coord):
        rng = np.random.RandomState(1)
        for variable in sorted(tf.trainable_variables(), key=lambda v: v.name):
            if "dnn" in variable.name and "bias" not in variable.name:
                variable.load(rng.uniform(-0.3, 0.3, variable.shape.as_list()).astype(np.float32), session)


class PrintLoss(tf.train.SessionRunHook):
    def begin(self):
        self.loss, self.steps = tf.get_collection(tf.GraphKeys.LOSSES)[-1], 0

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        print("loss %d %.6f" % (self.steps, run_values.results))
        self.steps += 1


def input_fn(repeat):
    def feed():
        dataset = tf.data.Dataset.from_tensor_slices(census())
        return (dataset.repeat() if repeat else dataset).batch(BATCH)

    return feed


def main():
    tf.logging.set_verbosity(tf.logging.ERROR)
    session_config = tf.ConfigProto()
    custom_op = session_config.graph_options.rewrite_options.custom_optimizers.add()
    custom_op.name = "NpuOptimizer"
    custom_op.parameter_map["precision_mode"].s = b"must_keep_origin_dtype" if FLOAT32 else b"allow_mix_precision"
    custom_op.parameter_map["npu_shim_profile"].s = b"gpu" if FLOAT32 else b"ascend910"
    run_config = tf.estimator.RunConfig(tf_random_seed=1, session_config=session_config)
    wide, deep = build_columns()
    model = tf.estimator.DNNLinearCombinedClassifier(
        model_dir=tempfile.mkdtemp(),
        linear_feature_columns=wide,
        dnn_feature_columns=deep,
        dnn_hidden_units=[32, 16],
        dnn_optimizer=tf.train.AdagradOptimizer(0.05),
        linear_optimizer=tf.train.FtrlOptimizer(0.05),
        config=npu_run_config_init(run_config=run_config),
    )
    hooks = npu_hooks_append(hooks_list=[LoadWeights(), PrintLoss()])
    model.train(input_fn(repeat=True), hooks=hooks, max_steps=STEPS)
    result = model.evaluate(input_fn(repeat=False))
    assert result["global_step"] == STEPS, result


if __name__ == "__main__":
    main()
