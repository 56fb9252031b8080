"""The engine's device in a worker: a process on an interpreter that has JAX, where TensorFlow's has none.

    remote (our side) -- channel: JSON and bytes over a socket pair --> serving (the worker's side) -> device.InProcess
                      -- memory: arrays in shared memory -------------> kept: two copies of each variable

`starting` starts the worker, one for each process, and `serving.main` is what it runs. There is no network port, no
file and nothing pickled. No TensorFlow.
"""
