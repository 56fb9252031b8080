"""What is known of a graph before it runs: each question answered in one place, once until the graph changes."""
