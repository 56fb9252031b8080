"""tf.contrib.legacy_seq2seq: sequences as lists of tensors."""
