"""Data of the rewriter: dtypes, precision policies, op lists, kernels that are slow."""
