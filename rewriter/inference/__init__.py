"""Static inference of tensor properties: shapes, contents of containers, ranges."""
