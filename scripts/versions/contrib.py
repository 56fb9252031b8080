"""Compares the names of each module of 1.15.5's tf.contrib with what `npu-shim run` finds under the same paths.

    python scripts/versions/contrib.py [PYTHON]     PYTHON has TensorFlow 1.15.5, .venv-tf115's by default

Only sources are read. A name counts where it is public and its module defines it, or where a package's `__init__` takes
it from one of its modules; names with an underscore are those of PRIVATE, which public scripts import. A name is found,
or the table of names says what to use instead, or a row of kept_contrib.json says why it is not there.
"""

import ast
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from npu_shim.compat.names import names  # noqa: E402

# by module, what public scripts import although it is private (a search of public sources)
PRIVATE = {
    "layers.python.layers.layers": "_add_variable_to_collections _build_variable_getter _model_variable_getter",
    "rnn.python.ops.core_rnn_cell": "_Linear",
    "rnn.python.ops.rnn_cell": "_Linear _conv",
    "seq2seq.python.ops.attention_wrapper": "_BaseAttentionMechanism _BaseMonotonicAttentionMechanism _bahdanau_score "
    "_compute_attention _luong_score _maybe_mask_score _monotonic_probability_fn _prepare_memory _zero_state_tensors",
    "seq2seq.python.ops.beam_search_decoder": "_beam_search_step _get_scores _length_penalty _mask_probs "
    "_maybe_tensor_gather_helper _tensor_gather_helper _tile_batch",
    "seq2seq.python.ops.decoder": "_create_zero_outputs _transpose_batch_time _zero_state_tensors",
    "seq2seq.python.ops.helper": "_transpose_batch_time _unstack_ta",
}
SKIPPED = re.compile(r"(^|\.)(\w*_test|testing|kernel_tests|tests|__main__)($|\.)")


def main(argv):
    """Prints the names that are lost; returns 1 if there is one."""
    lost = open_names(folder_of(argv[1] if len(argv) > 1 else HERE.parent.parent / ".venv-tf115" / "bin" / "python"))
    print("\n".join(lost))
    return 1 if lost else 0


def folder_of(python):
    """The folder of tf.contrib beside a Python with TensorFlow 1.15."""
    code = "import importlib.util as u; print(u.find_spec('tensorflow_core').submodule_search_locations[0])"
    printed = subprocess.run([str(python), "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    return os.path.join(printed.stdout.strip(), "contrib")


def open_names(folder):
    """Sorted list of "module.name" that no one finds, and no row explains."""
    patterns = [re.compile(row["what"]) for row in kept()]
    missing = (path for path in listed(folder) if not is_known(path))
    return sorted(path for path in missing if not any(pattern.search(path) for pattern in patterns))


def kept():
    """The rows of kept_contrib.json."""
    return json.loads((HERE / "kept_contrib.json").read_text(encoding="utf-8"))


def listed(folder):
    """Yields "module.name" of each name below tf.contrib that counts."""
    bodies = {module: Body(path) for module, path in sources(folder) if not SKIPPED.search(module)}
    for module, body in bodies.items():
        yield from (module + "." + name for name in sorted(body.shown(bodies)))
        yield from (module + "." + name for name in PRIVATE.get(module, "").split())


def sources(folder):
    """Yields (dotted name below tf.contrib, path) of each source file but the package's own."""
    for above, _, files in os.walk(folder):
        for file in files:
            path = os.path.join(above, file)
            inner = os.path.relpath(path, folder)
            if file.endswith(".py") and inner != "__init__.py":
                yield re.sub(r"(/__init__)?\.py$", "", inner).replace("/", "."), path


def is_known(path):
    """Whether a name resolves, or its row says what to use."""
    target = names.contrib_target(path)
    return names.resolve("tensorflow.contrib." + path) is not None or (target is not None and target.startswith("!"))


class Body:
    """What a source file binds at its top level."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            tree = ast.parse(f.read())
        self._is_package = os.path.basename(path) == "__init__.py"
        self._own, self._imported, self._whole, self.all = set(), [], [], None
        for node in statements(tree.body):
            self._take(node)

    def _take(self, node):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            self._own.add(node.name)
        elif isinstance(node, ast.Assign):
            bound = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if bound == {"__all__"} and isinstance(node.value, (ast.List, ast.Tuple)):
                self.all = {ast.literal_eval(word) for word in node.value.elts}
            self._own |= bound
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("tensorflow.contrib."):
            module = node.module[len("tensorflow.contrib.") :]
            for alias in node.names:
                if alias.name == "*":
                    self._whole.append(module)
                else:
                    self._imported.append((alias.asname or alias.name, module + "." + alias.name))

    def shown(self, bodies):
        """The public names that count."""
        names = set(self._own)
        if self._is_package:
            names |= {name for name, origin in self._imported if origin not in bodies}
            for module in self._whole:
                whole = bodies[module].shown(bodies) if module in bodies else set()
                allowed = bodies[module].all if module in bodies else None
                names |= whole if allowed is None else whole & allowed
        return {name for name in names if not name.startswith("_")}


def statements(body):
    """The statements of a module's top level, those in its if, try and with blocks too."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            for block in ("body", "orelse", "finalbody"):
                yield from statements(getattr(node, block, []))
            for handler in getattr(node, "handlers", []):
                yield from statements(handler.body)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
