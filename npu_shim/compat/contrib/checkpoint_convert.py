"""tf.contrib.rnn.python.tools.checkpoint_convert: renames variables of RNNs in old checkpoints (1.15.5)."""

from __future__ import annotations

import collections
from typing import Any, Iterator

import tensorflow.compat.v1 as tf

PLAIN = {"weights": "kernel", "biases": "bias"}
# scopes whose "weights" and "biases" became "kernel" and "bias", "" for the scope's own
SCOPES = {
    "basic_rnn_cell": [""],
    "gru_cell": ["", "gates", "candidate"],
    "basic_lstm_cell": [""],
    "lstm_cell": ["", "projection"],
    "output_projection_wrapper": [""],
    "input_projection_wrapper": [""],
    "lstm_block_wrapper": [""],
    "layer_norm_basic_lstm_cell": [""],
    "ugrnn_cell": [""],
    "intersection_rnn_cell": ["", "in_projection"],
    "phased_lstm_cell": ["mask_gates", "new_input", "output_gate"],
    "attention_cell_wrapper": ["", "attn_output_projection", "attention"],
    "attention_decoder": ["", "Attention_0", "AttnOutputProjection"],
}
# what an attention decoder called its parts before there were "weights"
LINEAR = {"Linear/Bias": "bias", "Linear/Matrix": "kernel"}


def _replacements() -> Iterator[tuple[str, str]]:
    for scope, inner in SCOPES.items():
        for part in inner:
            path = scope + "/" + (part and part + "/")
            yield from ((path + old, path + new) for old, new in PLAIN.items())
    yield from (
        ("nas_rnn/" + old, "nas_rnn/" + old.replace("weights", "kernel")) for old in ("weights", "recurrent_weights")
    )
    for part in SCOPES["attention_decoder"]:
        path = "attention_decoder/" + (part and part + "/")
        yield from ((path + old, path + new) for old, new in LINEAR.items())
    yield "attention_decoder/LSTMCell/B", "attention_decoder/lstm_cell/bias"
    yield "attention_decoder/LSTMCell/W_0", "attention_decoder/lstm_cell/kernel"


RNN_NAME_REPLACEMENTS = collections.OrderedDict(_replacements())


def convert_names(
    checkpoint_from_path: str, checkpoint_to_path: str, write_v1_checkpoint: bool = False
) -> tuple[dict[str, Any], dict[str, str]]:
    """Writes a checkpoint again, with the RNN's variables under the names that TensorFlow has had since 1.2.

    Args:
        checkpoint_from_path: str.
        checkpoint_to_path: str.
        write_v1_checkpoint: whether the new one has the format of before 0.12.

    Returns:
        ({new name: variable}, {old name: new name} of what was renamed).
    """
    with tf.Graph().as_default(), tf.Session() as session:
        reader = tf.train.load_checkpoint(checkpoint_from_path)
        # none of these needs a Const: a GraphDef may hold 2 GB only
        values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        renamed = {name: new_name(name) for name in values}
        variables, feeds = {}, {}
        for name, value in values.items():
            initial = tf.placeholder(value.dtype, value.shape)
            variables[renamed[name]] = tf.Variable(initial, name=name)
            feeds[initial] = value
        session.run(tf.global_variables_initializer(), feeds)
        version = tf.train.SaverDef.V1 if write_v1_checkpoint else tf.train.SaverDef.V2
        tf.train.Saver(variables, write_version=version).save(session, checkpoint_to_path)
    tf.logging.info("%s: %d variables, written to %s", checkpoint_from_path, len(variables), checkpoint_to_path)
    return variables, {old: new for old, new in renamed.items() if old != new}


def new_name(name: str) -> str:
    """What a variable is called today: the first row whose old name it contains counts."""
    for old, new in RNN_NAME_REPLACEMENTS.items():
        if old in name:
            return name.replace(old, new)
    return name
