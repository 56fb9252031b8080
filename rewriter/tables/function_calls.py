"""The ops that call functions of the library, how, and by which attributes."""

from __future__ import annotations

CALL, BRANCH, LOOP = "call", "branch", "loop"
# op -> its kind, and the attributes that name its functions; a function's own name is an op of kind CALL
KINDS = {
    "PartitionedCall": (CALL, ("f",)),
    "StatefulPartitionedCall": (CALL, ("f",)),
    "If": (BRANCH, ("else_branch", "then_branch")),  # in the order of a Switch's outputs
    "StatelessIf": (BRANCH, ("else_branch", "then_branch")),
    "Case": (BRANCH, ("branches",)),
    "StatelessCase": (BRANCH, ("branches",)),
    "While": (LOOP, ("cond", "body")),
    "StatelessWhile": (LOOP, ("cond", "body")),
}
