"""The NVIDIA cards of this machine, as their driver tells of them, and what JAX and TensorFlow lack for them.

No JAX and no TensorFlow: who asks says what these have.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from typing import Any, NamedTuple, Sequence

# files that exist where an NVIDIA driver is installed, the last one where Windows shares its GPU
FILES = ("/proc/driver/nvidia/version", "/dev/nvidia0", "/dev/dxg")
FIELDS = "driver_version,name,memory.total,memory.used"
CAPABILITY = ",compute_cap"  # which drivers before 510 do not know
SECONDS = 30  # for the driver to answer
MUCH = 0.1  # of a card's memory: who holds more is told of
NO_DRIVER = (
    "no NVIDIA driver is here, and training runs on the CPU: install one; in a container: docker run --gpus all; for "
    "what a card would take: npu-shim cost --target"
)


class Cuda(NamedTuple):
    """What a kind of JAX for CUDA asks for, as JAX's installation guide has it: a driver, and a compute capability."""

    driver: int
    least: tuple[int, int]


KINDS = {"cuda13": Cuda(580, (7, 5)), "cuda12": Cuda(525, (5, 2))}  # of `npu-shim engine install`; the best first
LEAST = min(cuda.least for cuda in KINDS.values())
PLUGINS = {"jax_%s_plugin" % kind: kind for kind in KINDS}


class Card(NamedTuple):
    """A card.

    Attributes:
        name: NVIDIA's.
        total: MiB of its memory, 0 where the driver does not tell: one that shares the processor's, or is divided.
        used: of these, those that programs hold.
        capability: (major, minor), None where the driver does not tell.
    """

    name: str
    total: int
    used: int
    capability: tuple[int, int] | None

    @property
    def text(self) -> str:
        """It in words."""
        free = "%.1f of %.1f GB free" % ((self.total - self.used) / 953.67, self.total / 953.67) if self.total else ""
        said = ", ".join(filter(None, (_sm(self.capability) if self.capability else "", free)))
        return "%s (%s)" % (self.name, said) if said else self.name


class Seen(NamedTuple):
    """What the driver tells.

    Attributes:
        version: its version, "" where it is none or does not tell.
        cards: each a Card.
        trouble: why there are no cards, "" where there are.
    """

    version: str = ""
    cards: Sequence[Card] = ()
    trouble: str = ""


class Jax(NamedTuple):
    """A JAX.

    Attributes:
        kind: a key of KINDS, "" for one without CUDA.
        platform: of its devices, "cpu" or "gpu".
        python: path of its interpreter, "" for TensorFlow's.
    """

    kind: str
    platform: str
    python: str = ""

    @property
    def where(self) -> str:
        """Where it is, in words."""
        return self.python or "beside TensorFlow"


def is_here() -> bool:
    """Whether this machine has an NVIDIA GPU."""
    return any(map(os.path.exists, FILES))


