"""Plain TensorFlow 1 scripts with npu_bridge's names put in, as the vendor's migration tool convert_tf2npu does it.

Text is edited in place, so that comments and layout stay. What the tool's description says and this does not do is told
as a note with its line: `Dataset.shard`, and names that are not reached through `tf.` or `hvd.`.
Source: CANN's TensorFlow 1.15 migration manual and Ascend adapter of 2023-12 (r1.15), convert_tf2npu.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import typing
from typing import Any

from npu_shim.rewriter.errors import ConfigError, nearest

DISTRIBUTED = ("horovod", "tf_strategy")
IMPORT = "from npu_bridge.npu_init import *"

# argument `config` of these, wrapped; added where it is missing. By dotted name after `tf.`, or by method
SESSIONS = ("Session", "InteractiveSession", "train.MonitoredTrainingSession", ".managed_session")
# argument name -> what its value is wrapped in, in scripts for several ranks
LISTS = {"hooks": "npu_hooks_append(hooks_list=%s)", "callbacks": "npu_callbacks_append(callbacks_list=%s)"}
# calls that are wrapped whole
WRAPPED = {
    "GraphOptions": "npu_graph_options(graph_options=%s)",
    "OptimizerOptions": "npu_optimizer_options(optimizer_options=%s)",
}
# name -> (new name, renamed arguments, arguments added where they are missing)
RENAMED = {
    "train.experimental.FixedLossScale": ("FixedLossScaleManager", {"loss_scale_value": "loss_scale"}, {}),
    "train.experimental.DynamicLossScale": (
        "ExponentialUpdateLossScaleManager",
        {"initial_loss_scale": "init_loss_scale", "increment_period": "incr_every_n_steps", "multiplier": "incr_ratio"},
        {"init_loss_scale": "2**15", "incr_every_n_steps": "2000", "incr_ratio": "2"},
    ),
    "train.experimental.MixedPrecisionLossScaleOptimizer": (
        "NPULossScaleOptimizer",
        {"loss_scale": "loss_scale_manager"},
        {},
    ),
    "keras.backend.clear_session": ("npu_clear_session", {}, {}),
    "hvd.rank": ("get_npu_rank_id", {}, {}),
    "hvd.local_rank": ("get_npu_local_rank_id", {}, {}),
    "hvd.size": ("get_npu_rank_size", {}, {}),
    "hvd.local_size": ("get_npu_local_rank_size", {}, {}),
    "hvd.DistributedOptimizer": ("npu_distributed_optimizer_wrapper", {}, {}),
    "hvd.allreduce": ("npu_allreduce", {}, {}),
    "estimator.RunConfig": (None, {}, {"save_summary_steps": "0"}),
    ".batch": (None, {}, {"drop_remainder": "True"}),
    ".map_and_batch": (None, {}, {"drop_remainder": "True"}),
}
# calls that are replaced whole
REPLACED = {
    **{"distribute." + name: "npu_strategy.NPUStrategy()" for name in ("MirroredStrategy", "OneDeviceStrategy")},
    "distribute.experimental.MultiWorkerMirroredStrategy": "npu_strategy.NPUStrategy()",
    "config.experimental.set_memory_growth": "None",
    "hvd.init": "None",
    "hvd.BroadcastGlobalVariablesHook": "NpuEmptyHook()",
    "hvd.callbacks.BroadcastGlobalVariablesCallback": "NPUBroadcastGlobalVariablesCallback(0)",
}
# call -> (which argument, what it becomes): a position or a name
FIXED_ARGUMENTS = {
    "device": (0, '"/cpu:0"'),
    "config.optimizer.set_experimental_options": (0, "experimental_options"),
    "xla.experimental.jit_scope": ("compile_ops", "False"),
    "estimator.tpu.TPUEstimator": ("use_tpu", "False"),
}
ESTIMATOR = re.compile(r"estimator\.(tpu\.)?\w*(Estimator|Classifier|Regressor)$")
DATASET = re.compile(r"data|(^|\.)ds$", re.IGNORECASE)
# optimizers by name -> what they are wrapped in; Horovod's own wrapper is replaced instead
OPTIMIZERS = {
    re.compile(r"train\.\w+Optimizer$"): "npu_tf_optimizer(opt=%s)",
    re.compile(r"keras\.optimizers\.\w+$"): "npu_keras_optimizer(%s)",
}
WRAPPER = {"tf_strategy": "npu_distributed_optimizer_wrapper(%s)", "horovod": None}


class Converted(typing.NamedTuple):
    """A converted script: its text, and (line, what was done or is left to do by hand) in the order of lines."""

    text: str
    done: tuple[tuple[int, str], ...]
    left: tuple[tuple[int, str], ...]


def convert(source: str, distributed: str | None = None) -> Converted:
    """Returns a script with the bridge's names in it, a Converted; what imports npu_bridge already stays as it is.

    Args:
        source: str, the script; it says `import tensorflow as tf`, or the same of tensorflow.compat.v1.
        distributed: None, "horovod" or "tf_strategy", for scripts of several ranks.

    Raises:
        ConfigError: an unknown kind of distribution, a script that is not Python, or a Python before 3.9, which does
            not tell where an argument stands.
    """
    if sys.version_info < (3, 9):
        raise ConfigError("convert_tf2npu needs Python 3.9 or later, got %d.%d" % sys.version_info[:2])
    if distributed is not None and distributed not in DISTRIBUTED:
        words = (" or ".join(DISTRIBUTED), distributed, nearest(distributed, DISTRIBUTED))
        raise ConfigError("convert_tf2npu: distributed_mode must be %s, got %r%s" % words)
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ConfigError("convert_tf2npu: line %s is not Python: %s" % (error.lineno, error.msg)) from None
    except ValueError as error:  # a null byte
        raise ConfigError("convert_tf2npu: not Python: %s" % error) from None
    bridged = _line_of_bridge(tree)
    if bridged is not None:
        return Converted(source, (), ((bridged, "imports npu_bridge already, left as it is"),))
    editor = _Editor(source)
    converter = _Converter(editor, distributed)
    converter.visit(tree)
    _frame(tree, editor, converter)
    return Converted(editor.text(), tuple(sorted(converter.done)), tuple(sorted(converter.left)))


def _line_of_bridge(tree: ast.AST) -> int | None:
    """The first line that imports npu_bridge: a second conversion would wrap what the first one wrapped."""
    for node in ast.walk(tree):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if any(module.partition(".")[0] == "npu_bridge" for module in modules):
            return int(node.lineno)  # type: ignore[attr-defined]
    return None


class _Editor:
    """Collects edits of a text, and makes them: insertions before, after and instead of nodes."""

    def __init__(self, source: str) -> None:
        # Python's lines end where StringIO's do; str.splitlines would also split at a form feed
        self.bytes, self._starts = source.encode(), [0]
        for line in io.StringIO(source, newline=""):
            self._starts.append(self._starts[-1] + len(line.encode()))
        self._edits: list[tuple[int, int, int, int, str]] = []

    def span(self, node: Any) -> tuple[int, int]:
        """Returns (first, after the last) byte of a node."""
        begin, end = self._starts[node.lineno - 1], self._starts[node.end_lineno - 1]
        return begin + node.col_offset, end + node.end_col_offset

    def before(self, node: Any) -> str:
        """Returns what stands in front of a node in its line."""
        start = self._starts[node.lineno - 1]
        return self.bytes[start : start + node.col_offset].decode()

    def replace(self, start: int, end: int, text: str) -> None:
        """Puts text in the place of bytes; what else was to be edited between them is left out."""
        # at one place: ends of inner nodes, ends of outer ones, then beginnings of outer nodes and of inner ones
        self._edits.append((start, 1, len(self._edits), end, text))

    def wrap(self, node: Any, pattern: str) -> None:
        """Puts a node where %s stands in the pattern."""
        before, after = pattern.split("%s")
        start, end = self.span(node)
        self._edits.append((start, 1, len(self._edits), start, before))
        self._edits.append((end, 0, -len(self._edits), end, after))

    def add_argument(self, call: ast.Call, text: str) -> None:
        """Adds an argument at the end of a call."""
        end = self.span(call)[1] - 1  # of the closing parenthesis
        values = [*call.args, *[keyword.value for keyword in call.keywords]]
        rest = b"" if not values else self.bytes[max(self.span(value)[1] for value in values) : end]
        comma = "" if not values or b"," in re.sub(rb"#.*", b"", rest) else ", "
        self.replace(end, end, comma + text)

    def add_lines(self, number: int, lines: Any) -> None:
        """Adds lines after line `number`."""
        at = self._starts[number]
        broken = self.bytes[:at] and not self.bytes[:at].endswith(b"\n")
        text = ("\n" if broken else "") + "".join(line + "\n" for line in lines)
        self._edits.append((at, -1, len(self._edits), at, text))  # before whatever happens to the next line

    def text(self) -> str:
        """Returns the edited text."""
        parts, at = [], 0
        for start, _, _, end, text in sorted(self._edits):
            if start >= at:
                parts += [self.bytes[at:start].decode(), text]
                at = end
        return "".join([*parts, self.bytes[at:].decode()])


class _Converter(ast.NodeVisitor):
    """Decides the edits of calls, of functions called gelu and of imports of Horovod."""

    def __init__(self, editor: _Editor, distributed: str | None) -> None:
        self._editor, self._distributed = editor, distributed
        self.done: list[tuple[int, str]] = []
        self.left: list[tuple[int, str]] = []
        self.keras = self.dropout = False

    def visit_Import(self, node: ast.Import) -> None:
        """Takes Horovod's imports away."""
        if any(name.name.startswith("horovod") for name in node.names):
            self._replace(node, "pass", "import of Horovod taken away")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Gives a function called gelu the bridge's body."""
        self.generic_visit(node)
        if node.name == "gelu" and node.args.args:
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            start, end = self._editor.span(first)[0], self._editor.span(node.body[-1])[1]
            self._editor.replace(start, end, "return npu_unary_ops.gelu(%s)" % node.args.args[0].arg)
            self.done.append((node.lineno, "gelu -> npu_unary_ops.gelu"))

    def visit_Call(self, node: ast.Call) -> None:
        """Edits a call, and what is inside of it."""
        name, method = _name(node.func)
        self.keras = self.keras or name.startswith("keras.")
        self.dropout = self.dropout or name == "keras.layers.Dropout"
        for key in (name, method):
            if key in REPLACED:
                self._replace(node, REPLACED[key], "%s -> %s" % (key, REPLACED[key]))
                return
        self._wrap(node, name)
        if name in SESSIONS or method in SESSIONS:
            self._config(node, "npu_config_proto(config_proto=%s)", 2 if name.endswith("Session") else None)
        elif ESTIMATOR.match(name):
            self._config(node, "npu_run_config_init(run_config=%s)", None)
        if name == "nn.dropout":
            self._dropout(node)
        for key in (name, method):
            if key in RENAMED and self._is_meant(node, method):
                self._rename(node, key)
        if name in FIXED_ARGUMENTS:
            self._fix(node, name)
        if method == ".shard" and self._distributed == "tf_strategy":
            self.left.append((node.lineno, "shard: take RANK_SIZE and RANK_ID as its arguments"))
        self.generic_visit(node)

    def _is_meant(self, node: ast.Call, method: str) -> bool:
        """Tells whether a method is a dataset's, as far as a name can tell."""
        if not isinstance(node.func, ast.Attribute) or not method or DATASET.search(ast.unparse(node.func.value)):
            return True
        self.left.append((node.lineno, "%s: drop_remainder=True, if it is a dataset's" % method[1:]))
        return False

    def _replace(self, node: Any, text: str, what: str) -> None:
        self._editor.replace(*self._editor.span(node), text)
        self.done.append((node.lineno, what))

    def _wrap(self, node: Any, name: str) -> None:
        patterns = [WRAPPED[name]] if name in WRAPPED else []
        wrappers = [WRAPPER.get(str(self._distributed), own) for form, own in OPTIMIZERS.items() if form.match(name)]
        patterns += filter(None, wrappers)
        if self._distributed:
            patterns += ["npu_allreduce(%s)"] if name == "gradients" else []
            for keyword in node.keywords:
                if keyword.arg in LISTS:
                    self._editor.wrap(keyword.value, LISTS[keyword.arg])
                    self.done.append((node.lineno, "%s= -> %s" % (keyword.arg, LISTS[keyword.arg] % "...")))
        for pattern in patterns:
            self._editor.wrap(node, pattern)
            self.done.append((node.lineno, "%s -> %s" % (name, pattern % "...")))

    def _config(self, node: ast.Call, pattern: str, position: int | None) -> None:
        given = [keyword.value for keyword in node.keywords if keyword.arg == "config"]
        if position is not None and len(node.args) > position:
            given = [node.args[position]]
        if given:
            self._editor.wrap(given[0], pattern)
        elif all(keyword.arg for keyword in node.keywords):
            self._editor.add_argument(node, "config=" + re.sub(r"\(.*", "()", pattern))
        else:
            self.left.append((node.lineno, "config may be among **arguments: wrap it in " + pattern % "..."))
            return
        self.done.append((node.lineno, "config -> " + pattern % "..."))

    def _rename(self, node: Any, key: str) -> None:
        new, arguments, added = RENAMED[key]
        if new:
            self._editor.replace(*self._editor.span(node.func), new)
        names = {arguments.get(keyword.arg, keyword.arg) for keyword in node.keywords}
        for keyword in node.keywords:
            if keyword.arg in arguments:
                start = self._editor.span(keyword)[0]
                self._editor.replace(start, start + len(keyword.arg), arguments[keyword.arg])
        for value, name in zip(node.args[2:], list(added)[2:]):
            self._editor.wrap(value, name + "=%s")  # the manager has another argument third
        missing = list(added)[len(node.args) :] if new else [name for name in added if len(node.args) < 2]
        if new == "NPULossScaleOptimizer" and self._distributed:
            missing, added = ["is_distributed"], {"is_distributed": "True"}
        text = ", ".join("%s=%s" % (name, added[name]) for name in missing if name not in names)
        if text:
            self._editor.add_argument(node, text)
        self.done.append((node.lineno, "%s -> %s" % (key, new or "with " + (text or "what it has"))))

    def _dropout(self, node: ast.Call) -> None:
        self._editor.replace(*self._editor.span(node.func), "npu_ops.dropout")
        for keyword in node.keywords:
            if keyword.arg == "rate":
                start = self._editor.span(keyword)[0]
                self._editor.replace(start, self._editor.span(keyword.value)[0], "keep_prob=")
                self._editor.wrap(keyword.value, "1 - (%s)")
        self.done.append((node.lineno, "nn.dropout -> npu_ops.dropout"))

    def _fix(self, node: ast.Call, name: str) -> None:
        which, text = FIXED_ARGUMENTS[name]
        given = node.args[which : which + 1] if isinstance(which, int) else []
        for value in given or [keyword.value for keyword in node.keywords if keyword.arg == which]:
            self._replace(value, text, "%s -> %s" % (name, text))


