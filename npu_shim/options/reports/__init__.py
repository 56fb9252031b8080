"""What `npu-shim run` reports of a script: pages of its graphs, and which requests its sessions met."""
