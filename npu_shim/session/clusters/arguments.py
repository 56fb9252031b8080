"""The inputs and outputs of a node, one for each tensor, from the definition of its op."""


def of_each(arguments, node):
    """Yields the argument definition of each tensor.

    Args:
        arguments: `input_arg` or `output_arg` of an OpDef.
        node: a NodeDef of that op.
    """
    for argument, _ in _each(arguments, node):
        yield argument


def dtypes(arguments, node):
    """Returns the dtype of each tensor, as a number of the DataType enum; arguments as for `of_each`."""
    return [dtype for _, dtype in _each(arguments, node)]


def data(node):
    """Returns the inputs of a node that are tensors, in their order."""
    return [text for text in node.input if text[0] != "^"]


def _each(arguments, node):
    for argument in arguments:
        if argument.type_list_attr:
            for dtype in node.attr[argument.type_list_attr].list.type:
                yield argument, dtype
            continue
        dtype = node.attr[argument.type_attr].type if argument.type_attr else argument.type
        for _ in range(node.attr[argument.number_attr].i if argument.number_attr else 1):
            yield argument, dtype
