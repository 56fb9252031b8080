"""Infers static properties of tensors by rules for op types; each property is inferred when first asked for.

A loop variable is first assumed to keep its initial properties, from which those of its next value are inferred. Where
the two differ, the variable's properties are unknown, and everything that depended on them is inferred again.

    Merge(Enter: (batch, 4), NextIteration(Tanh(...)): (batch, 4))           holds
    Merge(Enter: (batch, 4), NextIteration(ConcatV2(..., ...)): (batch, 8))  does not
"""

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

from .. import tf_internals
from ..graph.graph_view import GraphView, Node, Port
from ..graph.links import Links, linked, repeated

Symbol = Tuple[Any, ...]
Number = Union[int, float, Symbol]
Answer = Optional[Tuple[Any, ...]]  # a shape, the value of a vector, a range; None if unknown
Question = Tuple[str, Port]  # the name of a table, and an output
Rule = Callable[["Asker"], Answer]
Tables = Mapping[str, Mapping[str, Rule]]  # property -> op type -> rule
DIM, ELEMENT = "dim", "element"  # kinds of symbols: (kind, node, output, ...)
NOTHING: Tuple[Any, ...] = ("nothing",)  # the content of an empty container: agrees with every answer


class Inference:
    """Answers questions about the outputs of a graph, by one table of rules (op type -> rule) for each property."""

    def __init__(self, view: GraphView, protos: Any, tables: Tables) -> None:
        """Takes a graph and its tf.NodeDef messages, in the order of the view's nodes; fed tensors are unknown."""
        self.nodes, self._view, self._protos, self._tables = view.nodes, view, protos, tables
        placeholders = ("Placeholder", "PlaceholderWithDefault")
        given = [port for port in view.fed if view.nodes[port.node].op not in placeholders]
        self.known: Dict[Question, Answer] = {(what, port): None for what in tables for port in given}
        self._assumed: Dict[Question, Answer] = {}  # of loop variables whose initial properties were refuted
        self._linked: Optional[Links] = None
        self._repeated: Optional[Set[int]] = None

    @property
    def _links(self) -> Links:
        if self._linked is None:  # made when first needed: most graphs are never asked about
            self._linked = linked(self._view)
        return self._linked

    def ask(self, what: str, port: Port) -> Answer:
        """Answers a question, assuming that loop variables keep their initial properties until that is refuted."""
        if self.nodes[port.node].op not in self._tables[what]:
            return self.known.get((what, port), self._assumed.get((what, port)))
        while (what, port) not in self.known:
            answered = self._infer((what, port))
            refuted = self._refuted(answered)
            self._assumed.update(refuted)
            for question in answered if refuted else ():
                del self.known[question]
        return self.known[what, port]

    def _infer(self, question: Question) -> List[Question]:
        """Answers a question, its dependencies, and the questions about the next values of loop variables in them."""
        answered: List[Question] = []
        asked = [question]
        for question in asked:  # grows while iterating
            for done in self._answer_all(question):
                answered.append(done)
                asked += self._next(done)
        return answered

    def _answer_all(self, question: Question) -> Iterator[Question]:
        """Answers a question after its dependencies, with a stack, since graphs are too deep to recurse."""
        stack, on_stack = [question], {question}
        while stack:
            question = stack[-1]
            if question in self.known:
                on_stack.discard(stack.pop())
                continue
            missing: List[Question] = []
            answer = self._answer(question, missing)
            if not missing:
                self.known[question] = answer
                yield question
            elif on_stack.isdisjoint(missing):
                stack += missing
                on_stack.update(missing)
            else:  # it depends on itself: such a graph cannot run
                self.known.update(dict.fromkeys(missing))

    def _next(self, question: Question) -> List[Question]:
        """The questions about the next values of a loop's Merge."""
        what, port = question
        return [(what, back) for back in self._links.back_edges.get(port.node, ()) if port.port == 0]

    def _refuted(self, answered: Sequence[Question]) -> Dict[Question, Answer]:
        """Loop variables whose next value contradicts the assumption, and what to assume instead.

        Initially empty containers come first: what was inferred from their emptiness says little about the others.
        """
        filled: Dict[Question, Answer] = {}
        refuted: Dict[Question, Answer] = {}
        for question in answered:
            answer = self.known[question]
            for following in self._next(question) if answer is not None else ():
                if self.known[following] != answer:
                    (filled if answer == NOTHING else refuted)[question] = self.known[following]
        return filled or dict.fromkeys(refuted)

    def lasts(self, number: Number) -> bool:
        """Whether a number or symbol has a single value in a run, so that a container may carry it out of a loop."""
        if isinstance(number, (int, float)):
            return True
        if self._repeated is None:
            self._repeated = repeated(self.nodes)
        kind, position = number[:2]
        return kind in (DIM, ELEMENT) and position not in self._repeated

    def _answer(self, question: Question, missing: List[Question]) -> Answer:
        what, port = question
        if question in self._assumed:
            return self._assumed[question]
        node = self._links.nodes[port.node]
        rule = self._tables[what].get(node.op)
        if rule is None:
            return None
        try:
            return rule(Asker(self, missing, node, self._protos[port.node], port))
        except (Unknown, ArithmeticError):
            return None


