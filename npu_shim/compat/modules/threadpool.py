"""tensorflow.python.data.experimental.ops.threadpool: a dataset's own threads, by tf.data's options."""

from __future__ import annotations

from typing import Any


class PrivateThreadPool:
    """How many threads a dataset is to have of its own.

    Args:
        num_threads: int, the threads that run its functions.
        display_name: optional str, unused here: TensorFlow 2 gives the threads their names.
        max_intra_op_parallelism: int, threads within one op.

    Raises:
        ValueError: there is less than one thread.
    """

    def __init__(self, num_threads: int, display_name: str | None = None, max_intra_op_parallelism: int = 1) -> None:
        if num_threads < 1:
            raise ValueError("npu_shim: PrivateThreadPool: num_threads is %s, expected 1 or more" % num_threads)
        self.num_threads = num_threads
        self.display_name = display_name
        self.max_intra_op_parallelism = max_intra_op_parallelism


def override_threadpool(dataset: Any, thread_pool: Any) -> Any:
    """Returns the dataset, run by the threads of a PrivateThreadPool; its elements and their order stay."""
    from tensorflow.compat.v1 import data

    options = data.Options()
    options.threading.private_threadpool_size = thread_pool.num_threads
    options.threading.max_intra_op_parallelism = thread_pool.max_intra_op_parallelism
    return dataset.with_options(options)
