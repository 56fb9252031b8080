"""The parts of scripts/gpu_check, each a function that adds rows. JAX; TensorFlow where the pieces bring it."""

import glob
import importlib.util
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time

import bench_xla_run
import gpu_results
import jax
import jaxlib
import numpy as np
from gpu_steps import STEPS, OnDevice, Step

import npu_shim
from npu_shim.pjrt import driver

HERE = os.path.dirname(os.path.abspath(__file__))
# dtype -> how far losses may be from those of a CPU, of their size; of float32 the updates, too, of their length
LOSSES = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
UPDATES = 1e-2
NORMALS = 1e-5  # of float32, whose logarithms and cosines differ between devices
MODES = {"float32": "must_keep_origin_dtype", "float16": "allow_mix_precision", "bfloat16": "allow_mix_precision_bf16"}
EXAMPLES = ("sess_run", "estimator", "keras_fit", "manual_float16")
ACCURACY = re.compile(r"[Aa]ccuracy\D{0,40}?([01]?\.\d+)")
SHAPES = (
    (8, 4, 128, 64),
    (4, 8, 512, 64),
    (2, 16, 384, 64),
    (4, 4, 77, 40),
    (1, 8, 1024, 128),
    (8, 12, 200, 32),
    (2, 2, 33, 16),
    (16, 16, 128, 64),
)  # fmt: skip  batch, heads, length, width
WARM, TURNS = 3, 10


def run(part, pieces, work, out):
    """Runs a part; cases that have a result in `out` are left out. Raises what ends it before its end."""
    rows = gpu_results.Rows(out, part, machine())
    FUNCTIONS[part](pieces, work, rows)
    rows.end()


def machine():
    """What results are of, by name: the card, and versions of what computes."""
    device, seen = jax.devices()[0], driver.seen()
    folder = os.path.dirname(HERE)
    said = subprocess.run(["git", "-C", folder, "rev-parse", "--short", "HEAD"], capture_output=True, check=False)
    return {
        "card": "%d x %s" % (jax.device_count(), device.device_kind), "driver": seen.version,
        "PJRT": device.client.platform_version.replace("\n", " "), "JAX": jax.__version__, "jaxlib": jaxlib.__version__,
        "Python": platform.python_version(), "NumPy": np.__version__, "npu-shim": npu_shim.__version__,
        "commit": said.stdout.decode().strip() if os.path.exists(os.path.join(folder, ".git")) else "",
    }  # fmt: skip


def _each_step(pieces, pattern, rows, of):
    """Calls a function with the name and the Step of each file that has no result yet."""
    paths = sorted(glob.glob(os.path.join(pieces, pattern)))
    for name in rows.left(os.path.basename(path)[: -len(".npz")] for path in paths):
        with rows.tried(name):
            of(name, Step.read(os.path.join(pieces, name + ".npz")))


def steps(pieces, _, rows, pattern="step-*.npz"):
    """Losses and updates beside the CPU's."""

    def of(name, step):
        losses, updates = OnDevice(step).result()
        form, expected = name.rpartition("-")[2], step.expected
        away = float(np.max(np.abs(losses - expected["losses"]) / np.abs(expected["losses"]), initial=0.0))
        far = {key: _apart(value, expected["update/" + key]) for key, value in updates.items()}
        worst = max(far, key=far.get, default="")
        ok = away <= LOSSES[form] and (form != "float32" or far.get(worst, 0.0) <= UPDATES)
        rows.add(name, bool(ok), losses_apart=away, update_apart=far.get(worst, 0.0), of=worst)

    _each_step(pieces, pattern, rows, of)


def networks(pieces, _, rows):
    """The same of steps of networks, which were recorded."""
    steps(pieces, _, rows, "net-*.npz")


def _apart(value, expected):
    length = np.linalg.norm(expected)
    apart = float(np.linalg.norm(value - expected) / length) if length else float(np.linalg.norm(value))
    return float("inf") if np.isnan(apart) else apart  # which no maximum passes over


def attention(_, __, rows):
    """Kernels beside numpy's float64: cases of the tests, and larger shapes."""
    import attention_cases
    import attention_runs

    from npu_shim.pjrt.attention import blocks

    on_cpu = _on_cpu()
    cases = {"random %d" % number: (attention_cases.random_case, number) for number in range(2 if on_cpu else 24)}
    cases.update(("masked: %s" % form, (_masked, form)) for form in attention_cases.FORMS)
    cases.update(("%s" % (shape,), (_large, shape)) for shape in ([] if on_cpu else SHAPES))

    def tried(case, make, of):
        spec, operands, d_out = make(of)
        why = blocks.refused(spec)
        if why:
            return rows.add(case, None, why=why)
        computed = attention_runs.computed(spec, operands, d_out, on_cpu)
        wrong = attention_cases.wrong(computed, *attention_cases.reference(spec, operands, d_out))
        return rows.add(case, not wrong, dtype=spec.dtype, why="; ".join(wrong))

    for case in rows.left(list(cases)[: 3 if on_cpu else None]):
        with rows.tried(case):
            tried(case, *cases[case])


