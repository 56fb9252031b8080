"""Commands that take a graph: what a precision mode, the passes or a card make of it."""

HELP = "a graph: .pb, .pbtxt or .meta, or with .gz; a SavedModel; or a checkpoint with its .meta"  # of the argument
