"""Options that name ops: lists, files of dtypes, scopes, and the kernels and names that these ops have."""
