"""What joins two cards: data of `configs/links.json`, and the bytes that a card sends for a collective.

    all-reduce of 800 MB over 8 cards -> 2 * 7/8 * 800 MB = 1.4 GB over each card's link, 3.1 ms at 450 GB/s

That is what a card sends in a ring. Inside of a host it goes over the card's link to the other cards of the host. Of
several hosts, as many rings as a host has cards leave it, each by another card's port to the network, so that a port
carries what a card sends divided by the cards of a host. Latencies are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from npu_shim import configs
from npu_shim.rewriter.errors import ConfigError, nearest

IN_HOST = 8  # cards of one host
# kind of collective -> share of its bytes that a card of a ring sends, given N; of reduce-scatter, of what goes in
RING = {
    "all-reduce": lambda n: 2 * (n - 1) / n, "reduce-scatter": lambda n: n - 1, "all-gather": lambda n: (n - 1) / n,
    "all-to-all": lambda n: (n - 1) / n, "ragged-all-to-all": lambda n: (n - 1) / n, "collective-permute": lambda n: 1,
}  # fmt: skip


@dataclass(frozen=True)
class Link:
    """What joins two cards.

    Attributes:
        name: as `configs/links.json` has it.
        bandwidth: bytes a second, in one direction.
        inside: whether it joins cards of one host, and not hosts.
    """

    name: str
    bandwidth: float
    inside: bool


@dataclass(frozen=True)
class Links:
    """A card's way to the other cards.

    Attributes:
        inside: Link to the cards of its host.
        network: Link of its port to those of other hosts.
    """

    inside: Link
    network: Link

    def seconds(self, sent: float, count: int) -> float:
        """Seconds that a card needs at least to send so many bytes to the others of `count` cards."""
        inside = sent / self.inside.bandwidth
        return inside if count <= IN_HOST else max(inside, sent / IN_HOST / self.network.bandwidth)

    def text(self, count: int) -> str:
        """Their names, of those that `count` cards need."""
        return self.inside.name if count <= IN_HOST else "%s, %s between hosts" % (self.inside.name, self.network.name)


def of(inside: str, network: str) -> Links:
    """Returns the Links of these names; raises ConfigError for names of none."""
    return Links(_named(inside, True, "'link'"), _named(network, False, "'network'"))


def sent(kind: str, bytes_: float, count: int) -> float:
    """Returns the bytes that a card sends for a collective of `count` cards, with a result of so many bytes."""
    share: float = RING[kind](count)
    return bytes_ * share


def topology(count: int) -> str:
    """Returns how so many cards stand, as JAX names topologies: slices x hosts x cards of a host."""
    hosts = count // IN_HOST if count > IN_HOST and count % IN_HOST == 0 else 1
    return "1x%dx%d" % (hosts, count // hosts)


def _named(name: str, inside: bool, where: str) -> Link:
    known: Mapping[str, Any] = configs.load("", "links.json")["links"]
    fitting = [link for link, values in known.items() if values["inside"] == inside]
    if name not in fitting:
        text = "%s is '%s', expected one of %s%s"
        raise ConfigError(text % (where, name, ", ".join(fitting), nearest(name, fitting)))
    return Link(name, float(known[name]["bandwidth"]), inside)
