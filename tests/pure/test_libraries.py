"""What scripts of 2019 call in Pillow, SciPy, PyYAML and others; a test is skipped where its library is missing."""

import os
import subprocess
import sys

import numpy as np
import pytest

from npu_shim.compat.python import arrays, libraries, scipy_images
from npu_shim.rewriter.errors import ConfigError

SAID = []
ROWS = {"yaml.py": "class FullLoader: pass\ndef load(stream, Loader): return stream, Loader.__name__\n",
        "PIL/__init__.py": "", "PIL/Image.py": "LANCZOS = 1\n",
        "PIL/ImageFont.py": "class FreeTypeFont:\n    def getbbox(self, text): return 1, 2, 5, 9\n",
        "scipy/__init__.py": "", "scipy/sparse/__init__.py": "", "scipy/sparse/linalg/__init__.py": "eigsh = 7\n",
        "scipy/sparse/linalg/eigen.py": "", "joblib.py": "here = 1\n", "sklearn/__init__.py": "",
        "sklearn/externals/__init__.py": "", "scipy/misc.py": ""}  # fmt: skip
WAITING = """
import sys
from npu_shim.compat.python import aliases
aliases.install()
names = ("yaml", "PIL", "scipy", "sklearn", "networkx", "pandas", "skimage", "matplotlib", "librosa")
assert not [name for name in names if name in sys.modules]
import yaml
for _ in range(2):
    assert yaml.load("x") == ("x", "FullLoader")
assert yaml.__spec__.loader.get_source("yaml")
from PIL import Image, ImageFont
assert Image.ANTIALIAS == 1 and ImageFont.FreeTypeFont().getsize("x") == (4, 9)
from scipy.sparse.linalg.eigen.arpack import eigsh
from scipy.misc import imread, imresize
from sklearn.externals import joblib
assert eigsh == 7 and joblib.here == 1
try:
    import pkg_resources
except ImportError as error:
    assert "setuptools<82" in str(error)
"""


def test_rows_wait_for_their_library_and_say_once_what_they_do(tmp_path):
    for name, text in ROWS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WAITING], env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("yaml.load without Loader, which PyYAML 6.0 refuses, takes FullLoader here") == 1
    assert "FreeTypeFont.getsize, which Pillow 10 removed, is npu_shim's libraries.font_size here" in done.stderr


LATER = {"librosa/__init__.py": "from librosa import filters\nfrom librosa.core.spectrum import istft\n",
         "librosa/filters.py": "def mel(*, sr, n_fft, n_mels=128, fmin=0.0): return sr, n_fft, n_mels, fmin\n",
         "librosa/core/__init__.py": "", "librosa/core/spectrum.py":
         "def istft(x, *, hop_length=0, win_length=0, n_fft=None, window=0): return x, hop_length, n_fft, window\n",
         "networkx/__init__.py": "from networkx.classes.graph import DiGraph\n", "networkx/classes/__init__.py": "",
         "networkx/classes/graph.py": "class Graph: nodes = {7: 'seven'}\nclass DiGraph(Graph): pass\n"}  # fmt: skip
POSITIONS = """
from npu_shim.compat.python import aliases
aliases.install()
import librosa, networkx
assert librosa.filters.mel(22050, 2048, 80) == librosa.filters.mel(22050, 2048, n_mels=80) == (22050, 2048, 80, 0.0)
assert librosa.istft(1, 256, 1024, "hann") == (1, 256, None, "hann")
for wrong in ((1, 2, 3, 4, 5, 6, 7, 8), (1, 2)):
    try:
        librosa.filters.mel(*wrong, sr=3)
    except TypeError as error:
        assert "positional" in str(error), error
    else:
        assert False
assert networkx.DiGraph().node[7] == "seven"
"""


def test_arguments_by_position_and_attributes_of_later_libraries(tmp_path):
    for name, text in LATER.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", POSITIONS], env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "librosa.filters.mel takes sr, n_fft, n_mels by position here" in done.stderr
    assert done.stderr.count("Graph.node, which NetworkX 2.4 removed, is nodes here") == 1


