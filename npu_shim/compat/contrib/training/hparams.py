"""tf.contrib.training.HParams: hyperparameters with types (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

import json
import numbers
import re
from typing import Any, Mapping

# one assignment: a name, perhaps an index, and a value up to the comma or a list in brackets
ASSIGNMENT = re.compile(
    r"(?P<name>[a-zA-Z][\w.]*)(?:\[\s*(?P<index>\d+)\s*\])?\s*=\s*(?:(?P<value>[^,\[]*)|\[(?P<list>[^\]]*)\])(?:$|,\s*)"
)


class HParams:
    """Hyperparameters as attributes; each keeps the type of its first value.

    Args:
        hparam_def: an HParamDef (see `to_proto`), or None.
        model_structure: an object that is stored.
        **kwargs: the hyperparameters.

    Raises:
        AssertionError: hparam_def is something else.
    """

    _HAS_DYNAMIC_ATTRIBUTES = True  # for type checkers

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **kwargs: Any) -> None:
        self._hparam_types: dict[str, tuple[type, bool]] = {}
        self._model_structure = model_structure
        if hparam_def is not None:
            from npu_shim.compat.contrib.training import hparam_proto

            if not isinstance(hparam_def, hparam_proto.HParamDef):
                raise AssertionError("hparam_def must be an HParamDef, got %r" % (hparam_def,))
            kwargs = hparam_proto.read(hparam_def)
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a hyperparameter.

        Raises:
            ValueError: the name is taken, or the value is an empty list.
        """
        if getattr(self, name, None) is not None:
            raise ValueError("Hyperparameter name is reserved: %s" % name)
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise ValueError("Multi-valued hyperparameters cannot be empty: %s" % name)
        self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Changes a hyperparameter; an int may become a float, everything else must have the right type.

        Raises:
            KeyError: there is no such name.
            ValueError: the value does not fit the type.
        """
        kind, is_list = self._hparam_types[name]
        if isinstance(value, list) and not is_list:
            raise ValueError("Must not pass a list for single-valued parameter: %s" % name)
        if is_list and not isinstance(value, list):
            raise ValueError("Must pass a list for multi-valued parameter: %s." % name)
        setattr(self, name, [_cast(name, kind, v) for v in value] if is_list else _cast(name, kind, value))

    def del_hparam(self, name: str) -> None:
        """Removes a hyperparameter if it exists."""
        if hasattr(self, name):
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values: str) -> HParams:
        """Sets from text such as "batch=32,layers=[1,2],name=a"; returns self.

        Raises:
            ValueError: a name is unknown, given twice, or its value does not fit.
        """
        return self.override_from_dict(parse_values(values, {n: kind for n, (kind, _) in self._hparam_types.items()}))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Sets from a dict; returns self."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    set_from_map = override_from_dict

    def set_model_structure(self, model_structure: Any) -> None:
        """Stores an object."""
        self._model_structure = model_structure

    def get_model_structure(self) -> Any:
        """Returns the stored object."""
        return self._model_structure

    def to_json(self, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        """Returns the values as JSON text; the arguments are those of json.dumps."""
        return json.dumps(self.values(), indent=indent, separators=separators, sort_keys=sort_keys)

    def to_proto(self, export_scope: Any = None) -> Any:
        """The values as an HParamDef, a proto; ValueError for a type that it cannot hold."""
        from npu_shim.compat.contrib.training import hparam_proto

        return hparam_proto.written(self.values(), {name: kind for name, (kind, _) in self._hparam_types.items()})

    @staticmethod
    def from_proto(hparam_def: Any, import_scope: Any = None) -> HParams:
        """The hyperparameters of an HParamDef."""
        return HParams(hparam_def=hparam_def)

    def parse_json(self, values_json: str) -> HParams:
        """Sets from JSON text; returns self."""
        return self.override_from_dict(json.loads(values_json))

    def values(self) -> dict[str, Any]:
        """Returns a dict of all values."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a value, or `default`, which must fit the type of an existing one.

        Raises:
            ValueError: `default` does not fit.
        """
        if key not in self._hparam_types:
            return default
        kind, is_list = self._hparam_types[key]
        if default is not None:
            what = "list<%s>" % kind if is_list else str(kind)
            problem = "Hparam '%s' of type '%s' is incompatible with default=%s" % (key, what, default)
            if is_list != isinstance(default, list):
                raise ValueError(problem)
            try:
                for value in default if is_list else [default]:
                    _cast(key, kind, value)
            except ValueError as reason:
                raise ValueError("%s. %s" % (problem, reason)) from reason
        return getattr(self, key)

    def __contains__(self, key: str) -> bool:
        return key in self._hparam_types

    def __str__(self) -> str:
        return ",".join("%s=%s" % item for item in self.values().items())

    def __repr__(self) -> str:
        return "%s(%s)" % (type(self).__name__, sorted(self.values().items()))


def _cast(name: str, kind: type, value: Any) -> Any:
    """Converts a value to `kind`; only the type of a number may change."""
    if type(value) is kind or kind is type(None):
        return value
    text, truth = (str, bytes), bool
    fits = (
        not (issubclass(kind, text) and not isinstance(value, text))
        and issubclass(kind, truth) == isinstance(value, truth)
        and not (issubclass(kind, numbers.Integral) and not isinstance(value, numbers.Integral))
        and not (issubclass(kind, numbers.Number) and not isinstance(value, numbers.Number))
    )
    if not fits:
        raise ValueError("Could not cast hparam '%s' of type '%s' from value %r" % (name, kind, value))
    return kind(value)


def parse_values(values: str, type_map: Mapping[str, type], ignore_unknown: bool = False) -> dict[str, Any]:
    """Reads assignments.

    Args:
        values: str such as "a=1,b=[x,y],c[3]=2".
        type_map: dict name -> type.
        ignore_unknown: whether to skip names that are not in `type_map`.

    Returns:
        dict name -> value, list of values, or dict index -> value.

    Raises:
        ValueError: the text is malformed, or a name is unknown, given twice, or its value does not fit.
    """
    parsed: dict[str, Any] = {}
    position = 0
    while position < len(values):
        match = ASSIGNMENT.match(values, position)
        if match is None:
            raise ValueError("Malformed hyperparameter value: %s" % values[position:])
        position = match.end()
        name = match.group("name")
        if name in type_map:
            _assign(parsed, match, type_map[name], values)
        elif not ignore_unknown:
            raise ValueError("Unknown hyperparameter type for %s" % name)
    return parsed


def _assign(parsed: dict[str, Any], match: Any, kind: type, values: str) -> None:
    name, index, text = match.group("name"), match.group("index"), match.group("value")
    given = match.group("list") if text is None else text
    if text is None and index is not None:
        raise ValueError("Assignment of a list to a list index.")
    read = _truth if kind is bool else kind
    try:
        value = read(text) if text is not None else [read(e) for e in re.split("[ ,]", given) if e]
    except ValueError as reason:
        raise ValueError(
            "Could not parse hparam '%s' of type '%s' with value '%s' in %s" % (name, kind.__name__, given, values)
        ) from reason
    place, key, shown = parsed, name, name
    if index is not None:
        place, key, shown = parsed.setdefault(name, {}), int(index), "%s[%s]" % (name, index)
    if not isinstance(place, dict) or key in place:
        raise ValueError("Multiple assignments to variable '%s' in %s" % (shown, values))
    place[key] = value


def _truth(text: str) -> bool:
    if text in ("true", "True", "false", "False"):
        return text in ("true", "True")
    return bool(int(text))
