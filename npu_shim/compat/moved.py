"""Names that TensorFlow has moved out of its own modules since 1.15, for scripts and tf-slim, which look there.

All of them are public: the modules below tensorflow.python were compared, name by name, between 1.15.5, 2.15.1 and
2.21.0.
"""

import importlib
import sys

from . import missing, names

_CONTROL_FLOW = {name: "tf." + name for name in ("Assert", "case", "cond", "switch_case", "while_loop")}
_STACKS = {"stack": "tf.stack", "unstack": "tf.unstack"}
_BATCH_NORM = {
    **dict.fromkeys(("BatchNorm", "BatchNormalization"), "tf.layers.BatchNormalization"),
    **dict.fromkeys(("batch_norm", "batch_normalization"), "tf.layers.batch_normalization"),
}
# module below tensorflow.python -> name -> where it is
NAMES = {
    "framework.graph_util": {"convert_variables_to_constants": "tf.graph_util.convert_variables_to_constants"},
    "framework.ops": {
        "IndexedSlices": "tf.IndexedSlices",
        "Tensor": "tf.Tensor",
        "convert_to_tensor_or_indexed_slices": "tf.convert_to_tensor_or_indexed_slices",
        "register_tensor_conversion_function": "tf.register_tensor_conversion_function",
    },
    "layers.layers": {**_BATCH_NORM, "InputSpec": "tf.layers.InputSpec"},
    "layers.normalization": _BATCH_NORM,
    "ops.array_ops": _STACKS,
    "ops.control_flow_ops": _CONTROL_FLOW,
    "ops.math_ops": {"bessel_i0e": "tf.math.bessel_i0e", "bessel_i1e": "tf.math.bessel_i1e"},
    "ops.nn": {
        name: "tf.nn." + name
        for name in ("bidirectional_dynamic_rnn", "dynamic_rnn", "raw_rnn", "static_rnn", "static_state_saving_rnn")
    },
    "ops.random_ops": {"random_crop": "tf.random_crop"},
    "ops.standard_ops": {
        **_STACKS,
        "VariableV1": "tf.Variable",
        "is_variable_initialized": "tf.is_variable_initialized",
        "random_crop": "tf.random_crop",
    },
    "ops.variable_scope": {
        "variable": "tf.Variable",
        "disable_resource_variables": "tf.disable_resource_variables",
        "enable_resource_variables": "tf.enable_resource_variables",
        "resource_variables_enabled": "tf.resource_variables_enabled",
    },
    "ops.variables": {"VariableV1": "tf.Variable", "is_variable_initialized": "tf.is_variable_initialized"},
}
MODULES = {"training.training_ops": "tensorflow.python.ops.gen_training_ops"}
_INNER = "tensorflow.python."


def install():
    """Makes TensorFlow 2's modules answer for these names as well; TensorFlow has been imported."""
    sys.meta_path.append(missing.Finder({_INNER + module: target for module, target in MODULES.items()}))
    for module, rows in NAMES.items():
        missing.answer(importlib.import_module(_INNER + module), rows, load=names.load)
