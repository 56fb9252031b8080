"""What is computed again, why, and what it saves, for people and for files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

from npu_shim.xla.passes.rematerialization.plan import Region
from npu_shim.xla.passes.rematerialization.step import Step

NOTHING = "no value that is kept for a backward pass costs less to compute again"


@dataclass(frozen=True)
class Chain:
    """Nodes that run again in the backward pass.

    Attributes:
        nodes: their names.
        kept: names of the nodes whose results they start from.
        after: name of the node of the backward pass behind which they run.
        saved: bytes less to keep.
        moved: bytes more to move, at most.
    """

    nodes: tuple[str, ...]
    kept: tuple[str, ...]
    after: str
    saved: int
    moved: int


@dataclass(frozen=True)
class Recomputation:
    """What a step computes again.

    Attributes:
        mode: "auto", "off" or "memory".
        chains: tuple of Chain, those that save most first.
        because: why there are none, else "".
    """

    mode: str
    chains: tuple[Chain, ...] = ()
    because: str = ""

    @property
    def saved(self) -> int:
        """Bytes less to keep for the backward pass."""
        return sum(chain.saved for chain in self.chains)

    def counts(self) -> dict[str, Any]:
        """Returns the summary: mode, number of chains and of nodes, bytes."""
        return {
            "mode": self.mode,
            "chains": len(self.chains),
            "nodes": sum(len(chain.nodes) for chain in self.chains),
            "saved_bytes": self.saved,
            "moved_bytes": sum(chain.moved for chain in self.chains),
        }

    def as_text(self) -> str:
        """Returns one line, then one for each chain."""
        if not self.chains:
            return "recompute=%s: nothing is computed again: %s\n" % (self.mode, self.because)
        head = "recompute={mode}: {nodes} nodes in {chains} chains are computed again, {saved} less to keep\n"
        text = head.format(**self.counts(), saved=_megabytes(self.saved))
        for chain in self.chains:
            text += "  %s .. %s (%d nodes) from %s, behind %s: %s less to keep%s\n" % (
                chain.nodes[0], chain.nodes[-1], len(chain.nodes), ", ".join(chain.kept), chain.after,
                _megabytes(chain.saved), ", at most %s more to move" % _megabytes(chain.moved) if chain.moved else "",
            )  # fmt: skip
        return text


def described(step: Step, mode: str, regions: Sequence[Region]) -> Recomputation:
    """Returns the Recomputation of a plan; arguments as for `plan.plan`."""
    chains = tuple(
        Chain(
            tuple(step.nodes[place].name for place in region.copied),
            tuple(dict.fromkeys(step.nodes[place].name for place, _ in region.kept)),
            step.nodes[region.trigger[0]].name,
            region.saved,
            region.moved,
        )
        for region in regions
    )
    return Recomputation(mode, chains, because="" if chains else NOTHING)


def _megabytes(count: int) -> str:
    return "%.4g MB" % (count / 1e6)
