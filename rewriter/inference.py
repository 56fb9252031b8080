"""Works out what can be told of tensors without running, by rules for op types, each answer when first asked for."""

from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, Union

from .graph_view import Node, Port

Symbol = Tuple[Any, ...]
Number = Union[int, float, Symbol]
Answer = Optional[Tuple[Any, ...]]  # a shape, the value of a vector, a range; None for what is not known
Question = Tuple[str, Port]  # one of a graph's tables, and an output
Rule = Callable[["Asker"], Answer]


class Inference:
    """Answers questions about the outputs of a graph, by one table of rules (op type -> rule) for each question."""

    def __init__(
        self, nodes: Sequence[Node], protos: Any, fed: FrozenSet[Port], tables: Mapping[str, Mapping[str, Rule]]
    ) -> None:
        """Keeps the nodes and their tf.NodeDef messages, in the same order; of what is fed nothing is known."""
        self.nodes, self._protos, self._tables = nodes, protos, tables
        placeholders = ("Placeholder", "PlaceholderWithDefault")
        given = [port for port in fed if nodes[port.node].op not in placeholders]
        self._known: Dict[Question, Answer] = {(what, port): None for what in tables for port in given}

    def ask(self, what: str, port: Port) -> Answer:
        """Answers a question by answering those that it depends on first: a stack, since graphs are deep."""
        stack = [(what, port)]
        while stack:
            question = stack[-1]
            if question in self._known:
                stack.pop()
                continue
            missing: List[Question] = []
            answer = self._answer(question, missing)
            if missing:
                self._known.update((q, None) for q in missing if q in stack)  # a loop: not known
                stack.extend(q for q in missing if q not in self._known)
            else:
                self._known[question] = answer
        return self._known[what, port]

    def _answer(self, question: Question, missing: List[Question]) -> Answer:
        what, port = question
        node = self.nodes[port.node]
        rule = self._tables[what].get(node.op)
        if rule is None:
            return None
        try:
            return rule(Asker(self._known, missing, node, self._protos[port.node], port))
        except (Unknown, ArithmeticError, LookupError, ValueError):  # or a graph that TensorFlow would refuse
            return None


class Unknown(Exception):
    """A rule needs what is not known."""


class Asker:
    """What a rule sees: a node, and what is known of its inputs; asking for what is not worked out yet notes it."""

    def __init__(
        self, known: Mapping[Question, Answer], missing: List[Question], node: Node, proto: Any, port: Port
    ) -> None:
        self._known, self._missing, self._node = known, missing, node
        self.attr, self.port, self.inputs = proto.attr, port, len(node.inputs)

    def shape(self, number: int) -> Tuple[Any, ...]:
        """The shape of an input: numbers and symbols."""
        return self.get("shape", number)

    def value(self, number: int) -> Tuple[Any, ...]:
        """The value of an input that is an integer vector or scalar: numbers and symbols."""
        return self.get("value", number)

    def integers(self, number: int) -> List[int]:
        """The value of an input, all of it numbers."""
        found = self.value(number)
        if not all(isinstance(dim, int) for dim in found):
            raise Unknown
        return list(found)

    def element(self, number: int) -> Number:
        """A scalar input; one that is not known is a symbol by its name."""
        found = self.find("value", number)
        return found[0] if found is not None and len(found) == 1 else ("element", *self._node.inputs[number])

    def symbol(self, axis: int) -> Symbol:
        """A dimension of this output that is only known by its name."""
        return ("dim", self.port.node, self.port.port, axis)

    def same(self, one: int, other: int) -> bool:
        """Whether two inputs are the same tensor."""
        return self._node.inputs[one] == self._node.inputs[other]

    def get(self, what: str, number: int) -> Tuple[Any, ...]:
        """An answer about an input, which must be known."""
        found = self.find(what, number)
        if found is None:
            raise Unknown
        return found

    def find(self, what: str, number: int) -> Answer:
        """An answer about an input, or None."""
        question = (what, self._node.inputs[number])
        if question not in self._known:
            self._missing.append(question)
            raise Unknown
        return self._known[question]
