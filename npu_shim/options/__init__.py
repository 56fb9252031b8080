"""Options: one table, and one way from an entry of a config to the policy and the lists of a rewrite."""
