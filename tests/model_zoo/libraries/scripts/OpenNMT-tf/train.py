"""A tiny Transformer of OpenNMT-tf 1 on made-up sentences: trained, evaluated, and used to translate."""

import numpy as np
import opennmt as onmt
import tensorflow as tf

random = np.random.RandomState(0)
for language in ("source", "target"):
    with open(language + ".vocab", "w") as f:
        f.write("\n".join(["<blank>", "<s>", "</s>"] + ["w%d" % n for n in range(20)]) + "\n")
lines = [" ".join("w%d" % n for n in random.randint(0, 20, random.randint(3, 8))) for _ in range(64)]
for language in ("source", "target"):
    with open(language + ".txt", "w") as f:
        f.write("\n".join(lines) + "\n")


def embedded(key):
    return onmt.inputters.WordEmbedder(vocabulary_file_key=key, embedding_size=32)


model = onmt.models.Transformer(
    embedded("source"), embedded("target"), num_layers=1, num_units=32, num_heads=2, ffn_inner_dim=64,
    dropout=0.0, attention_dropout=0.0, relu_dropout=0.0,
)  # fmt: skip
config = {
    "model_dir": "run",
    "data": {
        "source": "source.vocab", "target": "target.vocab", "train_features_file": "source.txt",
        "train_labels_file": "target.txt", "eval_features_file": "source.txt", "eval_labels_file": "target.txt",
    },
    "params": {"optimizer": "AdamOptimizer", "learning_rate": 0.002, "beam_width": 2, "maximum_iterations": 10},
    "train": {"batch_size": 16, "train_steps": 8, "save_summary_steps": 4, "sample_buffer_size": 64},
    "infer": {"batch_size": 16},
    "score": {"batch_size": 16},
}  # fmt: skip
tf.gfile.MakeDirs("run")
runner = onmt.Runner(model, config, seed=1)
runner.train()
runner.infer("source.txt", predictions_file="translated.txt", checkpoint_path=tf.train.latest_checkpoint("run"))
with open("translated.txt") as f:
    assert len(f.readlines()) == 64
