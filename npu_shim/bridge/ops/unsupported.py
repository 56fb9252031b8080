"""The vendor's names that have no equivalent off the NPU: they import, and say what to use instead when called."""

from __future__ import annotations

from typing import Any, Callable, Iterable

DEEPMD = "use the CPU and CUDA kernels of DeePMD-kit"

# name -> what to use instead
ADVICE = {
    "outfeed_dequeue_op": "fetch the tensors in session.run, or use NPUOutputTensorHook",
    "outfeed_enqueue_op": "fetch the tensors in session.run, or use NPUOutputTensorHook",
    "stop_outfeed_dequeue_op": "fetch the tensors in session.run, or use NPUOutputTensorHook",
    "npu_onnx_graph_op": "convert the ONNX model to TensorFlow and build its graph",
    "nonzerowithvalue": "use npu_aicore_ops.nonzero and tf.gather_nd",
    "non_zero_with_value_shape": "use npu_aicore_ops.nonzero and tf.gather_nd",
    "prod_env_mat_a": DEEPMD,
    "prodforcesea": DEEPMD,
    "prodvirialsea": DEEPMD,
    "tabulatefusion": DEEPMD,
    "tabulatefusiongrad": DEEPMD,
    "tabulatefusionsea": DEEPMD,
    "tabulatefusionseagrad": DEEPMD,
    "send": "use hccl_ops.broadcast or all_to_all_v, which every rank of the group runs",
    "receive": "use hccl_ops.broadcast or all_to_all_v, which every rank of the group runs",
    "remote_read": "keep the table in a variable and use tf.gather",
    "remote_ref_read": "keep the table in a variable and use tf.gather",
    "remote_write": "keep the table in a variable and use tf.scatter_update",
    "remote_scatter_write": "keep the table in a variable and use tf.scatter_update",
    "gather_all_to_all_v": "use tf.gather and hccl_ops.all_to_all_v",
    "embeddingrankid": "keep the table in a variable and use tf.nn.embedding_lookup",
    "embedding_local_index": "keep the table in a variable and use tf.nn.embedding_lookup",
    "init_rdma_pool": "keep the table in a variable and use tf.gather",
    "rdma_remote_register": "keep the table in a variable and use tf.gather",
    "rdma_remote_init": "keep the table in a variable and use tf.gather",
    "get_var_addr_and_size": "keep the table in a variable and use tf.gather",
    "malloc_shared_memory": "keep the table in a variable and use tf.gather",
    "batch_enqueue": "use tf.data's batch",
    "dequeue": "use tf.data",
    "ocr_recognition_pre_handle": "use tf.image",
    "ocr_detection_pre_handle": "use tf.image",
    "ocr_identify_pre_handle": "use tf.image",
    "ocr_detection_post_handle": "use tf.image",
    "ocr_find_contours": "use OpenCV in a tf.py_func",
    "batch_dilate_polys": "use OpenCV in a tf.py_func",
    "resize_and_clip_polys": "use tf.clip_by_value",
    "lru_cache_v2": "keep the whole table in a variable and use tf.gather",
    "LruCache": "keep the whole table in a variable and use tf.nn.embedding_lookup",
    "EmbeddingService": "keep the tables in variables and use tf.nn.embedding_lookup",
    "ESWorker": "keep the tables in variables and use tf.nn.embedding_lookup",
    "es_initializer": "use tf.random_uniform_initializer or another of TensorFlow's",
    "EmbeddingAdamOptimizer": "use tf.train.AdamOptimizer",
    "EmbeddingAdagradOptimizer": "use tf.train.AdagradOptimizer",
    "EmbeddingAdamWOptimizer": "use tf.train.AdamOptimizer and decay the weights",
    "AdamOptimizer": "use tf.train.AdamOptimizer",
    "AdagradOptimizer": "use tf.train.AdagradOptimizer",
    "AdamWOptimizer": "use tf.train.AdamOptimizer and decay the weights",
    "NpuEmbeddingResource": "keep the tables in variables and use tf.nn.embedding_lookup",
    "BaseTableMapPolicy": "keep each table in a variable of its own",
    "AutoMergeTableMapPolicy": "keep each table in a variable of its own",
    "NoneTableMapPolicy": "keep each table in a variable of its own",
    "NPULogOutfeedSessionHook": "use NPUOutputTensorHook or tf.train.LoggingTensorHook",
    "NPUInfeedOutfeedSessionHook": "use NPUEstimatorSpec(host_call=...)",
    "path_on_tf": "leave the call out",
}


def without_equivalent(name: str) -> Callable[..., Any]:
    """Returns a function of any arguments that raises NotImplementedError with the advice for `name`."""

    def unsupported(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "npu_shim: %s has no equivalent off the NPU: %s" % (name, ADVICE.get(name, "use TensorFlow's own ops"))
        )

    unsupported.__name__ = unsupported.__qualname__ = name
    unsupported.__doc__ = "Raises NotImplementedError: %s." % ADVICE.get(name, "has no equivalent off the NPU")
    return unsupported


def module_getattr(module: str, names: Iterable[str]) -> Callable[[str], Any]:
    """Returns a module's `__getattr__` that finds `names` here, each a function that says so when it is called."""

    def find(name: str) -> Any:
        if name in names:
            return without_equivalent(name)
        raise AttributeError("module '%s' has no attribute '%s'" % (module, name))

    return find
