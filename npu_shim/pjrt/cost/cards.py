"""GPUs that steps are compiled for without being there: data files of a card, by name or by path.

    {"name": "NVIDIA H100 80GB HBM3", "source": "...", "peak": {"float32": 67e12, "tf32": 494.7e12, ...},
     "gpu_device_info": {"core_count": 132, "memory_bandwidth": 3352320000000, "device_memory_size": 84929347584, ...}}

`gpu_device_info` has the fields of XLA's GpuDeviceInfoProto (xla/stream_executor/device_description.proto), in bytes,
bytes a second and GHz. `peak` has operations a second of dense products by the units that compute them; "tf32" is what
float32 products take by default, and what a card has no units for is computed in float32. "link" and "network" name
what joins it to the others of a host and to other hosts, see `links`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Mapping

from npu_shim import configs
from npu_shim.pjrt.cost import links
from npu_shim.pjrt.cost.links import Links
from npu_shim.rewriter.errors import ConfigError, nearest

UNITS = ("float64", "float32", "tf32", "bfloat16", "float16")
INFO = "gpu_device_info"
MODEL = "h100.json"  # has every field that a card may have
LINKS = ("link", "network")  # names of `configs/links.json`: to the cards of a host, and of its port to other hosts
OPTIONAL = {*LINKS, *("peak." + units for units in UNITS if units != "float32")}
# what the target says of software: the cuDNN and CUDA that JAX 0.12's plugin comes with
SOFTWARE = 'platform_name: "CUDA"\ndnn_version_info { major: 9 minor: 28 }\nruntime_version { major: 12 minor: 9 }\n'


@dataclass(frozen=True)
class Card:
    """A GPU.

    Attributes:
        key: what `--target` called it.
        name: as JAX names such a device.
        source: of its figures.
        memory: bytes.
        bandwidth: bytes a second.
        peak: one of `UNITS` to operations a second; at least "float32".
        target: XLA's GpuTargetConfigProto as text.
        links: what joins it to others; None where its file does not say.
    """

    key: str
    name: str
    source: str
    memory: int
    bandwidth: float
    peak: Mapping[str, float]
    target: str
    links: Links | None = None

    def units(self, wanted: str) -> str:
        """Returns which of its `UNITS` compute products in those: float32's where it has none of them."""
        return wanted if wanted in self.peak else "float32"


def names() -> list[str]:
    """Returns the names of the cards that come with npu_shim."""
    return sorted(name[: -len(".json")] for name in os.listdir(configs.folder("cards")))


def card(wanted: str) -> Card:
    """Returns a Card by its name ("h100"), or of the file that a path names.

    Raises:
        ConfigError: no card has that name, or the file describes none.
    """
    if wanted.lower() in names():
        return _of_file(wanted.lower(), configs.folder("cards", wanted.lower() + ".json"))
    if not os.path.exists(wanted):
        raise ConfigError(
            "target '%s' is neither a known card (%s) nor a file%s"
            % (wanted, ", ".join(names()), nearest(wanted.lower(), names()))
        )
    return _of_file(os.path.splitext(os.path.basename(wanted))[0], wanted)


def _of_file(key: str, path: str) -> Card:
    try:
        with open(path, encoding="utf-8") as f:
            values = json.load(f)
    except (OSError, ValueError) as reason:
        why = getattr(reason, "strerror", None) or reason
        raise ConfigError("target file '%s' cannot be read: %s%s" % (path, why, _way_out())) from reason
    wrong = _wrong(values, configs.load("cards", MODEL))
    if wrong:
        raise ConfigError("target file '%s': %s%s" % (path, wrong, _way_out()))
    info = values[INFO]
    text = "%s {\n%s}\n%sdevice_description_str: %s\n" % (INFO, _text(info), SOFTWARE, json.dumps(values["name"]))
    return Card(
        key, values["name"], values["source"], info["device_memory_size"], float(info["memory_bandwidth"]),
        {units: float(peak) for units, peak in values["peak"].items()}, text,
        _links(path, values),
    )  # fmt: skip


def _links(path: str, values: Mapping[str, Any]) -> Links | None:
    if not set(LINKS) <= set(values):
        return None
    try:
        return links.of(*(values[name] for name in LINKS))
    except ConfigError as reason:
        raise ConfigError("target file '%s': %s%s" % (path, reason.problems[0], _way_out())) from None


def _way_out() -> str:
    return "; start from a copy of '%s'" % configs.folder("cards", MODEL)


def _wrong(given: Any, model: Any, where: str = "") -> str:
    """What is wrong with a part of a card's description, beside that part of another card's; "" where nothing is."""
    if isinstance(model, dict):
        return _wrong_object(given, model, where)
    if isinstance(model, str):
        return "" if isinstance(given, str) and given else "'%s' is %s, expected a text" % (where, json.dumps(given))
    number = isinstance(given, int if isinstance(model, int) else (int, float)) and not isinstance(given, bool)
    if number and (given > 0 or (given == 0 and where.endswith(".minor"))):
        return ""
    kind = "a whole number" if isinstance(model, int) else "a number"
    return "'%s' is %s, expected %s above 0" % (where, json.dumps(given), kind)


def _wrong_object(given: Any, model: Mapping[str, Any], where: str) -> str:
    if not isinstance(given, dict):
        what = "'%s' is %s" % (where, json.dumps(given)) if where else "it holds %s" % json.dumps(given)
        return "%s, expected an object with %s" % (what, ", ".join(list(model)[:5]))
    inner = where + "." if where else ""
    for key in given:
        if key not in model:
            return "'%s%s' is not known%s" % (inner, key, nearest(key, model))
    for key in model:
        if key not in given and inner + key not in OPTIONAL:
            return "'%s%s' is missing" % (inner, key)
    return next(filter(None, (_wrong(given[key], model[key], inner + key) for key in given)), "")


def _text(values: Mapping[str, Any]) -> str:
    """{"a": 1, "b": {"c": 2}} -> 'a: 1' and 'b { c: 2 }' in lines: a proto as text."""
    lines = (
        "%s { %s }" % (key, " ".join("%s: %s" % pair for pair in value.items())) if isinstance(value, dict)
        else "%s: %s" % (key, value)
        for key, value in values.items()
    )  # fmt: skip
    return "".join("  %s\n" % line for line in lines)
