"""Several hosts that run one script, which knows of no ranks, as one: who they are, and how they meet at each step."""