def _masked(form):
    import attention_cases

    return attention_cases.masked_case(form, 0)


def _large(shape):
    """A case of a shape as networks have it, with a mask of keys and dropout, in bfloat16."""
    import attention_cases

    from npu_shim.pjrt.attention.spec import Spec

    random = np.random.RandomState(sum(shape))
    spec = Spec(
        "forward", shape, shape, shape, "bfloat16", scale=shape[3] ** -0.5, bias=(shape[0], 1, 1, shape[2]), rate=0.1,
        bias_dtype="float32",
    )  # fmt: skip
    operands = {name: random.normal(size=shape).astype(attention_cases.DTYPES["bfloat16"]) for name in "qkv"}
    hidden = np.arange(shape[2]) >= random.randint(1, shape[2] + 1, [shape[0], 1, 1, 1])
    operands.update(bias=np.where(hidden, -10000.0, 0.0).astype("f"), seed=np.array([3, 5], np.int32))
    return spec, operands, random.normal(size=shape).astype(attention_cases.DTYPES["bfloat16"])


def random(pieces, _, rows):
    """Draws of a device beside those of a session."""

    def of(case, step):
        loaded = OnDevice(step)
        runs = [loaded.run() for _ in range(STEPS)]
        for name in step.fetches:
            drawn = np.stack([run[name] for run in runs]).astype(float)
            expected = step.expected["drawn/" + name].astype(float)
            rows.add(
                name, bool(np.allclose(drawn, expected, NORMALS, NORMALS)), apart=float(np.abs(drawn - expected).max())
            )
        rows.add(case, True)

    _each_step(pieces, "random.npz", rows, of)


def accuracy(pieces, work, rows):
    """What scripts print of their accuracy on the engine, in three precisions."""
    examples = os.path.join(os.path.dirname(HERE), "examples")
    data = os.path.join(HERE, "data", "digits.npz")
    scripts = {name: [os.path.join(examples, name + ".py"), data] for name in EXAMPLES}
    for path in sorted(glob.glob(os.path.join(pieces, "script-*.py"))):
        name = os.path.basename(path)[len("script-") : -len(".py")]
        scripts[name] = [path, *glob.glob(os.path.join(pieces, "data-*.npz"))]
    environment = _with_tensorflow(pieces, work)
    if environment is None:
        return rows.add("accuracy", None, why="TensorFlow is not here, and no pieces 'wheel-*' bring it")
    cases = {"%s, %s" % (name, dtype): (name, dtype) for name in scripts for dtype in MODES}
    for case in rows.left(list(cases)[: 1 if _on_cpu() else None]):
        name, dtype = cases[case]
        with rows.tried(case):
            _accuracy(rows, case, scripts[name], MODES[dtype], environment)


def _accuracy(rows, case, words, mode, environment):
    asked = ["--engine", "pjrt", "--set", "precision_mode=" + mode, "--set", "npu_shim_profile=gpu"]
    command = [sys.executable, "-m", "npu_shim", "run", *asked, *words]
    begin = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    said = ACCURACY.findall(done.stdout.decode())
    why = "" if done.returncode == 0 else done.stderr.decode().strip().rpartition("\n")[2]
    figures = {"accuracy": said[-1] if said else "none said", "seconds": time.perf_counter() - begin, "why": why}
    rows.add(case, bool(said) and done.returncode == 0 and float(said[-1]) > 0.85, **figures)


def _on_cpu():
    return jax.default_backend() == "cpu"


def session(pieces, work, rows):
    """A session's step beside its program, by scripts/bench_engine."""
    environment = _with_tensorflow(pieces, work)
    if environment is None:
        return rows.add("session", None, why="TensorFlow is not here, and no pieces 'wheel-*' bring it")
    for model in rows.left(("bert",) if _on_cpu() else ("resnet50", "bert", "lstm")):
        with rows.tried(model):
            _session(rows, model, environment)


