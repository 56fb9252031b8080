"""The entrances: functions of a program, a Plain and a folder that return what every line of the program gave.

An entrance that runs one step only (compile_step, export) has its own lines: runs of one step of the program, and the
state at the end.
"""

import functools
import os
import re
import subprocess
from typing import Any, NamedTuple

import differential
import numpy as np
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from fuzz import collected, playing, scaling, wider

HOST = re.compile(r"python|calling|waiting|slow|asserting")  # what has no program


class Plain(NamedTuple):
    """A program in sessions of TensorFlow's own: its graph, and what each line gave."""

    built: Any
    trace: Any


COUNTS, SHARES = (2, 4, 8), ("off", "optimizer", "all")


def plain(program, folder):
    """Returns the Plain of a program."""
    built = playing.build(program)
    return Plain(built, playing.play(program, built, folder))


def mode(program):
    """Options of rewrite() for a program."""
    return differential.MODES[program.seed % len(differential.MODES)]


def in_session(program, expected, folder, **more):
    """In sessions with an NpuOptimizer; `more` are keys of its parameter_map."""
    config = sessions.config(**differential.as_parameters(mode(program)), **more)
    opened = functools.partial(playing.Side, config=config)
    return playing.play(program, expected.built, folder, opened, expected.built)


def on_devices(program, expected, folder):
    """In sessions whose steps run on several devices, with or without a part of the state on each; `m` has others."""
    chosen = [(count, share) for share in SHARES for count in COUNTS][program.seed % (len(SHARES) * len(COUNTS))]
    others = [(count, share) for share in SHARES for count in (1, *COUNTS) if count != chosen[0]]
    ways = {"m": others[program.seed // 7 % len(others)]}

    def opened(built, place):
        count, share = ways.get(place.name, chosen)
        more = {"npu_shim_engine": "pjrt", "npu_shim_devices": str(count), "npu_shim_shard_state": share}
        return playing.Side(built, place, config=sessions.config(**differential.as_parameters(mode(program)), **more))

    return playing.play(program, expected.built, folder, opened, expected.built)


def restored_on_others(program):
    """The program, and its last steps in a session `m` that restores the last checkpoint."""
    steps = [line for line in program.runs if line.startswith("s.run('u")][-2:]
    more = ("m.restore('full', 9, s.path('full', 9))", *("m" + line[1:] for line in steps), "m.look()")
    return program._replace(runs=(*program.runs, *more, "m.save('full', 10)"))


def optimized(program, expected, folder):
    """In plain sessions with TensorFlow's own optimizations."""
    opened = functools.partial(playing.Side, config=tf.ConfigProto())
    return playing.play(program, expected.built, folder, opened, expected.built)


def rewritten(program, expected, folder):
    """In plain sessions of what rewrite() made of the graph, after it was in a file."""

    def opened(built, place):
        folder.mkdir(exist_ok=True, parents=True)
        path = folder / "graph.pb"
        rewritten, _ = npu_shim.rewrite(built.graph.as_graph_def(), built.kept, _fed(program, built), **mode(program))
        path.write_bytes(rewritten.SerializeToString())
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(tf.GraphDef.FromString(path.read_bytes()), name="")
        return playing.Side(built, place, tf.ConfigProto(), graph)

    return playing.play(program, expected.built, folder, opened, expected.built)


def _fed(program, built):
    """Names of the tensors that runs of a program feed."""
    values = [built.fetches[label][0][0] for label in re.findall(r"\.fed\('(\w+)'", "\n".join(program.runs))]
    return ["x:0", "p:0", "n:0", *(value for _, value in built.loads.values()), *values]


def of_one_step(program):
    """The program with runs of one of its steps only, None where Python has a part in every step."""
    lines = {line.partition(" = ")[0]: line for line in program.lines}
    steps = [name for name in lines if name.startswith("u") and not HOST.search(_whole(name, lines))]
    if not steps:
        return None
    step = steps[program.seed % len(steps)]
    runs = [line for number in range(3) for line in ("s.run('%s', %d)" % (step, program.seed + number), "s.look()")]
    renamed = tuple("full = tf.train.Saver()" if line.startswith("full") else line for line in program.lines)
    return program._replace(lines=renamed, runs=(*runs, "s.save('full', 9)", "elsewhere('full', 9)"))


def _whole(name, lines):
    """The lines of a step and of those before it."""
    before = re.match(r"\w+ = update\((\w+),", lines[name]).group(1)
    return lines[name] + (_whole(before, lines) if before in lines else "")


class _Compiled:
    """A step by compile_step, as a Side.

    Args:
        built: playing.Built.
        folder: pathlib.Path.
        label: of the step.
        options: of compile_step.
    """

    def __init__(self, built, folder, label, options):
        self._built, self._folder = built, folder
        folder.mkdir(exist_ok=True, parents=True)
        tensors, op = built.fetches[label]
        self._step = npu_shim.compile_step(
            built.graph, [*tensors, op], ["x:0", "p:0", "n:0"], initializer="init", **options
        )

    def run(self, label, number):
        return playing.copied(self._step(playing.feeds(number)))

    def look(self):
        return self._step.state()

    def save(self, saver, number):
        return playing.contents(self._step.save(self.path(saver, number)))

    def path(self, saver, number):
        return str(self._folder / ("%s%d" % (saver, number)))

    def close(self):
        pass


def compiled(program, expected, folder):
    """By compile_step; `program` is of one step."""
    label = re.search(r"'(\w+)'", program.runs[0]).group(1)
    opened = functools.partial(_Compiled, label=label, options=mode(program))
    return playing.play(program, expected.built, folder, opened, expected.built)


def as_step(program, built):
    """The differential.Step of a program of one step, which export takes."""
    runs = [re.match(r"s\.run\('(\w+)', (\d+)\)", line) for line in program.runs]
    numbers = [int(match.group(2)) for match in runs if match]
    tensors, op = built.fetches[runs[0].group(1)]
    batches = [playing.feeds(number) for number in numbers]
    return differential.Step(built.graph, list(batches[0]), [*tensors, op], batches, [], [program.text])


def exported(program, expected, folder):
    """Exported, and run under JAX without TensorFlow."""
    folder.mkdir(parents=True)
    step = as_step(program, expected.built)
    differential.exported(step, mode(program), folder)
    jax = _jax()
    jax.stdin.write("%s\n" % folder)
    jax.stdin.flush()
    jax.stdout.readline()
    ran = differential.ran_under_jax(folder, step._replace(fetches=step.fetches[:-1]))
    if isinstance(ran, str):
        raise RuntimeError(ran.strip().splitlines()[-1])
    return _as_trace(program, ran)


@functools.lru_cache(maxsize=None)
def _jax():
    """A process of the interpreter with JAX that runs the folders it is told."""
    command = [os.environ["NPU_SHIM_JAX"], differential.WORKER, "-"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean, universal_newlines=True)


def _as_trace(program, ran):
    """What export gave, as lines: results of each run, and the state after the last one."""
    results, trace = iter(ran.results), []
    last = max(k for k, line in enumerate(program.runs) if line == "s.look()")
    for k, line in enumerate(program.runs):
        if line.startswith("s.run"):
            trace.append([np.asarray(value) for value in next(results)])
        else:
            trace.append(ran.state if k == last else None)
    return trace


class Entrance(NamedTuple):
    """A way to run programs.

    Attributes:
        run: function of a program, its Plain and a folder that returns what every line gave.
        lines: function of a program that returns the one that this entrance runs, None for none.
        partly: whether the entrance has not all variables, or more than plain TensorFlow.
        draw: function of a seed that returns a program.
        plain: function of a program and a folder that returns its Plain.
    """

    run: Any
    lines: Any = lambda program: program
    partly: bool = False
    draw: Any = wider.draw
    plain: Any = plain


ENTRANCES = {
    "session": Entrance(in_session),
    "clusters": Entrance(functools.partial(in_session, npu_shim_xla="on")),
    "file": Entrance(rewritten),
    "engine": Entrance(functools.partial(in_session, npu_shim_engine="pjrt")),
    "devices": Entrance(on_devices, restored_on_others),
    "compiled": Entrance(compiled, of_one_step, True),
    "exported": Entrance(exported, of_one_step, True),
    "collected": Entrance(collected.play, collected.of_one_session),
    "scaled": Entrance(
        scaling.scaled, partly=True, draw=scaling.draw, plain=lambda *given: Plain(*scaling.plain(*given))
    ),
}


def problems(name, program, folder, expected):
    """Returns what a program gives at an entrance that it does not give in plain TensorFlow, in words.

    Args:
        name: of ENTRANCES.
        program: drawing.Program that the entrance runs, see `Entrance.lines`.
        folder: pathlib.Path, new or empty.
        expected: its Plain.
    """
    entrance = ENTRANCES[name]
    try:
        given = entrance.run(program, expected, folder / name)
    except Exception as error:  # whatever it is, plain TensorFlow did not raise it
        return ["%s: %s" % (type(error).__name__, str(error).splitlines()[0])]
    return playing.differences(program, given, expected.trace, entrance.partly)
