"""Several workers: the rank table, the cluster, collectives, shards."""
