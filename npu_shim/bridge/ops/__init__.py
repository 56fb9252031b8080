"""What the faces of the bridge call: ops, optimizer steps and device calls as plain TensorFlow."""