def test_labels_of_any_kind_are_averages():
    said = []


    def today(label, image=None, colors=None, alpha=0.3, bg_label=0, *, kind="overlay"):
        return label, image, bg_label, kind

    label2rgb = libraries.takes_any_kind(today, said.append)
    assert label2rgb(1, 2, None, 0.5, 3) == (1, 2, 3, "overlay")
    assert label2rgb(1, 2, kind="avg", bg_label=0) == (1, 2, 0, "avg")
    assert said == []
    assert label2rgb(1, 2, kind="mix") == (1, 2, -1, "avg")
    assert said == [
        "label2rgb(kind='mix'), which scikit-image 0.16 refuses, is kind='avg' here",
        "label2rgb without bg_label, which is 0 since scikit-image 0.19, takes -1 here",
    ]


def test_masks_are_resized_as_numbers():
    said = []

    def resize(image, output_shape, order=None, mode="reflect"):
        return image.dtype.kind, order

    takes = libraries.takes_truths(resize, said.append)
    mask = np.eye(4) > 0
    assert takes(mask, (2, 2)) == ("b", None)
    assert takes(mask, (2, 2), order=0) == ("b", 0)
    assert takes(mask.astype(np.uint8), (2, 2), 1) == ("u", 1)
    assert said == []
    assert takes(mask, (2, 2), 1) == takes(mask, (2, 2), order=1) == ("f", 1)
    assert set(said) == {"resize of bools with an order, which scikit-image 0.19 refuses, is of 0s and 1s here"}


@pytest.fixture
def weights(tmp_path):
    """A file of a dict of arrays, as VGG's weights are passed on."""
    np.save(str(tmp_path / "vgg16.npy"), {"conv1": np.ones(2)}, allow_pickle=True)
    return str(tmp_path / "vgg16.npy")


def test_pickled_objects_are_read_where_the_user_allows_it(weights, monkeypatch):
    said = []
    load = libraries.explains_pickles(np.load, said.append)
    monkeypatch.setenv(libraries.PICKLES, "on")
    assert list(load(weights, encoding="latin1").item()) == ["conv1"]
    assert said == ["numpy.load reads pickled objects here, as until NumPy 1.16.2: NPU_SHIM_PICKLES is on"]
    np.save(weights, np.arange(3))
    assert load(weights).tolist() == [0, 1, 2]
    assert len(said) == 1


def test_pickled_objects_are_refused_with_the_way_out(weights, monkeypatch):
    load = libraries.explains_pickles(np.load, SAID.append)
    monkeypatch.delenv(libraries.PICKLES, raising=False)
    with pytest.raises(ValueError, match=r"vgg16.npy' holds pickled.* NumPy 1\.16\.2.* set NPU_SHIM_PICKLES=on"):
        load(weights, encoding="latin1")
    with pytest.raises(ValueError, match=r"^(?!.*NPU_SHIM)"):  # the script has decided
        load(weights, allow_pickle=False)
    assert load(weights, allow_pickle=True).shape == ()
    archive = weights.replace(".npy", ".npz")
    np.savez(archive, params=np.array([np.zeros(3), None], dtype=object), sizes=np.arange(2))
    kind = type(np.load(archive))
    monkeypatch.setattr(kind, "__getitem__", libraries.explains_pickles_inside(kind.__getitem__, SAID.append))
    with np.load(archive) as loaded:
        assert loaded["sizes"].tolist() == [0, 1]
        with pytest.raises(ValueError, match=r"'params' holds pickled.* set NPU_SHIM_PICKLES=on"):
            loaded["params"]
        with pytest.raises(KeyError):
            loaded["none"]
    monkeypatch.setenv(libraries.PICKLES, "onn")
    with pytest.raises(ConfigError, match=r"NPU_SHIM_PICKLES is .onn., expected on or off .did you mean .on."):
        load(weights)


