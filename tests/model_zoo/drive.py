"""Runs a recipe: copies the network, makes its data, starts the script in a process group of its own, and judges."""

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
from judge import WHOLE, Ran, judge, judge_way
from recipe import HERE
from ways import FLOAT32, OWN

SEED = 20211121
# vocabularies made from sets of words are in the same order in each run
FIXED_ORDER = {"PYTHONHASHSEED": "0"}
# what TensorFlow 2 sets where data are made with it, and 1.15.5 obeys: eager execution
EAGER = "TF2_BEHAVIOR"
# what the shell scripts of nearly every network set before they start it on one device
ONE_DEVICE = {"RANK_SIZE": "1", "RANK_ID": "0", "DEVICE_ID": "0", "ASCEND_DEVICE_ID": "0", "JOB_ID": "10087"}


def run(recipe, zoo, work, compare=False):
    """Runs a recipe of the vendor's collection and returns its Outcome.

    Args:
        recipe: a Recipe.
        zoo: pathlib.Path of a checkout; it is only read.
        work: pathlib.Path of a folder for copies, logs and traces, which stay there.
        compare: run it in float32 as well, for the time of a step.
    """
    outcome = judge(recipe, _run(recipe, zoo, work, OWN, {}))
    if compare and outcome.result == WHOLE:
        plain = judge(recipe, _run(recipe, zoo, work, FLOAT32, {"ZOO_FLOAT32": "1"}))
        return outcome._replace(float32_ms=plain.step_ms, float32_loss=plain.first_loss)
    return outcome


def run_way(recipe, repositories, work, way, beside):
    """Runs a recipe of a public repository, or of a library, in one way and returns its Outcome.

    Args:
        recipe: a Recipe.
        repositories: pathlib.Path of a folder with a checkout in owner/name for each repository, or with a folder for
            each library; it is only read.
        work: pathlib.Path of a folder for copies, logs and traces, which stay there.
        way: a Way.
        beside: the losses of the way that this one's are held against, a list; None where they are not known.
    """
    return judge_way(recipe, way, _run(recipe, repositories, work, way, {"ZOO_SEED": str(SEED)}), beside)


def _run(recipe, zoo, work, way, env):
    place = work / (recipe.name.replace("/", "_").replace(":", "-") + ("" if way is OWN else "-" + way.name))
    if place.exists():
        shutil.rmtree(str(place))
    net = place / "net"
    shutil.copytree(str(zoo / recipe.network), str(net), symlinks=True)
    for folder, other in recipe.others.items():
        shutil.copytree(str(zoo / other), str(net / folder), symlinks=True, dirs_exist_ok=True)
    recipe.data(net, np.random.default_rng(SEED))
    trace, log = place / "trace.jsonl", place / "log.txt"
    trace.touch()
    begin = time.time()
    with open(str(log), "w") as f:
        status = _start_all(recipe, net, way, {**env, "NPU_SHIM_TRACE": str(trace)}, f)
    seconds = time.time() - begin
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    there = not recipe.checkpoint or any(net.glob(recipe.checkpoint))
    text = log.read_text(errors="replace")
    return Ran(status, lines, text, seconds, "" if there else recipe.checkpoint)


def _start_all(recipe, net, way, env, log):
    """Runs what makes data, the script, and what reads again; the exit status of the first to fail, None at a limit."""
    for command in recipe.prepare:
        status = _start(recipe, command, net, ["-m", "npu_shim", "run"], {}, log)
        if status != 0:
            return status
    env["ZOO_STEPS"] = str(recipe.steps or 0)
    options = [*recipe.options, *way.options]
    runner = [str(HERE / "observe.py"), *options]
    python = os.environ[way.python] if way.python else sys.executable
    status = _start(recipe, recipe.run, net, runner, env, log, python)
    if status == 0 and recipe.again:
        return _start(recipe, recipe.again, net, ["-m", "npu_shim", "run", *options], {}, log)
    return status


def _start(recipe, command, net, runner, env, log, python=sys.executable):
    """Runs a script to its end, or the recipe's limit; returns its exit status, None at the limit."""
    words = [word.replace("{net}", str(net)) for word in shlex.split(command)]
    own = {name: value for name, value in os.environ.items() if name != EAGER}
    own = {**own, **ONE_DEVICE, **FIXED_ORDER, "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2", **env}
    own.update({name: str(value).replace("{net}", str(net)) for name, value in recipe.env.items()})
    folders = [str(net / folder) for folder in recipe.path] + [own.get("PYTHONPATH", "")]
    own["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    started = subprocess.Popen(
        [python, *runner, *words],
        cwd=str(net / recipe.cwd), env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        return started.wait(recipe.limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(started.pid, signal.SIGKILL)  # also what the script itself has started
        started.wait()


def folder_of(text):
    """The checkout that a user named; raises LookupError where it is none."""
    zoo = pathlib.Path(text).expanduser().resolve()
    if not (zoo / "TensorFlow").is_dir():
        raise LookupError("'%s' is no checkout of the collection: it has no folder TensorFlow" % text)
    return zoo


def repositories_of(text, recipes):
    """The folder of checkouts that a user named; raises LookupError where it has none that a recipe is for."""
    folder = pathlib.Path(text).expanduser().resolve()
    if not any((folder / recipe.network).is_dir() for recipe in recipes):
        raise LookupError("'%s' has no checkout such as %s" % (text, recipes[0].network))
    return folder
