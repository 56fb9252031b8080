"""Public names below a package: what the recorders of TensorFlow's names and of other libraries' go through."""

import types


def walked(path, package, is_left_out, is_inside):
    """(dotted name, object) of all public names in a package's modules, each module once, modules themselves left out.

    Args:
        path: what the package is called.
        package: the module.
        is_left_out: function of a dotted name.
        is_inside: function of the real name of a module: whether its names count.
    """
    queue, seen = [(path, package)], set()
    while queue:
        path, module = queue.pop(0)
        if id(module) in seen:
            continue
        seen.add(id(module))
        for name in sorted(dir(module)):
            inner = path + "." + name
            if name.startswith("_") or is_left_out(inner):
                continue
            try:
                value = getattr(module, name)
            except (AttributeError, ImportError):
                continue
            if not isinstance(value, types.ModuleType):
                yield inner, value
            elif is_inside(value.__name__):
                queue.append((inner, value))
