"""Tensors between ranks: collectives, buckets of gradients, the keys by which collectives meet."""
