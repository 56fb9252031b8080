"""Tensor2Tensor: a problem of our own, reversed digits, a tiny Transformer; data made, trained, evaluated."""

import sys

import tensorflow as tf
from tensor2tensor.bin import t2t_trainer
from tensor2tensor.data_generators import algorithmic
from tensor2tensor.utils import registry


@registry.register_problem
class TinyReverse(algorithmic.AlgorithmicReverseDecimal40):
    @property
    def train_size(self):
        return 200

    @property
    def dev_size(self):
        return 40

    @property
    def num_shards(self):
        return 1


sys.argv = [
    sys.argv[0], "--generate_data", "--problem=tiny_reverse", "--model=transformer", "--data_dir=data",
    "--tmp_dir=tmp", "--output_dir=out", "--hparams_set=transformer_tiny", "--train_steps=6", "--eval_steps=2",
    "--hparams=batch_size=256,hidden_size=32,filter_size=64,num_hidden_layers=1,num_heads=2",
    "--schedule=continuous_train_and_eval", "--local_eval_frequency=6",
]  # fmt: skip
tf.flags.FLAGS(sys.argv)
t2t_trainer.main(None)