def _name(function: Any) -> tuple[str, str]:
    """Returns (dotted name after tf. or tf.compat.v1., or with hvd., else ""; "." and the method's name, else "")."""
    parts: list[str] = []
    while isinstance(function, ast.Attribute):
        parts.insert(0, function.attr)
        function = function.value
    method = "." + parts[-1] if parts else ""
    if not isinstance(function, ast.Name):
        return "", method
    name = ".".join(parts)
    if function.id == "hvd":
        return "hvd." + name, ""
    return (re.sub(r"^compat\.v1\.", "", name), "") if function.id == "tf" else ("", method)


def _frame(tree: ast.Module, editor: _Editor, converter: _Converter) -> None:
    """Adds the bridge's import after the script's, and opens and closes the device around a `__main__`."""
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    lines = [IMPORT] + (["from npu_bridge.estimator.npu import npu_convert_dropout"] if converter.dropout else [])
    editor.add_lines(imports[-1].end_lineno or 0 if imports else 0, lines)
    for node in tree.body:
        if isinstance(node, ast.If) and "__name__" in ast.dump(node.test):
            before = editor.before(node.body[0])
            inline = bool(before.strip())  # if __name__ == "__main__": main()
            indent = "\n" + ("    " if inline else before)
            opened, closed = ("(npu_sess, npu_shutdown) = init_resource()", "shutdown_resource(npu_sess, npu_shutdown)")
            closing = [closed, "close_session(npu_sess)"]
            if converter.keras:
                opened, closing = "npu_sess = set_keras_session_npu_config()", ["close_session(npu_sess)"]
            start, end = editor.span(node.body[0])[0], editor.span(node.body[-1])[1]
            editor.replace(start, start, (indent if inline else "") + opened + indent)
            editor.replace(end, end, "".join(indent + line for line in closing))
            converter.done.append((node.lineno, "the device is opened and closed in __main__"))