class Unknown(Exception):
    """A rule needs a property that is unknown, or that no valid graph has."""


def at(entries: Sequence[Any], index: int) -> Any:
    """One entry of an answer, by a Python index; raises Unknown if out of range, as in a graph TensorFlow rejects."""
    if not -len(entries) <= index < len(entries):
        raise Unknown
    return entries[index]


class Attributes:
    """The attributes of a NodeDef, or the op's defaults; reading a missing key of a protobuf map would insert it."""

    def __init__(self, proto: Any) -> None:
        self._proto = proto

    def __getitem__(self, name: str) -> Any:
        given = self._proto.attr
        return given[name] if name in given else tf_internals.default_attr(self._proto.op, name)


class Asker:
    """A rule's view of a node and its inputs' properties; asking for an unresolved property records a dependency."""

    def __init__(self, inference: Inference, missing: List[Question], node: Node, proto: Any, port: Port) -> None:
        self._inference, self._missing, self._node = inference, missing, node
        self.attr, self.port, self.inputs = Attributes(proto), port, len(node.inputs)

    def shape(self, number: int) -> Tuple[Any, ...]:
        """The shape of an input: numbers and symbols."""
        return self.get("shape", number)

    def value(self, number: int) -> Tuple[Any, ...]:
        """The value of an input that is an integer vector or scalar: numbers and symbols."""
        return self.get("value", number)

    def integers(self, number: int) -> List[int]:
        """The value of an input that consists of numbers only."""
        dims = self.value(number)
        if not all(isinstance(dim, int) for dim in dims):
            raise Unknown
        return list(dims)

    def scalar(self, number: int) -> int:
        """The value of an input that is a single integer."""
        numbers = self.integers(number)
        if len(numbers) != 1:
            raise Unknown
        return numbers[0]

    def element(self, number: int) -> Number:
        """The value of a scalar input, or a symbol if unknown."""
        elements = self.find("value", number)
        return elements[0] if elements is not None and len(elements) == 1 else (ELEMENT, *self._node.inputs[number])

    def symbol(self, axis: int) -> Symbol:
        """A symbol for an unknown dimension of this output."""
        return (DIM, self.port.node, self.port.port, axis)

    def same(self, one: int, other: int) -> bool:
        """Whether two inputs are the same tensor."""
        return self._node.inputs[one] == self._node.inputs[other]

    @property
    def further(self) -> Sequence[int]:
        """Numbers of the inputs after the op's own: the writers of the container that it reads."""
        return range(len(self._node.layout.inputs), self.inputs)

    def common(self, what: str, numbers: Sequence[int]) -> Tuple[Any, ...]:
        """The answer that several inputs share; Unknown if they differ."""
        answers = {self.get(what, number) for number in numbers}
        if len(answers) > 1:
            answers.discard(NOTHING)
        if len(answers) != 1:
            raise Unknown
        return answers.pop()

    def lasting(self, answer: Tuple[Any, ...]) -> Tuple[Any, ...]:
        """An answer that leaves its iteration: its symbols must have a single value in the whole run."""
        if answer != NOTHING and not all(map(self._inference.lasts, answer)):
            raise Unknown
        return answer

    def get(self, what: str, number: int) -> Tuple[Any, ...]:
        """An answer about an input, which must be known."""
        answer = self.find(what, number)
        if answer is None:
            raise Unknown
        return answer

    def find(self, what: str, number: int) -> Answer:
        """An answer about an input, or None."""
        question = (what, self._node.inputs[number])
        known = self._inference.known
        if question not in known:
            self._missing.append(question)
            raise Unknown
        return known[question]
