"""Libraries as scripts of 2019 use them: names, arguments by position, by old names and words; what is only told of."""

import os
import subprocess
import sys
import types

import numpy as np
import pytest

from npu_shim.compat.names import missing
from npu_shim.compat.python import (
    image_functions,
    libraries_then,
    parameters,
    scipy_functions,
    sklearn_functions,
    then,
)

PANDAS = """
import numpy as np, pandas as pd
frame = pd.DataFrame({"a": [1, 2], "b": ["x.y", "y"]})
assert frame.drop("a", 1).columns.tolist() == ["b"] and frame["b"].dtype == object
assert frame.ix[0, "a"] == 1 and frame.ix[:, 0].tolist() == [1, 2] and frame.T.ix[0].tolist() == [1, 2]
assert frame["b"].str.replace(".", "-").tolist() == ["x-y", "y"] and frame["b"].str.split(".", 1).str.len().max() == 2
assert pd.get_dummies(["x", "y"]).values.dtype == np.uint8 and pd.unique(["x", "x"]).tolist() == ["x"]
assert [name for name, _ in frame.groupby(["a"])] == [1, 2] and pd.np is np
frame = pd.DataFrame({"a": [1, 3], "b": ["x", "y"], "c": ["z", "z"]})
assert frame.get_value(1, "a") == 3 and frame.a.get_value(0) == 1 and frame.get_value(1, 0, takeable=True) == 3
assert frame.set_value(0, "a", 5).a.set_value(1, 4).tolist() == [5, 4]
assert frame.mean().index.tolist() == frame.corr().columns.tolist() == ["a"]
assert frame.groupby("c").sum().columns.tolist() == ["a"] and frame.groupby("c").b.sum().tolist() == ["xy"]
letters = pd.DataFrame({"a": [1], "b": pd.Categorical(["x"], ["x", "y"])})
assert len(letters.groupby("b").a.sum()) == 2 and len(letters.groupby("b", observed=True).a.sum()) == 1
days = pd.Series([1, 2], pd.to_datetime(["2019-01-31", "2019-02-01"], infer_datetime_format=True)).to_frame("a")
assert days["2019-02"].a.tolist() == [2]
import pickle
assert all(pickle.loads(pickle.dumps(function)) is function for function in (pd.read_csv, pd.concat, pd.get_dummies))
assert pd.Series([1.0, np.nan]).fillna(method="ffill").tolist() == [1, 1]
open("t.csv", "w").write("a b\\n1 x\\n1 2 3\\n")
assert pd.read_csv("t.csv", header=None, prefix="X", sep="#").columns.tolist() == ["X0"]
assert pd.read_csv("t.csv", delim_whitespace=True, error_bad_lines=False, warn_bad_lines=False).shape == (1, 2)
for ask, told in (
    (lambda: pd.Panel, "pandas.Panel is not in pandas %s: pandas 0.25.3 had it; use a dict of DataFrames"),
    (lambda: frame.from_items, "pandas.DataFrame.from_items is not in pandas %s: pandas 0.25.3 had it; use"),
):
    try:
        ask()
    except AttributeError as error:
        assert told % pd.__version__ in str(error), error
    else:
        assert False
"""
SKLEARN = """
import numpy as np
from sklearn.metrics import confusion_matrix, log_loss
from sklearn.linear_model.base import LinearRegression
from sklearn.utils.linear_assignment_ import linear_assignment
from sklearn.ensemble import RandomForestRegressor
from sklearn.externals.six import StringIO
assert confusion_matrix([0, 1], [0, 1], [1, 0]).tolist() == [[1, 0], [0, 1]]
assert abs(log_loss([0, 1], [0.0, 0.0], 1e-2) + np.log(0.99 * 0.01) / 2) < 1e-6
assert linear_assignment(np.array([[3, 1, 4], [1, 2, 9]])).tolist() == [[0, 1], [1, 0]]
from sklearn.linear_model import Lasso
assert abs(Lasso(0.1).fit([[0.0], [1]], [0, 1]).coef_[0] - 0.6) < 1e-6
import pickle
assert pickle.loads(pickle.dumps(log_loss)) is log_loss and pickle.loads(pickle.dumps(confusion_matrix))
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.grid_search import GridSearchCV
from sklearn.manifold import TSNE
from sklearn.metrics import precision_recall_curve
from sklearn.model_selection import KFold
from sklearn.preprocessing import OneHotEncoder
assert KMeans(2).n_init == 10 and KMeans(2, n_init=4).n_init == 4
assert (MiniBatchKMeans().n_init, MiniBatchKMeans().batch_size) == (3, 100)
assert (TSNE().init, TSNE().learning_rate) == ("random", 200)
from sklearn.decomposition import FastICA
from sklearn.preprocessing import QuantileTransformer
assert FastICA().whiten in (True, "arbitrary-variance") and QuantileTransformer().subsample == 100000
assert precision_recall_curve([0, 1, 1], [0.1, 0.4, 0.8])[1].tolist() == [1, 0.5, 0]
assert OneHotEncoder().fit(np.array([["a"]])).get_feature_names().tolist() == ["x0_a"]
for make, said in (
    (lambda: OneHotEncoder(n_values=3), "OneHotEncoder.__init__ takes no n_values any more: since scikit-learn 0.22"),
    (lambda: KFold(4, n_folds=2), "model_selection has folds of n_splits"),
):
    try:
        make()
    except TypeError as error:
        assert said in str(error), error
    else:
        assert False
forest = RandomForestRegressor(2, "mse", n_jobs=1, max_features="auto")
assert (forest.criterion, forest.max_features) == ("squared_error", 1.0)
try:
    from sklearn.datasets import fetch_mldata
except ImportError as error:
    assert "scikit-learn 0.20.4 had it; use sklearn.datasets.fetch_openml" in str(error), error
else:
    assert False
"""
IMAGES = """
import numpy as np
from PIL import Image, ImageDraw
import skimage.draw, skimage.filters, skimage.measure, skimage.morphology
assert len(ImageDraw.Draw(Image.new("L", (40, 20))).textsize("abc")) == 2
assert Image.new("L", (9, 9)).crop(np.array([1, 1, 3, 3])).size == (2, 2)
assert skimage.draw.circle(2, 2, 1)[0].tolist() == [2]
assert skimage.morphology.dilation(np.eye(3), selem=np.ones((2, 2))).sum() == 7
assert skimage.measure.label(np.eye(3, dtype=int), 4).max() == 3
assert skimage.morphology.remove_small_objects(np.ones((2, 2), bool), 4).all()
one, other = np.random.RandomState(0).rand(2, 8, 8)
ratio = skimage.measure.compare_psnr
assert ratio(one, other, 1) == ratio(im_true=one, im_test=other, data_range=1)
import scipy.misc
image = np.full((3, 3), 9, np.uint8)
image[1, 1] = 90
assert scipy.misc.imfilter(image, "smooth")[1, 1] == 40
from PIL import ImageFont
assert ImageFont.load_default().getsize("hello") == (30, 11)
import skimage.feature
assert skimage.feature.peak_local_max(np.eye(5)[2:3].T * np.eye(5)[2], indices=False).tolist()[2] == [0, 0, 1, 0, 0]
image = np.random.RandomState(0).rand(4, 4, 3)
assert np.allclose(skimage.filters.gaussian(image, 1)[..., 0], skimage.filters.gaussian(image[..., 0], 1))
"""
SCIPY = """
import numpy as np, scipy, scipy.integrate, scipy.signal, scipy.sparse, scipy.stats
assert scipy.sqrt(-1) == 1j and scipy.mean([1, 3]) == 2 and scipy.signal.hann(3).tolist() == [0, 1, 0]
assert scipy.stats.mode([1, 2, 2])[0][0] == 2 and scipy.sparse.eye(2).A.tolist() == [[1, 0], [0, 1]]
assert scipy.sparse.find(scipy.sparse.csr_matrix([[0, 1], [2, 0]]))[2].tolist() == [2, 1]
assert np.allclose(scipy.stats.mannwhitneyu([1.0, 2, 3, 4], [2.5, 5, 6, 7]), (2, 0.0562), atol=1e-4)
import scipy.special
assert scipy.special.factorialk(25, 1) == np.prod(range(1, 26), dtype=object)
assert abs(scipy.integrate.simps([1, 2, 3, 5]) - 7.916666) < 1e-5  # SciPy 1.4
"""
PLOTS = """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
plt.style.use("seaborn-whitegrid")
figure = plt.figure()
assert figure.gca(projection="3d").name == "3d" and plt.gca(projection="polar").name == "polar"
plt.grid(b=True)
figure.canvas.set_window_title("a title")
"""
PYTHON = """
import cgi, html.parser, json, random, xml.etree.ElementTree
assert json.loads("[1]", encoding="utf-8") == [1] and cgi.escape('<"') == '&lt;"'
assert cgi.escape('<"', True) == "&lt;&quot;" and html.parser.HTMLParser().unescape("&lt;") == "<"
assert xml.etree.ElementTree.ElementTree(xml.etree.ElementTree.fromstring("<a/>")).getiterator("a")
for own in random, random.Random():
    own.seed(2)
    assert own.sample({1, 2, 3, 9, 11}, 2) == [1, 11]  # of Python 3.7
    letters = list("abcd")
    own.shuffle(letters, lambda: 0.3)
    assert "".join(letters) == "dcab", letters
"""


