"""Finds attention in a graph: products, scale, mask, softmax and dropout, and their gradient."""
