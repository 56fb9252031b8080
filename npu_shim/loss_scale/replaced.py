"""Functions and methods of TensorFlow that are replaced for a while, those of classes that are derived later too."""

from __future__ import annotations

import inspect
import sys
import threading
from typing import Any, Callable

from npu_shim.rewriter.graph.walks import reached

# Keras 2 as TensorFlow 1.15 has it, as a package of its own, and as TensorFlow 2 keeps it beside that
KERAS = (
    "tensorflow.python.keras.optimizer_v2.optimizer_v2",
    "tensorflow_core.python.keras.optimizer_v2.optimizer_v2",
    "keras.src.optimizers.legacy.optimizer_v2",
    "tf_keras.src.optimizers.legacy.optimizer_v2",
)
# their inner optimizer applies elsewhere: in a queue's runner, which cannot reach into a branch
TRANSPARENT = ("SyncReplicasOptimizer",)
APPLY = "apply_gradients"
PAIRS = "grads_and_vars"  # its first argument, where a script passes it by name
WATCH = "__init_subclass__"
# the package keras of TensorFlow 1's time, whose optimizers make the ops of an update themselves
REAL_KERAS, UPDATES = "keras.optimizers", "get_updates"

Make = Callable[[Any], Any]  # from what is replaced to what takes its place


class Replacements:
    """What is replaced at the moment; `restore` takes it all back."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_on = False
        self._replaced: dict[tuple[Any, str], tuple[Any, Any]] = {}  # (owner, name) -> (its own or None, ours)

    def replace(self, owner: Any, name: str, make: Make) -> None:
        """Replaces an attribute of a module or a class, once."""
        with self._lock:
            self._is_on = True
            if (owner, name) not in self._replaced:
                original = vars(owner).get(name)
                ours = make(original if original is not None else getattr(owner, name))
                self._replaced[owner, name] = (original, ours)
                setattr(owner, name, ours)

    def original(self, owner: Any, name: str) -> Any:
        """Returns what an owner had itself in place of what is replaced; None where nothing is."""
        return self._replaced.get((owner, name), (None,))[0]

    def watch(self, root: Any, make: Make, method: str = APPLY) -> None:
        """Replaces a method of a class and of all that are derived from it, now or later."""
        if (root, WATCH) in self._replaced:
            return

        def subclassed(cls: Any, **arguments: Any) -> None:
            before(cls, **arguments)
            with self._lock:
                if self._is_on:
                    self._replace_method(cls, method, make)

        own = vars(root).get(WATCH)
        before = own.__func__ if own is not None else lambda cls, **kw: super(root, cls).__init_subclass__(**kw)
        hook: Any = subclassed
        self.replace(root, WATCH, lambda _: classmethod(hook))
        for cls in reached([root], type.__subclasses__):
            self._replace_method(cls, method, make)

    def watch_keras(self, make: Make) -> None:
        """`watch` for the optimizers of each Keras that is loaded."""
        with self._lock:
            for name in KERAS:
                module = sys.modules.get(name)
                if module is not None:
                    self.watch(module.OptimizerV2, make)

    def restore(self) -> None:
        """Takes all back."""
        with self._lock:
            self._is_on = False
            while self._replaced:
                (owner, name), (original, ours) = self._replaced.popitem()
                if vars(owner).get(name) is not ours:
                    continue  # someone else has replaced ours, which passes everything on from now on
                if original is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)

    def _replace_method(self, cls: Any, method: str, make: Make) -> None:
        if inspect.isfunction(vars(cls).get(method)):
            self.replace(cls, method, make)


def is_transparent(optimizer: Any) -> bool:
    """Whether an optimizer hands its gradients on, to be applied elsewhere."""
    return any(cls.__name__ in TRANSPARENT for cls in type(optimizer).__mro__)
