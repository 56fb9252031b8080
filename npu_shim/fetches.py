"""What a script fetches by a variable's name: its value, as TensorFlow 1's reference variables give it.

The tensor "global_step:0" of a resource variable is a handle. npu_init turns resource variables on, and scripts fetch
`"loss_scale:0"` or `graph.get_tensor_by_name("w:0")`; sessions put the variable in the place of its handle.
"""

import copy
import weakref

import tensorflow.compat.v1 as tf

_known_handles = weakref.WeakKeyDictionary()  # graph -> (its version, names of handles)


def values_for_handles(graph, fetches):
    """Returns `fetches` with each variable's handle, or its name, replaced by the variable.

    Args:
        graph: tf.Graph of the session.
        fetches: as for Session.run; returned as it is where it has no handle.
    """
    handles = _handles(graph)
    if not any(_is_handle(leaf, handles) for leaf in leaves_of(fetches)):
        return fetches
    known = {}
    for collection in graph.get_all_collection_keys():
        for each in graph.get_collection_ref(collection):
            if hasattr(each, "handle"):
                known.setdefault(each.handle.name, each)
    return _mapped(lambda leaf: known.get(_name(leaf), leaf) if _is_handle(leaf, handles) else leaf, fetches)


def _handles(graph):
    """Names of the variables' handles; looked for again only when the graph has grown, since every run asks."""
    version, names = _known_handles.get(graph, (-1, frozenset()))
    if version != graph.version:
        names = frozenset(op.outputs[0].name for op in graph.get_operations() if op.type == "VarHandleOp")
        _known_handles[graph] = graph.version, names
    return names


def leaves_of(fetches):
    """Returns what is fetched, as a list; tf.nest cannot sort a MonitoredSession's keys, which are hooks and str."""
    if isinstance(fetches, dict):
        fetches = list(fetches.values())
    if not isinstance(fetches, (list, tuple)):
        return [] if fetches is None else [fetches]
    return [leaf for part in fetches for leaf in leaves_of(part)]


def _mapped(change, fetches):
    if isinstance(fetches, dict):
        made = copy.copy(fetches)
        made.update((key, _mapped(change, each)) for key, each in fetches.items())
        return made
    if not isinstance(fetches, (list, tuple)):
        return change(fetches)
    parts = [_mapped(change, each) for each in fetches]
    return type(fetches)(*parts) if hasattr(fetches, "_fields") else type(fetches)(parts)


def _name(leaf):
    return leaf if isinstance(leaf, str) else leaf.name


def _is_handle(leaf, handles):
    return isinstance(leaf, (str, tf.Tensor)) and _name(leaf) in handles
