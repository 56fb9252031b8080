"""The planner: one decision for each type slot, with its reason, and where the Casts stand."""
