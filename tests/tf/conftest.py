import collections
import pathlib
import sys
import zlib

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from npu_shim.bridge.ops.resources import use_tensorflow1
from npu_shim.compat.tensorflow_v1 import import_tensorflow
from npu_shim.session import nan

nan.keep()  # as every import of the bridge does, before the first session
import_tensorflow()  # tf.estimator and tf.keras as npu_bridge gives them, for tests that do not import it
use_tensorflow1()  # as npu_init does: some files import it, and all of them are to begin alike


# parameters whose two values many tests run with: variables by reference and resources, with control flow of their time
BOTH = {"resource": (False, True), "mode": ("v1-ref", "v2-resource")}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of tests that run with both of two kinds, each runs with one of them by day: which one, its name draws."""
    both = collections.defaultdict(list)
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        for name, kinds in BOTH.items():
            if params.get(name) in kinds and not item.get_closest_marker("by_day"):
                both[item.parent.nodeid, item.originalname, name].append(item)
    for (_, test, name), those in both.items():
        drawn = BOTH[name][zlib.crc32(test.encode()) % 2]
        if {item.callspec.params[name] for item in those} == set(BOTH[name]):
            for item in those:
                if item.callspec.params[name] != drawn:
                    item.add_marker(pytest.mark.nightly)


@pytest.fixture(autouse=True, scope="module")
def unpatched():
    """A file's tests start with sessions as TensorFlow has them: importing npu_bridge anywhere patches the process."""
    import left_behind

    import npu_shim

    npu_shim.unpatch()
    yield
    npu_shim.unpatch()
    left_behind.forget_keras_session()


@pytest.fixture(autouse=True)
def nothing_said():
    """What is said once a process is said once a test."""
    from npu_shim.session import lines
    from npu_shim.session.clusters import unchecked

    lines.once.cache_clear()
    unchecked._said.cache_clear()


@pytest.fixture
def patched():
    """Sessions go through NpuOptimizer within the test."""
    import npu_shim

    npu_shim.patch()
    yield
    npu_shim.unpatch()


@pytest.fixture
def activated():
    """Sessions whose config names NpuOptimizer go through it within the test; the others are TensorFlow's own."""
    import npu_shim
    from npu_shim.session.interception import patch

    patch.activate()
    yield
    npu_shim.unpatch()


@pytest.fixture
def counts(monkeypatch):
    """The engine's devices: (steps of a run of each program that was loaded, steps of each run)."""
    from npu_shim.engine import sessions as engine

    loaded, ran, real = [], [], engine.open_device

    def opened(*values):
        device = real(*values)
        load, run = device.load, device.run
        device.load = lambda manifest, *rest: loaded.append(manifest.iterations) or load(manifest, *rest)
        device.run = lambda number, *steps, **more: ran.append(len(steps)) or run(number, *steps, **more)
        return device

    monkeypatch.setattr(engine, "open_device", opened)
    return loaded, ran


@pytest.fixture
def own_graph():
    """A graph of the test's own, whose random ops have seeds."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default():
        tf.set_random_seed(3)
        yield


@pytest.fixture
def without_automatic_scale():
    """An automatic loss scale that the test installs ends with it."""
    from npu_shim.loss_scale import automatic

    yield
    automatic.uninstall()


@pytest.fixture(params=[False, True], ids=["reference", "resource"])
def resource(request):
    """Whether variables are resource variables within the test: it runs with one kind by day, with both at night."""
    import tensorflow.compat.v1 as tf

    before = tf.resource_variables_enabled()
    (tf.enable_resource_variables if request.param else tf.disable_resource_variables)()
    yield request.param
    (tf.enable_resource_variables if before else tf.disable_resource_variables)()


@pytest.fixture
def control_flow_of_version_1():
    """Graphs are built with Switch, Merge and Enter within the test."""
    import sessions

    with sessions.control_flow(1):
        yield


@pytest.fixture
def control_flow_of_version_2():
    """Graphs are built with If and While within the test."""
    import sessions

    with sessions.control_flow(2):
        yield
