"""What is marked `nightly` runs with NPU_SHIM_NIGHTLY=1 in the environment only."""

import os

import pytest


def pytest_collection_modifyitems(items):
    if not os.environ.get("NPU_SHIM_NIGHTLY"):
        for item in items:
            if item.get_closest_marker("nightly"):
                item.add_marker(pytest.mark.skip(reason="takes minutes: runs with NPU_SHIM_NIGHTLY=1"))