@pytest.mark.parametrize(
    ("library", "script"),
    [
        *[("pandas", PANDAS), ("sklearn", SKLEARN), ("skimage", IMAGES), ("scipy", SCIPY)],
        *[("matplotlib", PLOTS), ("cgi", PYTHON)],
    ],
)
def test_a_script_of_the_time_runs(library, script, tmp_path):
    pytest.importorskip(library)
    code = "from npu_shim.compat.python import aliases; aliases.install()\n" + script
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=str(tmp_path), env={**os.environ, "NPU_SHIM_LOG": "off"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


def test_a_reader_of_cdflib_1_can_be_closed(tmp_path):
    (tmp_path / "cdflib").mkdir()
    (tmp_path / "cdflib" / "__init__.py").write_text("from .cdfread import CDF\n")
    reader = "import io\nclass CDF:\n    def __init__(self):\n        self._f = io.BytesIO()\n"
    (tmp_path / "cdflib" / "cdfread.py").write_text(reader)
    code = "from npu_shim.compat.python import aliases; aliases.install()\n"
    code += "import cdflib; file = cdflib.CDF(); opened = file._f; file.close(); file.close(); assert opened.closed"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=str(tmp_path), env={**os.environ, "NPU_SHIM_LOG": "on"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("cdflib") == 1  # said once


def test_pandas_3_is_told_of_to_a_script_that_makes_a_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    (tmp_path / "script.py").write_text("import pandas as pd\n%s" % ("pd.DataFrame({'a': [1]})\n" * 2))
    said = []
    for code in ("import pandas as pd; pd.Series", "import runpy; runpy.run_path('script.py')"):
        code = "import pandas\nfrom npu_shim.compat.python import aliases; aliases.install()\n" + code
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], cwd=str(tmp_path), env={**os.environ, "NPU_SHIM_LOG": "on"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert not done.returncode, done.stdout
        said.append(done.stdout.count("leaves a frame as it is"))
    assert said == [0, int(pandas.__version__.startswith("3."))]


def test_what_is_told_leaves_what_an_heir_has_of_another_class():
    class Told:
        pass

    class Other:
        name = "its own"

    class Heir(Told, Other):
        pass

    module = type(sys)("library")
    module.Told, module.__version__ = Told, "2"
    row = {"title": "Library", "gone": {"1": {"library": {"Told.name": "", "Told.lost": "Told.kept", "gone": ""}}}}
    then._tell(module, "library", row)
    assert Heir().name == "its own"
    assert not hasattr(Told, "lost")
    with pytest.raises(AttributeError, match=r"Told\.lost is not in Library .*: Library 1 had it; use Told\.kept"):
        _ = Told().lost
    with pytest.raises(AttributeError, match=r"library\.gone is not in Library"):
        _ = module.gone
    with pytest.raises(AttributeError, match="has no attribute 'misspelt'"):
        _ = module.misspelt


def test_arguments_have_their_old_names_words_and_defaults():
    said = []

    def f(image, channel_axis=None, mode="new", rng=0):
        return image, channel_axis, mode, rng

    by_name = parameters.takes_names({"multichannel": "channel_axis", "seed": "rng"})(f, said.append)
    assert by_name(1, multichannel=True, seed=3) == (1, -1, "new", 3)
    assert by_name(1, multichannel=False) == (1, None, "new", 0)
    by_word = parameters.takes_words("mode", {"old": "new"})(f, said.append)
    assert by_word(1, None, "old")[2] == by_word(1, mode="old")[2] == "new"
    assert by_word(1, mode=[2])[2] == [2]
    by_default = parameters.has_default("mode", "then", lambda image: image == 1)(f, said.append)
    assert [by_default(1)[2], by_default(2)[2], by_default(1, mode="mine")[2]] == ["then", "new", "mine"]
    assert parameters.has_default("rng", 0)(f, said.append) is f
    assert parameters.has_default("rng", 5, today=1)(f, said.append) is f
    assert parameters.has_default("rng", 5, today=0)(f, None) is not f
    with pytest.raises(TypeError, match="takes no seed any more: it is rng"):
        parameters.refuses({"seed": "it is rng"})(f, said.append)(1, seed=3)
    less = parameters.leaves_out({"normalize": {False}})(f, said.append)
    assert less(1, normalize=False) == (1, None, "new", 0)
    with pytest.raises(TypeError, match="normalize"):
        less(1, normalize=True)
    with pytest.raises(TypeError, match="seed"):
        by_name(1, seed=3, rng=2)
    assert len(said) == 6
    assert all("here" in line for line in said)


@pytest.mark.parametrize(("angle", "meant"), [(90, ((2, 3), -90)), (18.5, ((3, 2), -71.5)), (-30, ((2, 3), -30))])
def test_rectangles_have_the_angles_of_opencv_4_2(angle, meant):
    rectangle = image_functions.takes_old_angles(lambda points: ((1, 1), (2, 3), angle), lambda text: None)
    assert rectangle(None)[1:] == meant
    assert image_functions.takes_old_angles(rectangle, None) is rectangle


def test_results_of_opencv_have_their_old_form():
    contours = image_functions.gives(image_functions.lists_in)(lambda: ((1, 2), None), None)
    assert contours() == ([1, 2], None)
    boxes = image_functions.gives(image_functions.column)(lambda empty: () if empty else np.array([3, 1]), None)
    assert (boxes(True), boxes(False).tolist()) == ((), [[3], [1]])
    encoded = image_functions.gives(image_functions.columns_in)(lambda: (True, np.zeros(4)), None)
    assert encoded()[1].shape == (4, 1)
    assert image_functions.gives(list)(boxes, None) is boxes


def test_a_wrapper_of_keras_has_the_tags_of_an_estimator():
    base = pytest.importorskip("sklearn.base")
    module = type(sys)("keras.wrappers.scikit_learn")
    for name in ("KerasClassifier", "KerasRegressor"):
        setattr(module, name, type(name, (), {"fit": None, "get_params": None}))
    sklearn_functions.has_tags(module, None)
    if hasattr(base.BaseEstimator, "__sklearn_tags__"):
        assert base.is_classifier(module.KerasClassifier())
        assert base.is_regressor(module.KerasRegressor())


def test_opencv_is_also_its_own_module(monkeypatch):
    module = type(sys)("cv2")
    monkeypatch.setitem(sys.modules, "cv2.cv2", None)
    libraries_then.LOADED["cv2"](module, None)
    assert sys.modules["cv2.cv2"] is module.cv2 is module


@pytest.mark.filterwarnings("ignore")
def test_gym_is_told_of_by_its_version_where_it_has_one():
    said = []  # a folder `gym` of the script's own may have none
    for names in ({}, {"__version__": "0.21.0"}, {"__version__": "0.26.2"}):
        libraries_then.LOADED["gym"](types.SimpleNamespace(**names), said.append)
    assert [text[:10] for text in said] == ["gym 0.26.2"]


def test_kernels_are_turned_by_a_list_of_slices():
    def convert(kernel):
        turned = slice(None, None, -1)
        return np.copy(kernel[[turned, turned, slice(None), slice(None)]])

    kernel = np.arange(24).reshape(2, 3, 2, 2)
    turned = scipy_functions.copies_kernels(convert, None)(kernel)
    assert (turned == kernel[::-1, ::-1]).all()


def test_the_table_names_what_libraries_had():
    assert {"pandas", "scipy", "sklearn", "skimage", "PIL", "h5py", "gym"} <= set(then.table())
    assert then.lost_modules()["skimage.novice"] == "!scikit-image 0.15.0 had it"
    assert missing.load("builtins.dict") is dict