def test_cast_gives_arrays_of_a_dtype():
    given = libraries.cast[np.float32]([1, 2])
    assert given.dtype == np.float32
    assert given.tolist() == [1, 2]
    assert libraries.cast["int64"](np.array([1.5])).tolist() == [1]


# what SciPy 1.1.0 gives for them
STRETCHED = [([[-1, 0.0], [1, 2]], [[0, 85], [170, 255]]), ([[0, 300]], [[0, 255]]), ([[1.0, 1]], [[0, 0]])]
RAMP = np.arange(12).reshape(3, 4) * 20


@pytest.mark.parametrize(("given", "expected"), STRETCHED)
def test_images_are_stretched_to_bytes(given, expected):
    assert scipy_images.bytescale(np.array(given)).tolist() == expected


@pytest.mark.parametrize(
    ("given", "size", "how", "expected"),
    [
        (RAMP, (2, 3), "bilinear", [[42, 70, 98], [158, 186, 213]]),
        (RAMP / 10.0 - 1, 0.5, "bicubic", [[106, 149]]),
        (np.array([[5, 9]], "uint8"), 200, "nearest", [[5, 5, 9, 9], [5, 5, 9, 9]]),
    ],
)
def test_images_are_resized(given, size, how, expected):
    pytest.importorskip("PIL")
    assert scipy_images.imresize(given, size, how).tolist() == expected


def test_images_are_written_turned_and_read_again(tmp_path):
    pytest.importorskip("PIL")
    color = (np.arange(24).reshape(2, 4, 3) * 10).astype("uint8")
    scipy_images.imsave(str(tmp_path / "a.png"), color)
    assert scipy_images.imread(str(tmp_path / "a.png")).tolist() == color.tolist()
    assert scipy_images.imread(str(tmp_path / "a.png"), flatten=True).dtype == "float32"
    assert scipy_images.imrotate(RAMP, 90).tolist() == [[58, 104, 197, 0], [34, 81, 174, 0], [11, 58, 150, 0]]
    channels_first = scipy_images.toimage(np.moveaxis(color, -1, 0))
    assert scipy_images.fromimage(channels_first).tolist() == color.tolist()
    with pytest.raises(ValueError, match="suitable array shape"):
        scipy_images.toimage(np.zeros((5, 5, 1)))


def test_rows_are_appended_to_a_frame():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2]})
    assert libraries.with_rows(frame, {"a": 3}, ignore_index=True)["a"].tolist() == [1, 2, 3]
    assert libraries.with_rows(frame, [{"a": 3}, {"a": 4}]).index.tolist() == [0, 1, 0, 1]
    assert libraries.with_rows(frame["a"], frame["a"]).tolist() == [1, 2, 1, 2]
    assert libraries.as_matrix(frame).tolist() == [[1], [2]]
    with pytest.raises(TypeError, match="ignore_index"):
        libraries.with_rows(frame, {"a": 3})


def test_structural_similarity_takes_multichannel():
    metrics = pytest.importorskip("skimage.metrics")
    image = np.random.RandomState(0).rand(9, 9, 3)
    similar = libraries.takes_multichannel(metrics.structural_similarity, SAID.append)
    wanted = metrics.structural_similarity(image, image * 0.5, channel_axis=-1, data_range=2.0)
    assert similar(image, image * 0.5, multichannel=True) == wanted
    assert 0 < wanted < 1


def test_graphs_are_sparse_matrices():
    nx, sparse = pytest.importorskip("networkx"), pytest.importorskip("scipy.sparse")
    graph = nx.path_graph(3)
    matrix = libraries.gives_matrices(lambda g: sparse.csr_array(np.eye(3)), SAID.append)(graph)
    assert sparse.isspmatrix(matrix)
    assert sparse.isspmatrix(libraries.gives_matrices(nx.adjacency_matrix, SAID.append)(graph))
    assert libraries.to_numpy_matrix(graph).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_enum_values_in_one_string():
    parser = pytest.importorskip("absl.flags._argument_parser").EnumParser

    class Words(parser):
        __init__ = libraries.takes_enum_words(parser.__init__, SAID.append)

    assert Words("keras', 'graph_rewrite").parse("graph_rewrite") == "graph_rewrite"
    with pytest.raises(ValueError, match="should be one of"):
        Words(["a", "b"]).parse("c")


