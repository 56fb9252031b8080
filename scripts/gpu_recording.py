"""Records training steps of scripts on the engine, as scripts/gpu_check carries them to a machine with a card.

The first step of a script is written, in float32, with the variables and feeds that it finds: a file for each network.
"""

import os
import subprocess
import sys
from dataclasses import replace

from gpu_steps import Step, described_by

HERE = os.path.dirname(os.path.abspath(__file__))
MOST = 56 * 10**6  # bytes of the file of a step, which has to travel
# what it is -> a word of the path of one of the networks of scripts/model_zoo, whose step is small enough
NETWORKS = {
    "images": "MobileNetV1_ID0093", "text": "Bert_Google_MRPC_ID1466", "graphs": "contrib/graph/gat",
    "adversarial": "contrib/cv/wgan", "tagging": "SEQUENCE_TAGGING_ID2097", "point clouds": "contrib/cv/pointnet",
    "recommendation": "DIN_ID0190", "text in images": "CNN-CTC_ID0683", "speech": "DS-CNN_ID1769",
    "detection": "YOLOV5_ID0378",
}  # fmt: skip


def of_networks(folder, zoo):
    """Records a step of each of NETWORKS that has no file in a folder yet, and says which still has none.

    Args:
        folder: it is made.
        zoo: a checkout of the collection, see scripts/model_zoo. Its interpreter runs the scripts, this one's JAX their
            steps.
    """
    os.makedirs(folder, exist_ok=True)
    lacking = [word for word in NETWORKS.values() if not _is_recorded(folder, word)]
    asked = {"ZOO_RECORD": os.path.abspath(folder), "ZOO_FLOAT32": "1", "NPU_SHIM_ENGINE": "pjrt"}
    command = [os.path.join(HERE, "model_zoo"), *lacking, "--zoo", zoo]
    if lacking:
        subprocess.call(command, env={**os.environ, **asked, "NPU_SHIM_JAX": sys.executable})
    for word in lacking:
        if not _is_recorded(folder, word):
            print("gpu_recording: of '%s' there is no step" % word, flush=True)


def _is_recorded(folder, word):
    return any(word.replace("/", "_") in name for name in os.listdir(folder))


class Recording:
    """A device of the engine that writes the first step which it runs, if it can travel.

    Args:
        device: the device.
        path: of the file.
    """

    def __init__(self, device, path):
        self._device, self._path, self._is_first = device, path, True
        self._asked, self._loaded = {}, {}  # content -> what `lower` was asked; number -> (content, manifest)

    def __getattr__(self, name):
        return getattr(self._device, name)

    def lower(self, content, asked, cache=""):
        """As that of the device."""
        self._asked[bytes(content)] = asked
        return self._device.lower(content, asked, cache)

    def load(self, described, content, cache=""):
        """As that of the device."""
        loading = self._device.load(described, content, cache)
        self._loaded[loading.number] = bytes(content), described
        return loading

    def run(self, number, *steps, **more):
        """As that of the device."""
        content, described = self._loaded[number]
        is_whole = all(t.kind != "passed" for t in (*described.arguments, *described.results))
        if is_whole and self._is_first and not os.path.exists(self._path):
            self._is_first = False
            self._write(content, described, dict(steps[0]))
        return self._device.run(number, *steps, **more)

    def _write(self, content, described, feeds):
        state = self._device.get([tensor.name for tensor in described.state])
        rules, stored = described_by(state)
        # what a card takes narrower than a CPU would be another manifest
        asked = {name: value for name, value in self._asked[content].items() if name != "narrow"}
        asked["products"], described = "highest", replace(described, iterations=1, float32_products="highest")
        Step(content, asked, described, rules, stored, feeds).write(self._path)
        size = os.path.getsize(self._path)
        if size > MOST:
            os.remove(self._path)
            print("gpu_recording: %s: %.1f MB are too much to travel" % (self._path, size / 1e6), flush=True)


def begin(folder, name):
    """Has the sessions of this process record to a file in a folder, which is made."""
    os.makedirs(folder, exist_ok=True)
    from npu_shim.engine import sessions

    path, opened = os.path.join(folder, "net-%s-float32.npz" % name), sessions.open_device
    sessions.open_device = lambda values: Recording(opened(values), path)
