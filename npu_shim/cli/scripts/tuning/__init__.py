"""How `npu-shim tune` finds the nodes to keep in float32: criteria, trials, state, what is written. No TensorFlow.

It is with the commands, not a package of its own: it starts `npu-shim run` in other processes and reads what these
leave, and nothing that a script imports needs it. What happens inside of a trial is in `npu_shim.session.trial`.
"""