@pytest.mark.filterwarnings("ignore:The binary mode")
def test_bytes_as_numbers():
    of_bytes = libraries.takes_bytes(np.fromstring, SAID.append)
    assert of_bytes(b"\1\0\2\0", "<i2").tolist() == [1, 2]
    assert of_bytes("1 2", sep=" ").tolist() == [1, 2]


ITERATORS = """
import logging
import numpy as np
from npu_shim.compat.python import aliases
logging.basicConfig()
aliases.install()
rows = [np.arange(3), np.arange(3) + 3]
for name in ("stack", "vstack", "hstack", "dstack", "column_stack"):
    function = getattr(np, name)
    for given in (map(np.copy, rows), (row for row in rows), rows, np.array(rows)):
        assert np.array_equal(function(given), function(rows)), name
assert np.stack(map(np.copy, rows), axis=1).shape == np.stack(arrays=rows, axis=1).shape == (3, 2)
assert np.vstack(tup=rows).shape == (2, 3)
"""


def test_numpy_stacks_what_an_iterator_gives():
    ran = subprocess.run([sys.executable, "-c", ITERATORS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "numpy.stack takes iterators here" in ran.stderr


RAGGED = """
import logging
import numpy as np
from npu_shim.compat.python import aliases
logging.basicConfig()
aliases.install()
for function in (np.array, np.asarray, np.asanyarray):
    found = function([[1, 2], [3]])
    assert (found.dtype, found.shape, found.tolist()) == (object, (2,), [[1, 2], [3]])
assert [each.shape for each in np.array([np.ones(2), np.ones(3)])] == [(2,), (3,)]
assert np.array([np.ones((2, 3)), np.ones((3, 3))]).shape == (2,)
assert np.array([[1, 2], [3]], ndmin=2).shape == (1, 2)
rows = [[1, 2], [3]]
assert (np.ndim(rows), np.shape(rows), np.size(rows)) == (1, (2,), 2)
assert (np.ndim([rows[0]]), np.shape([rows[0]]), np.size(rows[0], axis=0)) == (2, (1, 2), 2)
for refused in (lambda: np.array([[1, 2], [3]], np.float32), lambda: np.asarray([[1, 2], [3]], dtype=int)):
    try:
        refused()
    except ValueError:
        continue
    raise AssertionError("rows of different lengths are no array of numbers")
assert np.array([[1, 2], [3, 4]]).dtype == int and np.array([1.5], np.float32).dtype == np.float32
# arrays of one element among numbers; the answers are those of NumPy 1.18
A = np.array
for given, dtype, wanted in (
    ([1.0, 2.0, A([5.0])], np.float32, [1, 2, 5]), ([A([5.0]), A(3.0)], "f", [5, 3]), ((1, A([[[5]]])), "i8", [1, 5]),
    ([1, A([5.7])], int, [1, 5]), ([1, A([5.7])], bool, [True, True]), ([1, A([-1])], np.uint8, [1, 255]),
    ([[1, A([5])], [2, 3]], "f", [[1, 5], [2, 3]]), ([A([[5]]), [1]], "f", [[5], [1]]), ([1, A(["7"])], "f", [1, 7]),
    ([1, A([5 + 1j])], "c8", [1, 5 + 1j]), ([1, A([5])], "i4,f4", [(1, 1), (5, 5)]),
    ([1, A([1e300])], "f", [1, np.inf]), ([1, A([5])], object, [1, A([5])]), ([1, A([5])], None, [1, A([5])]),
):
    for function in (np.array, np.asarray, np.asanyarray):
        for found in (function(given, dtype), function(given, dtype=dtype)):
            assert (found.dtype, found.tolist()) == (np.dtype(dtype or object), wanted), (given, dtype, found)
found = np.array([1, A([5])], "f", ndmin=2)
assert (found.dtype, found.tolist()) == (np.float32, [[1, 5]])
for given, dtype in (
    ([1, A([5, 6])], "f"), ([1, A([])], "f"), ([1, [5]], "f"), ([[1, 2], A([5])], "f"), ([1, A([5 + 1j])], "f"),
    ([1, A([None])], "f"), ([1, A(["x"])], "f"), ([1, A([5])], str), ([[1, A([5])], [2]], "f"), ([1, [A([5])]], "f"),
):
    try:
        found = np.array(given, dtype)
    except ValueError:
        continue
    raise AssertionError((given, dtype, found))
assert np.loads(np.arange(3).dumps()).tolist() == [0, 1, 2]
"""


def test_rows_of_different_lengths_are_objects():
    ran = subprocess.run([sys.executable, "-c", RAGGED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 0, ran.stderr
    if tuple(map(int, np.__version__.split(".")[:2])) >= (1, 24):
        assert "numpy.array of rows of different lengths or shapes" in ran.stderr
        assert "numpy.array of numbers and arrays of one element, which NumPy 1.24 refuses, is an array" in ran.stderr


def test_a_sound_file_is_written(tmp_path):
    wavfile = pytest.importorskip("scipy.io.wavfile")
    libraries.output.write_wav(str(tmp_path / "a.wav"), np.array([0, 0.25, -0.5], "float32"), 8000, norm=True)
    rate, samples = wavfile.read(str(tmp_path / "a.wav"))
    assert (rate, samples.tolist()) == (8000, [0, 0.5, -1])


def test_histograms_take_normed():
    said = []
    histogram = arrays.takes_normed(np.histogram, said.append)
    numbers, bins = [1, 2, 2, 3], [1, 2, 4]
    assert np.array_equal(histogram(numbers, 2)[0], np.histogram(numbers, 2)[0])
    assert said == []
    assert np.array_equal(histogram(numbers, 2, normed=True)[0], np.histogram(numbers, 2, density=True)[0])
    assert np.array_equal(histogram(numbers, 2, normed=False)[0], np.histogram(numbers, 2)[0])
    np.testing.assert_allclose(histogram(numbers, bins, normed=True)[0], [1 / 7, 3 / 7])  # NumPy 1.16.6's
    both = arrays.takes_normed(np.histogram2d, said.append)(numbers, numbers, 2, normed=True)[0]
    np.testing.assert_allclose(both, np.histogram2d(numbers, numbers, 2, density=True)[0])


def test_a_number_of_samples_may_be_a_float():
    said = []
    linspace = arrays.takes_whole_counts(np.linspace, said.append)
    assert linspace(0, 1, 5).tolist() == linspace(0, 1, 5.0).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert len(said) == 1


@pytest.mark.parametrize(
    ("dtype", "kind", "by_script", "expected"),
    [("f4", float, True, True), ("f4", float, False, False), ("i4", int, True, True), ("i4", float, True, False),
     ("f4", np.float64, True, False), ("f4", "float64", True, True), ("f8", float, False, True)],
)  # fmt: skip
def test_a_type_of_python_is_its_kind_of_numbers(dtype, kind, by_script, expected, monkeypatch):
    monkeypatch.setattr(arrays.callers, "by_script", lambda: by_script)
    said = []

    def today(arg1, arg2):
        generic = isinstance(arg2, type) and issubclass(arg2, np.generic)
        return issubclass(np.dtype(arg1).type, arg2 if generic else np.dtype(arg2).type)

    assert arrays.takes_python_types(today, said.append)(np.dtype(dtype), kind) is expected
    assert len(said) == (expected and dtype != "f8")
