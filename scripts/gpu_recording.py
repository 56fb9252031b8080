"""Records training steps of scripts on the engine, as scripts/gpu_check carries them to a machine with a card.

    ZOO_RECORD=FOLDER ZOO_FLOAT32=1 NPU_SHIM_ENGINE=pjrt scripts/model_zoo NETWORK... --zoo DIR
    scripts/gpu_check prepare PIECES --recorded FOLDER

The first step of a script is written, in float32, with the variables and feeds that it finds: a file for each network.
"""

import os
from dataclasses import replace

from gpu_steps import STORED, Step

from npu_shim.engine import sessions

MOST = 56 * 10**6  # bytes of variables and feeds of a step: its file has to travel


class Recording:
    """A device of the engine that writes the first step which it runs, if it can travel.

    Args:
        device: the device.
        path: of the file.
    """

    def __init__(self, device, path):
        self._device, self._path = device, path
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
        if is_whole and not os.path.exists(self._path):
            self._write(content, described, dict(steps[0]))
        return self._device.run(number, *steps, **more)

    def _write(self, content, described, feeds):
        names = [tensor.name for tensor in described.state]
        state = self._device.get(names)
        size = sum(value.nbytes for value in (*state.values(), *feeds.values()))
        if size > MOST:
            print("gpu_recording: %s: %.1f MB are too much to travel" % (self._path, size / 1e6), flush=True)
            return
        # what a card takes narrower than a CPU would be another manifest
        asked = {name: value for name, value in self._asked[content].items() if name != "narrow"}
        asked["products"], described = "highest", replace(described, iterations=1, float32_products="highest")
        Step(content, asked, described, {key: [STORED] for key in names}, state, feeds).write(self._path)


def begin(folder, name):
    """Has the sessions of this process record to a file in a folder, which is made."""
    os.makedirs(folder, exist_ok=True)
    path, opened = os.path.join(folder, "net-%s-float32.npz" % name), sessions.open_device
    sessions.open_device = lambda values: Recording(opened(values), path)
