"""A training step of TensorFlow 1 as a JAX function: a graph, interpreted under `jax.jit`. No TensorFlow.

    Module --packing--> bytes --unpacking--> Program --interpreter--> step(state, feeds) -> (state, fetches)

`packing` stands where TensorFlow is, all else where JAX is: the graph travels, not HLO. docs/step.md says what values
are, how a rule is written, and which ops have none yet. Nothing here is imported by TensorFlow's side but `packing`.
"""
