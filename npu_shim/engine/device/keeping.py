"""Where the state before a step is kept until the step is done, so that one that fails or dies leaves it.

A step on a CPU writes a small state beside the old one, and a worker copies it into shared memory. A large state takes
the memory of the old one, as on accelerators: to update a few rows of an embedding table of 128 MB takes 3 ms so. It
took 150 beside the old table, and 250 in a worker.
"""

SMALL = 4 << 20  # bytes, which a CPU copies in about a millisecond


def is_cheap(platform: str, size: int) -> bool:
    """Whether to keep a state of this size, in bytes, costs next to nothing on a platform ("cpu", "gpu", ...)."""
    return platform == "cpu" and size <= SMALL
