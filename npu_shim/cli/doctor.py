"""npu-shim doctor: what is installed, and a self-test through a real session."""

from __future__ import annotations

import argparse
import platform
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Takes no arguments."""


def main(_: argparse.Namespace) -> int:
    """Prints what it finds, one fact per line; returns 0 when a session can be rewritten here, else 1."""
    from npu_shim import __version__
    from npu_shim.compat import tensorflow_v1
    from npu_shim.compat.keras import real_keras

    print("npu_shim      %s, Python %s, %s" % (__version__, platform.python_version(), platform.platform()))
    tf = tensorflow_v1.import_tensorflow()
    import numpy
    from google import protobuf

    print("tensorflow    %s, numpy %s, protobuf %s" % (tf.__version__, numpy.__version__, protobuf.__version__))
    healthy = _print_hook()
    _print_estimator()
    if not tf.__version__.startswith("1."):
        print("keras         %s" % real_keras.describe())
    devices = tf.config.experimental.list_physical_devices()
    print("devices       %s" % ", ".join(device.name.replace("/physical_device:", "") for device in devices))
    from npu_shim.session import clusters

    print("XLA           %s (NPU_SHIM_XLA=auto|on|off)" % ("on" if clusters.wanted({}) else "off"))
    said, jax = _describe_engine()
    print("engine        %s" % said)
    _print_cards(jax)
    return 0 if _print_packages(tf.__version__) and healthy and _self_test() else 1


def _describe_engine():
    """What would run training steps with NPU_SHIM_ENGINE=pjrt, or why nothing can; and its `driver.Jax`, or None."""
    from npu_shim.options import engine
    from npu_shim.pjrt import driver
    from npu_shim.rewriter.errors import ConfigError

    try:
        engine.require()
        if not engine.has_jax():
            python = engine.interpreter()
            about = _about(python)
            return _in_words(about, python), driver.Jax(about["cuda"], about["platform"], python)
        from npu_shim.pjrt import jax_compat

        jax = jax_compat.require()
        said = "JAX %s in TensorFlow's process: %s" % (jax.__version__, ", ".join(map(str, jax.devices())))
        return said, driver.Jax(driver.kind_of_jax(), jax.devices()[0].platform)
    except (ConfigError, ImportError, RuntimeError) as reason:
        return "none: %s" % str(reason).replace("npu_shim: ", "", 1), None


def describe_worker(interpreter: str) -> str:
    """Starts the engine's worker on an interpreter and says what it has; errors as `starting.Started`."""
    return _in_words(_about(interpreter), interpreter)


def _about(interpreter):
    from npu_shim.engine.device.worker import starting

    started = starting.Started(interpreter)
    started.end()
    return started.about


def _in_words(about, interpreter):
    facts = {**about, "devices": ", ".join(about["devices"]), "interpreter": interpreter}
    return "JAX {jax} in a worker, {interpreter} (Python {python}): {devices}".format(**facts)


def _print_cards(jax):
    """Prints the cards of this machine, and what keeps JAX, the engine's, and TensorFlow from them."""
    from npu_shim.pjrt import driver
    from npu_shim.session import cards

    told = driver.seen()
    texts = ["%s, driver %s" % (card.text, told.version) for card in told.cards] or ["none: %s" % told.trouble]
    if told.cards:
        texts += [text for text in (driver.why_not_jax(told, jax), cards.of_tensorflow(told)) if text]
    for text in texts + driver.held(told):
        print("cards         %s" % text)


def _print_hook():
    from npu_shim.session.native import build

    try:
        print("hook          %s" % build.build())
    except build.BuildError as reason:
        print("hook          not built: %s" % reason)
        return False
    return True


def _print_packages(tensorflow):
    """Prints the packages that are not what TensorFlow takes; says whether it works with all of them."""
    from npu_shim.compat.python import pins

    broken = pins.broken(tensorflow)
    for text in broken + pins.unmet(tensorflow):
        print("packages      %s" % text)
    return not broken


def _print_estimator():
    import tensorflow.compat.v1 as tf

    from npu_shim.compat import after_215

    if not hasattr(tf, "estimator"):
        print("Estimator     not installed: pip install tensorflow-estimator==2.15.0 tf_keras")
    elif after_215.MOVED:
        keras = after_215.MOVED["tensorflow.keras"].split(".")[0]
        print("Estimator     from tensorflow-estimator; tf.keras is %s" % keras)


def _self_test():
    """Trains one step of a small graph in mixed precision; says whether its matrix product ran in float16."""
    import tensorflow.compat.v1 as tf

    from npu_shim.session.interception import patch as session

    session.patch()
    config = tf.ConfigProto()
    optimizer = config.graph_options.rewrite_options.custom_optimizers.add()
    optimizer.name = "NpuOptimizer"
    optimizer.parameter_map["precision_mode"].s = b"allow_mix_precision"
    with tf.Graph().as_default(), tf.Session(config=config) as sess:
        weight = tf.get_variable("weight", [8, 8], use_resource=True)
        loss = tf.reduce_sum(tf.square(tf.matmul(tf.ones([4, 8]), weight, name="product")))
        step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
        sess.run(tf.global_variables_initializer())
        ran = tf.RunMetadata()
        sess.run([loss, step], options=tf.RunOptions(output_partition_graphs=True), run_metadata=ran)
    nodes = [node for graph in ran.partition_graphs for node in graph.node if node.op.endswith("MatMul")]
    passed = bool(nodes) and all(tf.as_dtype(_sees(node)) == tf.float16 for node in nodes)
    print("self-test     %s" % ("passed: a training step ran its matrix products in float16" if passed else "FAILED"))
    sys.stdout.flush()
    return passed


def _sees(node):
    """The dtype number that readers of an executed node see; on a CPU the node may run in float32 on rounded values."""
    from npu_shim.rewriter.graph.emulation import ROUNDED

    return node.attr[ROUNDED if ROUNDED in node.attr else "T"].type
