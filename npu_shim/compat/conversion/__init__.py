"""convert_tf2npu: plain TensorFlow 1 scripts with the names of npu_bridge put in."""
