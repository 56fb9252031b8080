"""npu_bridge.estimator.npu.npu_convert_dropout: its import changes nothing, Keras's own Dropout is right."""
