"""What is known of the tensors of a graph before it runs: shapes, contents, ranges."""
