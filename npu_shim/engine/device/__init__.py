"""Where programs run: on PJRT in this process, or in a worker on an interpreter that has JAX."""