def are_hidden() -> str:
    """What hides cards from programs, NAME=VALUE of the environment; "" where nothing does."""
    words = ((name, os.environ.get(name)) for name in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS"))
    hiding = ["%s=%s" % (name, word) for name, word in words if word in ("", "-1", "cpu")]
    return hiding[0] if hiding else ""


def kind_of_jax() -> str:
    """The kind of this interpreter's JAX, a key of KINDS; "" where it has no CUDA."""
    return next((kind for plugin, kind in PLUGINS.items() if importlib.util.find_spec(plugin)), "")


def seen() -> Seen:
    """Asks the driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        trouble = "a driver is here, and nvidia-smi is not: install it, or mount it into the container"
        return Seen(trouble=trouble if is_here() else NO_DRIVER)
    said = _asked(program, FIELDS + CAPABILITY)
    if "compute_cap" in said:
        said = _asked(program, FIELDS)
    rows = [[word.strip() for word in line.split(",")] for line in said.splitlines()]
    if not rows or not all(len(row) >= 4 and row[0][:1].isdigit() for row in rows):
        first = said.strip().partition("\n")[0].rstrip(".") or "nothing"
        return Seen(trouble="nvidia-smi says: %s: install the driver anew, or restart the machine" % first)
    return Seen(rows[0][0], tuple(_card(row) for row in rows))


def _asked(program: str, fields: str) -> str:
    """What nvidia-smi says of fields, or of why it does not."""
    command = [program, "--query-gpu=" + fields, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "nothing within %d s" % SECONDS
    except OSError as reason:
        return str(reason.strerror)
    return done.stdout.decode(errors="replace")


def _card(row: Sequence[str]) -> Card:
    capability = re.fullmatch(r"(\d+)\.(\d+)", row[4]) if len(row) > 4 else None
    total, used = (int(word) if word.isdigit() else 0 for word in row[2:4])  # [N/A], [Insufficient Permissions]
    return Card(row[1], total, used, (int(capability[1]), int(capability[2])) if capability else None)


def best_kind(told: Seen) -> str:
    """The best of KINDS for a driver and those of its cards that any of them knows, "" where none serves."""
    version = _major(told.version)
    known = [card.capability for card in _known(told) if card.capability]
    fitting = [
        kind for kind, cuda in KINDS.items()
        if (version is None or version >= cuda.driver) and all(one >= cuda.least for one in known)
    ]  # fmt: skip
    return fitting[0] if fitting and (_known(told) or not told.cards) else ""


def why_not_jax(told: Seen, jax: Jax | None) -> str:
    """Says why JAX does not use the cards, and what makes it, "" where it does.

    Args:
        told: what the driver tells, of one card at least.
        jax: the engine's, None where there is none.
    """
    if jax is not None and jax.platform != "cpu":
        return ""
    best, version = best_kind(told), _major(told.version)
    if not best:
        return _why_none(told)
    if jax is None:
        return "the engine has no JAX: npu-shim engine install %s" % best
    install = "%spip install 'jax[%s]'" % (jax.python and jax.python + " -m ", best)
    if not jax.kind:
        return "JAX (%s) has no CUDA: %s" % (jax.where, install)
    need, named = KINDS[jax.kind], jax.kind.replace("cuda", "CUDA ")
    if version is not None and version < need.driver:
        text = "JAX (%s) is for %s, which needs driver %d, and %s is here: %s, or a newer driver"
        return text % (jax.where, named, need.driver, told.version, install)
    old = [card for card in _known(told) if card.capability and card.capability < need.least]
    if old:
        text = "JAX (%s) is for %s, which knows cards from %s on, and %s is %s: %s"
        return text % (jax.where, named, _sm(need.least), old[0].name, _sm(old[0].capability), install)
    if are_hidden():
        return "JAX (%s) sees no card with %s: unset it" % (jax.where, are_hidden())
    others = [card for card in told.cards if card not in _known(told)]
    if others:
        return "%s: name the other cards in CUDA_VISIBLE_DEVICES" % _unknown(others[0])
    python = jax.python or "python"
    text = "JAX (%s) is for %s and sees no card: %s -c \"import jax; jax.devices('cuda')\" says why"
    return text % (jax.where, named, python)


def _known(told: Seen) -> list[Card]:
    """The cards that a kind of JAX knows, or of which the driver tells too little."""
    return [card for card in told.cards if card.capability is None or card.capability >= LEAST]


def _unknown(card: Card) -> str:
    return "no JAX knows %s (%s), but cards from %s on" % (card.name, _sm(card.capability), _sm(LEAST))


def _why_none(told: Seen) -> str:
    """Why there is no JAX for these cards and their driver."""
    oldest = KINDS["cuda12"]
    version = _major(told.version)
    if not _known(told):
        return _unknown(told.cards[0]) + ": there TensorFlow alone can train, in sessions (--engine session)"
    if version is not None and version < oldest.driver:
        text = "driver %s is too old for JAX: update it to %d or later, for CUDA 13 to %d"
        return text % (told.version, oldest.driver, KINDS["cuda13"].driver)
    return "these cards need different kinds of JAX: name those that are to train in CUDA_VISIBLE_DEVICES"


def why_not_tensorflow(told: Seen, version: str, capabilities: Sequence[str] | None) -> str:
    """Says which card TensorFlow was not built for, "" where there is none, or nobody knows.

    Args:
        told: what the driver tells.
        version: TensorFlow's.
        capabilities: those that it was built for, as `tf.sysconfig.get_build_info` gives them: sm_70, compute_80; none
            for a TensorFlow without CUDA, None where it does not tell.
    """
    if capabilities is None or not told.cards:
        return ""
    if not capabilities:
        return "TensorFlow %s has no CUDA, and uses no card" % version
    built = [_numbers(word) for word in capabilities]
    for card in told.cards:
        own = card.capability
        if own and not any(one[0] == own[0] and one <= own for one in built):
            text = "TensorFlow %s was built for %s, and not for %s (%s): " % (
                version, ", ".join(capabilities), card.name, _sm(own)
            )  # fmt: skip
            if card not in _known(told):
                return text + "its kernels do not run there"
            text += "its kernels are compiled at the start, which takes long, or do not run: "
            return text + "train with the engine (--engine pjrt)"
    return ""


def held(told: Seen) -> list[str]:
    """A line for each card of which programs hold much."""
    text = "%s: programs hold %.1f of its %.1f GB (nvidia-smi lists them): end them, or name another card in %s"
    return [
        text % (card.name, card.used / 953.67, card.total / 953.67, "CUDA_VISIBLE_DEVICES")
        for card in told.cards if card.used > MUCH * card.total
    ]  # fmt: skip


def _major(version: str) -> int | None:
    digits = re.match(r"\d+", version)
    return int(digits[0]) if digits else None


def _numbers(word: str) -> tuple[int, int]:
    """(9, 0) of "sm_90", (12, 0) of "compute_120"."""
    digits = "".join(filter(str.isdigit, word))
    return int(digits[:-1] or 0), int(digits[-1:] or 0)


def _sm(capability: Any) -> str:
    return "sm_%d%d" % tuple(capability)
