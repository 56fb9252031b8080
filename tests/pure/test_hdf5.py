"""Files of h5py 3 as scripts of h5py 2 read and write them."""

import numpy as np
import pytest

from npu_shim.compat.python import aliases

h5py = pytest.importorskip("h5py")
pytestmark = pytest.mark.skipif(h5py.__version__.startswith("2."), reason="h5py 2, as TensorFlow 1 takes it")


@pytest.fixture
def said(monkeypatch):
    """What is said while h5py is as under `npu-shim run`."""
    lines = []
    for name, module in ((name, __import__(name, fromlist=["*"])) for name in aliases.FUNCTIONS if "h5py" in name):
        for path, takes_both in aliases.FUNCTIONS[name].items():
            holder, _, last = path.rpartition(".")
            owner = getattr(module, holder) if holder else module
            monkeypatch.setattr(owner, last, takes_both(getattr(owner, last), lines.append))
        for path, (target, version) in aliases.ATTRIBUTES.get(name, {}).items():
            kind, _, last = path.partition(".")
            attribute = property(aliases._attribute(path, target, version))
            monkeypatch.setattr(getattr(module, kind), last, attribute, raising=False)
    return lines


def test_a_file_without_a_mode_is_appended_to(tmp_path, said):
    path = str(tmp_path / "new.h5")
    with h5py.File(path) as file:
        file["x"] = np.arange(3)
    with h5py.File(path) as file:
        file["y"] = 1.0
    with h5py.File(path, "r") as file:
        assert file["x"].value.tolist() == [0, 1, 2]
        with pytest.raises(ValueError, match="no write intent"):
            file["z"] = 1
    with h5py.File("in-memory", driver="core", backing_store=False) as file:  # Keras's way to bytes
        file["x"] = 1
        file.flush()
        assert file.fid.get_file_image()[1:4] == b"HDF"
    with pytest.raises(FileNotFoundError):
        h5py.File(str(tmp_path / "none.h5"), "r")
    assert set(said) == {"h5py.File without a mode, which is 'r' since h5py 3.0, opens a file to append here"}


def test_texts_are_read_by_code_of_either_time(tmp_path, said):
    with h5py.File(str(tmp_path / "texts.h5"), "w") as file:
        file.attrs["version"], file.attrs["word"] = b"2.2.4", "word"
        file.attrs["names"], file.attrs["sizes"] = [b"kernel", b"bias"], [1, 2]
        file.attrs["rows"] = np.array([b"a", b"bc"], object)
        file["text"], file["bytes"], file["numbers"] = "text", b"bytes", np.ones(2)
        file.create_dataset("many", data=np.array(["x", "yz"], object), dtype=h5py.string_dtype())
    with h5py.File(str(tmp_path / "texts.h5"), "r") as file:
        version, names = file.attrs["version"], file.attrs["names"]
        assert version.decode("utf8") == version == "2.2.4"
        assert version == b"2.2.4"
        assert version != b"2.2.5"
        assert type(file.attrs["word"]) is str
        # as the array that NumPy makes of them, by whose type Keras tells that they are names
        assert names.dtype.type is np.bytes_
        assert [name.decode("utf8") for name in file.attrs["rows"]] == ["a", "bc"]
        assert file.attrs["sizes"].tolist() == [1, 2]
        assert isinstance(file["text"][()], str)
        assert file["text"][()].decode() == "text"
        assert type(file["bytes"][()]) is bytes
        assert file["many"][:1].tolist() == ["x"]
        assert {file["many"][1]: 2} == {"yz": 2}
        assert file["many"].asstr()[:].tolist() == ["x", "yz"]  # as today's libraries read it
        assert file["numbers"][()].tolist() == [1.0, 1.0]
        assert file.attrs.get("none", 3) == 3
    assert said == []
