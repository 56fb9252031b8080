"""How a scale moves: the schedule, as ops too, and managers by the names of TensorFlow, npu_bridge and MindSpore."""
