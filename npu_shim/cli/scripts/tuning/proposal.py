"""From nodes to keep in float32 to the files that say so: a mixlist for whole op types, customize_dtypes for others."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from npu_shim.options import precision
from npu_shim.options.ops import customize, mixlist
from npu_shim.options.table import MIXED
from npu_shim.rewriter.tables.op_table import OpTable

COLUMNS = ("name", "op", "low", "operations", "custom")  # of a page's nodes


class Node(NamedTuple):
    """A node of a training graph, as its page has it.

    Attributes:
        name: its own.
        op: its type.
        low: whether it runs in low precision.
        operations: 0 where they are not known.
        line: of customize_dtypes, which keeps it in float32.
    """

    name: str
    op: str
    low: bool
    operations: int
    line: str


class Share(NamedTuple):
    """How many matrix and convolution ops are low: (low, all) of nodes, and of operations; (0, 0) if unknown."""

    nodes: tuple[int, int]
    operations: tuple[int, int]

    @property
    def low(self) -> float:
        """The low share of the operations, of the nodes where operations are not known."""
        low, count = self.operations if self.operations[1] else self.nodes
        return low / count if count else 1.0


@dataclass(frozen=True)
class Proposal:
    """The texts of the two files; "" for one that is not needed."""

    mixlist: str = ""
    customized: str = ""

    def written(self, out: str) -> dict[str, str]:
        """Returns option -> path of each file that is needed, for an output named `out`."""
        paths = {mixlist.OPTION: out if self.mixlist else "", customize.OPTION: beside(out) if self.customized else ""}
        return {option: path for option, path in paths.items() if path}

    def texts(self, out: str) -> dict[str, str]:
        """Returns path -> text of each file that is needed."""
        return {path: self.mixlist if path == out else self.customized for path in self.written(out).values()}


def beside(out: str) -> str:
    """The path of the customize_dtypes file that goes with a mixlist's."""
    return os.path.splitext(out)[0] + ".customize_dtypes.txt"


def nodes(pages: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Returns the nodes of the training graphs among pages, see `rewriter.page.model`; each name once."""
    nodes_by_name: dict[str, Node] = {}
    for page in pages:
        if not _trains(page):
            continue
        columns = page["nodes"]
        for name, op, low, operations, line in zip(*(columns[key] for key in COLUMNS)):
            nodes_by_name.setdefault(name, Node(name, page["words"][op], bool(low), operations, line))
    return list(nodes_by_name.values())


def _trains(page: Mapping[str, Any]) -> bool:
    """Whether a page's graph trains; where an optimizer of the script's own assigns, only its gradients tell."""
    gradients = any("gradients" in name.split("/") for name in page["nodes"]["name"])
    return gradients or page["title"].startswith("training")


def table_of(values: Mapping[str, Any]) -> OpTable:
    """Returns the op table of a session's options."""
    table: OpTable = precision.resolve(values).table
    return table


def share(page_nodes: Sequence[Node], table: OpTable) -> Share:
    """Returns how much of the matrix and convolution ops of a training graph is low."""
    products = [node for node in page_nodes if node.op in table.entries and table.entries[node.op].cube]
    low = [node for node in products if node.low]
    return Share((len(low), len(products)), (sum(n.operations for n in low), sum(n.operations for n in products)))


def of(lines: Mapping[str, str], page_nodes: Sequence[Node], values: Mapping[str, Any]) -> Proposal:
    """Returns the files that keep nodes in float32.

    An op type goes to the black list where the nodes are all of its nodes that would be low, and it is no matrix or
    convolution op. Where the script has a mixlist of its own, that stays, and all nodes go to customize_dtypes.

    Args:
        lines: name of each node -> its line of customize_dtypes.
        page_nodes: the nodes of the training graphs in the script's own mode.
        values: the session's options.
    """
    types = _whole_types(lines, page_nodes, values)
    listed = {name for node in page_nodes if node.op in types for name in [node.name]}
    single = [line for name, line in lines.items() if name not in listed]
    own = _own_lines(values.get(customize.OPTION), lines) if single else []
    names = sorted({types[op] for op in types})
    black = {"black-list": {"to-add": names}}
    text = "\n".join([*single, *own]) + "\n"
    return Proposal(json.dumps(black, indent=2) + "\n" if names else "", text if single else "")


def _whole_types(lines: Mapping[str, str], page_nodes: Sequence[Node], values: Mapping[str, Any]) -> dict[str, str]:
    """TensorFlow op type -> Ascend's name, of the types that are kept as a whole."""
    mixed = any(values.get(option) in modes for option, modes in MIXED.items())
    if not mixed or values.get(mixlist.OPTION):
        return {}
    table = table_of(values)
    low: dict[str, list[str]] = {}
    for node in page_nodes:
        if node.low and node.op in table.entries:
            low.setdefault(table.entries[node.op].name, []).append(node.name)
    whole = {name for name, all_of in low.items() if set(all_of) <= set(lines)}
    whole = {name for name in whole if not any(table.entries[op].cube for op in table.ops(name))}
    return {op: name for name in whole for op in table.ops(name)}


def _own_lines(path: str | None, lines: Mapping[str, str]) -> list[str]:
    """The lines of the script's own file, but those for the same nodes: the first line of a node would count."""
    if not path:
        return []
    with open(path, encoding="utf-8-sig") as f:
        own = [line.strip() for line in f]
    return [line for line in own if line and not line.startswith("#") and line.partition("::")[0].strip() not in lines]
