"""Finds the OptionalFromValue whose value an OptionalGetValue takes out.

The branches of a conditional have its outputs in common: one may be a matrix in one branch and a vector in the
other. A branch of the gradient takes what the branch of the same number has given:

    OptionalGetValue in branch k of the gradient <- argument <- output i of the conditional <- result i of branch k
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from npu_shim.rewriter.graph.arguments import data, output_of
from npu_shim.rewriter.graphdef import functions
from npu_shim.xla.passes.shapes.optionals.views import GRAPH, View, is_variant


class _Site(NamedTuple):
    """A call of a function: the View that it is in, its node, its kind, and the function's number in it."""

    view: str
    node: Any
    kind: str
    number: int


def taken(views: Mapping[str, View]) -> dict[tuple[str, str], str]:
    """Returns (name of a View, name of an OptionalGetValue) -> the tensor that it takes, by its name in the copy."""
    origins, taken_by = Origins(views), {}
    for name, view in views.items():
        for node in view.graph_def.node:
            if node.op == "OptionalGetValue" and not is_variant(view, node.name):
                origin = origins.of(name, node.input[0])
                if origin is not None:
                    taken_by[name, node.name] = views[origin[0]].inlined(origins.value(*origin))
    return taken_by


class Origins:
    """The origins of Optionals in a graph and its functions."""

    def __init__(self, views: Mapping[str, View]) -> None:
        self._views = views
        self._library = dict.fromkeys(name for name in views if name != GRAPH)
        self._nodes = {name: {node.name: node for node in view.graph_def.node} for name, view in views.items()}
        self._sites: dict[str, list[_Site]] = {}
        for name, view in views.items():
            for node in view.graph_def.node:
                kind = functions.kind_of(node, self._library)
                for number, called in enumerate(functions.called(node, self._library)):
                    self._sites.setdefault(called, []).append(_Site(name, node, kind or "", number))

    def of(self, name: str, text: str) -> tuple[str, str] | None:
        """Returns the (name of a View, name of an OptionalFromValue) that an Optional comes from, None if not known.

        Args:
            name: of the View.
            text: the Optional there.
        """
        branches: list[int] = []  # of the conditionals around the place where the Optional is taken, innermost first
        entered: list[str] = []  # functions whose results led into them
        while True:
            source, port = output_of(text)
            node = self._nodes[name][source]
            if node.name in self._views[name].arguments:
                site = self._site(name)
                if site is None:
                    return None
                text = data(site.node)[self._views[name].arguments.index(node.name) + (site.kind == functions.BRANCH)]
                if entered and entered[-1] == name:
                    entered.pop()
                elif site.kind == functions.BRANCH:
                    branches.append(site.number)
                name = site.view
            elif node.op in ("Identity", "OptionalGetValue"):
                text = node.input[0]
            elif node.op == "OptionalFromValue":
                text = node.input[0]
                if not is_variant(self._views[name], text):
                    return name, node.name
            else:
                called = self._called(node, branches)
                if called is None:
                    return None
                name, text = called, self._views[called].results[port]
                entered.append(name)

    def value(self, name: str, node: str) -> str:
        """Returns the tensor that an OptionalFromValue of a View puts in."""
        text: str = self._nodes[name][node].input[0]
        return text

    def _site(self, name: str) -> _Site | None:
        """The only call of a function, None if there are several, or if it is a loop."""
        sites = self._sites[name]
        return sites[0] if len(sites) == 1 and sites[0].kind != functions.LOOP else None

    def _called(self, node: Any, branches: list[int]) -> str | None:
        """The function whose results a node gives to whom `branches` stand for."""
        kind = functions.kind_of(node, self._library)
        names = functions.called(node, self._library)
        if kind == functions.CALL:
            return names[0] if names[0] in self._library else None
        if kind != functions.BRANCH or not branches:
            return None
        number = branches.pop()
        return names[number] if number < len(names) and names[number] in self._library else None