def _session(rows, model, environment):
    size = ("small", "2") if _on_cpu() else ("full", "8")
    command = [sys.executable, os.path.join(HERE, "bench_engine"), "--size", size[0], "--rounds", size[1]]
    command += ["--models", model, "--ways", "engine, mixed;worker, mixed"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    lines = done.stdout.decode().splitlines()
    table = [line.strip("| ").split(" | ") for line in lines if line.startswith("| " + model)]
    why = "" if table else done.stderr.decode().strip().rpartition("\n")[2]
    rows.add(model, bool(table), why=why, **{row[1]: row[2] + " ms" for row in table})


def _with_tensorflow(pieces, work):
    """The environment of processes that need TensorFlow, None where it is not here; `work` is where wheels go."""
    site = os.path.join(work, "site")
    parts = sorted(
        glob.glob(os.path.join(pieces, "wheel-*")),
        key=lambda path: (path.rpartition(".")[0], int(path.rpartition(".")[2])),
    )
    if parts and not os.path.isdir(site):
        os.makedirs(work, exist_ok=True)
        for path in parts:
            whole, _, number = path.rpartition(".")
            with open(
                os.path.join(work, os.path.basename(whole)[len("wheel-") :]), "wb" if number == "0" else "ab"
            ) as file, open(path, "rb") as part:
                file.write(part.read())
        wheels, fresh = glob.glob(os.path.join(work, "*.whl")), site + ".new"  # all that one that is cut off leaves
        shutil.rmtree(fresh, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", fresh]
        subprocess.check_call([*pip, *wheels])
        os.replace(fresh, site)
    if not os.path.isdir(site) and importlib.util.find_spec("tensorflow") is None:
        return None
    return dict(os.environ, PYTHONPATH=os.pathsep.join([site, os.path.dirname(HERE), os.environ.get("PYTHONPATH", "")]))


def memory(pieces, _, rows):
    """The most memory that was allocated beside what the compiler planned, which is what `npu-shim cost` prints."""

    def of(name, step):
        before = _most_memory()
        loaded = OnDevice(step)
        seconds = []
        for turn in range(WARM + TURNS):
            begin = time.perf_counter()
            loaded.run()
            seconds += [time.perf_counter() - begin] if turn >= WARM else []
        planned = bench_xla_run.memory(loaded.program.compile())
        most = _most_memory()
        why = "another step took more before: call it again" if most else "JAX does not say it here"
        figures = {"planned_GB": planned / 1e9, "most_GB": most / 1e9, "ms_a_step": 1e3 * statistics.median(seconds)}
        is_known = most > before
        rows.add(name, most <= 1.1 * planned if is_known else None, why="" if is_known else why, **figures)

    _each_step(pieces, "large-*.npz", rows, of)


def _most_memory():
    """The most bytes that this process has had on the device so far, 0 where JAX does not say it."""
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)


def profile(pieces, work, rows):
    """Kernels of large steps: see gpu_profile."""
    import gpu_profile

    def of(name, step):
        table = gpu_profile.of(OnDevice(step), os.path.join(work, "trace-" + name))
        rows.add(name, bool(table), kernels=table)

    _each_step(pieces, "large-*.npz", rows, of)


MEETING = """
import sys
import numpy as np
from npu_shim.pjrt import jax_compat, placement, ranks
jax = jax_compat.require()
ranks.join(jax, ranks.Job(sys.argv[1], 2, int(sys.argv[2]), 0, 60))
print(ranks.meeting(ranks.of(jax, [0, 1], placement.of(jax, 1)))([int(sys.argv[2])]).tolist())
"""


def two(_, __, rows):
    """Two processes that meet on one device. NCCL refuses two ranks on one card: then that is said."""
    for case in rows.left(["two"]):
        with rows.tried(case):
            _two(rows)


def _two(rows):
    from npu_shim.distributed.launcher.layout import free_ports

    address = "127.0.0.1:%d" % free_ports(1)[0]
    environment = dict(
        os.environ, PYTHONPATH=os.pathsep.join([os.path.dirname(HERE), os.environ.get("PYTHONPATH", "")])
    )
    command = [sys.executable, "-c", MEETING, address]
    started = [
        subprocess.Popen([*command, str(rank)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    try:
        ends = [one.communicate(timeout=120) for one in started]
    except subprocess.TimeoutExpired:
        for one in started:
            one.kill()
        return rows.add("two", None, why="they did not come to an end within 120 s")
    met = all(b"[[0], [1]]" in out for out, _ in ends)
    last = ends[0][1].decode(errors="replace").strip().rpartition("\n")[2]
    return rows.add("two", True if met else None, why="" if met else last)


FUNCTIONS = {
    "steps": steps, "networks": networks, "attention": attention, "random": random, "accuracy": accuracy,
    "session": session, "memory": memory, "profile": profile, "two": two,
}  # fmt: skip
