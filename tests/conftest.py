import pathlib

import pytest

SHARED = pathlib.Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared():
    """The reference material that lies beside the repository in the developers' workplace."""
    if not SHARED.is_dir():
        pytest.skip("no reference material beside the repository")
    return SHARED
