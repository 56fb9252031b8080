"""Sessions are intercepted here: what is patched, the options that are read, the runs that pass through."""
