"""SciPy, pandas, Pillow, scikit-learn, scikit-image, OpenCV, h5py, cdflib and gym as `aliases` restores them: tables.

`scripts/compare_versions --library NAME` lists what differs; what is only told of is in `then.json`.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

from npu_shim.compat.python import (
    image_functions,
    libraries,
    pandas_functions,
    scipy_functions,
    sklearn_functions,
)
from npu_shim.compat.python.parameters import ANY, all_of, has_default, leaves_out, refuses, takes_names, takes_words

_SCIPY, _IMAGES = scipy_functions.__name__ + ".", image_functions.__name__ + "."
_SKLEARN, _PANDAS = sklearn_functions.__name__ + ".", pandas_functions.__name__ + "."
_IGNORED = frozenset([None, True, False, "auto", "warn", "deprecated"])


_THREADS = leaves_out({"n_jobs": ANY, "precompute_distances": _IGNORED, "presort": _IGNORED})
_TREES = all_of(takes_words("criterion", sklearn_functions.FORESTS), _THREADS)
_CLASSES = all_of(_TREES, takes_words("max_features", {"auto": "sqrt"}))
_VALUES = all_of(_TREES, takes_words("max_features", {"auto": 1.0}))
_LINEAR = leaves_out({"normalize": {False}})
_LABELS = has_default("start_label", 0)

# as aliases.NAMES, and so on
NAMES: dict[str, dict[str, tuple[str, str]]] = {
    "PIL": {"PILLOW_VERSION": ("PIL.__version__", "Pillow 9")},
    "PIL.Image": {"PILLOW_VERSION": ("PIL.__version__", "Pillow 9")},
    "PIL.ImageMath": {"eval": ("PIL.ImageMath.unsafe_eval", "Pillow 12")},
    "scipy": {name: (target, "SciPy 1.12") for name, target in scipy_functions.OF_NUMPY.items()},
    "scipy.signal": {
        **{name: ("scipy.signal.windows." + name, "SciPy 1.13") for name in scipy_functions.WINDOWS},
        "hanning": ("scipy.signal.windows.hann", "SciPy 1.5"),
    },
    "scipy.integrate": {
        "simps": (_SCIPY + "simps", "SciPy 1.14"),
        "trapz": ("scipy.integrate.trapezoid", "SciPy 1.14"),
        "cumtrapz": ("scipy.integrate.cumulative_trapezoid", "SciPy 1.14"),
    },
    "scipy.linalg": {
        "pinv2": ("scipy.linalg.pinv", "SciPy 1.9"),
        **{name: ("numpy." + name, "SciPy 1.13") for name in ("tril", "triu")},
        "kron": ("numpy.kron", "SciPy 1.17"),
    },
    "scipy.special": {"btdtri": ("scipy.special.betaincinv", "SciPy 1.14")},
    "pandas": {
        "np": ("numpy", "pandas 2.0"),
        "datetime": ("datetime.datetime", "pandas 2.0"),
        "value_counts": (_PANDAS + "value_counts", "pandas 3.0"),
    },
    "pandas.io.json": {"json_normalize": ("pandas.json_normalize", "pandas 1.0")},
    "sklearn.metrics": {"calinski_harabaz_score": ("sklearn.metrics.calinski_harabasz_score", "scikit-learn 0.23")},
    "sklearn.neighbors": {"DistanceMetric": ("sklearn.metrics.DistanceMetric", "scikit-learn 1.3")},
    "sklearn.utils.fixes": {"signature": ("inspect.signature", "scikit-learn 0.21")},
    "sklearn.ensemble._forest": {"_joblib_parallel_args": ("builtins.dict", "scikit-learn 1.1")},
    "sklearn.feature_extraction.image": {
        "extract_patches": ("sklearn.feature_extraction.image._extract_patches", "scikit-learn 0.24"),
    },
    "skimage.draw": {"circle": (_IMAGES + "circle", "scikit-image 0.19")},
    "skimage.feature": {
        "greycomatrix": ("skimage.feature.graycomatrix", "scikit-image 0.21"),
        "greycoprops": ("skimage.feature.graycoprops", "scikit-image 0.21"),
        "register_translation": (_IMAGES + "register_translation", "scikit-image 0.19"),
    },
    "skimage.measure": {
        "compare_nrmse": ("skimage.metrics.normalized_root_mse", "scikit-image 0.18"),
        "marching_cubes_lewiner": ("skimage.measure.marching_cubes", "scikit-image 0.19"),
    },
    "skimage.morphology": {"watershed": ("skimage.segmentation.watershed", "scikit-image 0.19")},
    "skimage.util": {"pad": ("numpy.pad", "scikit-image 0.19")},
}
METHODS = {
    "PIL.ImageDraw": {
        "ImageDraw.textsize": (_IMAGES + "text_size", "Pillow 10"),
        "ImageDraw.multiline_textsize": (_IMAGES + "text_size", "Pillow 10"),
    },
    "PIL.ImageFont": {"ImageFont.getsize": (libraries.__name__ + ".font_size", "Pillow 10")},
    "cdflib.cdfread": {"CDF.close": (libraries.__name__ + ".close_file", "cdflib 1.0")},
    "pandas.core.series": {
        "Series.get_value": (_PANDAS + "value_of_series", "pandas 1.0"),
        "Series.set_value": (_PANDAS + "with_value_in_series", "pandas 1.0"),
        "Series.iteritems": ("pandas.Series.items", "pandas 2.0"),
        "Series.as_matrix": ("pandas.Series.to_numpy", "pandas 1.0"),
        "Series.get_values": ("pandas.Series.to_numpy", "pandas 1.0"),
    },
    "pandas.core.frame": {
        "DataFrame.get_values": ("pandas.DataFrame.to_numpy", "pandas 1.0"),
        "DataFrame.get_value": (_PANDAS + "value_of_frame", "pandas 1.0"),
        "DataFrame.set_value": (_PANDAS + "with_value_in_frame", "pandas 1.0"),
    },
    **{
        module: {cls + ".get_feature_names": (_SKLEARN + "feature_names", "scikit-learn 1.2")}
        for module, cls in (
            ("sklearn.feature_extraction.text", "CountVectorizer"),
            ("sklearn.feature_extraction._dict_vectorizer", "DictVectorizer"),
            ("sklearn.preprocessing._polynomial", "PolynomialFeatures"),
        )
    },
    "sklearn.preprocessing._encoders": {
        "OneHotEncoder.get_feature_names": (
            "sklearn.preprocessing.OneHotEncoder.get_feature_names_out",
            "scikit-learn 1.2",
        )
    },
}
ATTRIBUTES = {
    "scipy.sparse._matrix": {
        "spmatrix.A": (_SCIPY + "dense", "SciPy 1.14"),
        "spmatrix.H": (_SCIPY + "adjoint", "SciPy 1.14"),
    },
    "pandas.core.generic": {"NDFrame.ix": (_PANDAS + "Indexer", "pandas 1.0")},
    "sklearn.naive_bayes": {"GaussianNB.sigma_": ("var_", "scikit-learn 1.2")},
}
FUNCTIONS: dict[str, dict[str, Callable[..., Any]]] = {
    "PIL.Image": {
        "Image.crop": image_functions.takes_boxes,
        "Image.resize": image_functions.tells_of_filters("Image.resize"),
    },
    "PIL.ImageFont": {"load_default": image_functions.gives_bitmaps},
    "PIL.ImageOps": {"fit": image_functions.tells_of_filters("ImageOps.fit")},
    "cv2": {
        "findContours": image_functions.gives(image_functions.lists_in),
        "split": image_functions.gives(list),
        "imencode": image_functions.gives(image_functions.columns_in),
        "dnn.NMSBoxes": image_functions.gives(image_functions.column),
        "minAreaRect": image_functions.takes_old_angles,
        "getRotationMatrix2D": image_functions.takes_scalars(lambda number: number.item()),
        **dict.fromkeys(
            ("rectangle", "line", "circle", "ellipse", "putText", "resize"), image_functions.takes_scalars(int)
        ),
    },
    "scipy.stats": {"mode": scipy_functions.keeps_an_axis, "mannwhitneyu": scipy_functions.is_one_sided},
    "scipy.special": {"factorialk": has_default("exact", True)},
    "scipy.sparse.linalg": {"lsqr": all_of(has_default("atol", 1e-8), has_default("btol", 1e-8))},
    "scipy.sparse": {"find": scipy_functions.sorts_by_column},
    "scipy.signal": {"get_window": takes_words("window", {"hanning": "hann"})},
    "scipy.linalg": {
        "eigh": leaves_out({"turbo": _IGNORED}),
        "solve": leaves_out({"sym_pos": {False}}),
    },
    "pandas": {
        **dict.fromkeys(("unique", "factorize"), pandas_functions.takes_lists),
        **dict.fromkeys(("read_csv", "read_table"), pandas_functions.takes_old_options),
        "get_dummies": has_default("dtype", "uint8"),
        "to_datetime": all_of(leaves_out({"infer_datetime_format": ANY}), pandas_functions.tells_of_3),
        "date_range": all_of(takes_names({"closed": "inclusive"}), pandas_functions.tells_of_3),
    },
    "pandas.core.series": {"Series.__init__": pandas_functions.tells_of_3},
    "pandas.core.generic": {
        "NDFrame.fillna": pandas_functions.takes_a_method,
        "NDFrame.to_csv": all_of(
            libraries.takes_positions("sep", "na_rep", "float_format", "columns", "header", "index", "index_label"),
            takes_names({"line_terminator": "lineterminator"}),
        ),
    },
    "pandas.core.frame": {
        "DataFrame.to_dict": takes_words("orient", {"record": "records"}),
        "DataFrame.__init__": pandas_functions.tells_of_3,
        "DataFrame.__getitem__": pandas_functions.takes_dates,
        **dict.fromkeys(
            ("DataFrame.groupby", "DataFrame.pivot_table"),
            has_default("observed", False, pandas_functions.has_categories),
        ),
        **dict.fromkeys(pandas_functions.OF_FRAMES, pandas_functions.leaves_texts),
    },
    "pandas.core.groupby.generic": dict.fromkeys(
        pandas_functions.OF_GROUPS, has_default("numeric_only", True, pandas_functions.has_texts)
    ),
    "pandas.core.groupby.groupby": {"BaseGroupBy.__iter__": pandas_functions.iterates_by_name},
    "pandas.core.strings.accessor": {
        **dict.fromkeys(("StringMethods.split", "StringMethods.rsplit"), libraries.takes_positions("n", "expand")),
        "StringMethods.replace": has_default("regex", True, pandas_functions.is_pattern),
    },
    "sklearn.metrics": {
        "log_loss": sklearn_functions.takes_eps,
        "mean_squared_error": sklearn_functions.takes_squared,
        "precision_recall_curve": sklearn_functions.cuts_full_recall,
        "auc": leaves_out({"reorder": _IGNORED}),
    },
    "sklearn.model_selection": {
        **dict.fromkeys(
            ("KFold.__init__", "StratifiedKFold.__init__"),
            all_of(sklearn_functions.takes_idle_seeds, refuses(sklearn_functions.FOLDS)),
        ),
        "GridSearchCV.__init__": leaves_out({"iid": {False, "warn", "deprecated"}}),
    },
    "sklearn.cluster": {
        "KMeans.__init__": all_of(
            takes_words("algorithm", {"full": "lloyd", "auto": "lloyd"}), _THREADS, has_default("n_init", 10)
        ),
        "MiniBatchKMeans.__init__": all_of(has_default("n_init", 3), has_default("batch_size", 100)),
    },
    "sklearn.manifold": {
        "TSNE.__init__": all_of(has_default("init", "random"), has_default("learning_rate", 200.0)),
        "MDS.__init__": all_of(has_default("n_init", 4), has_default("eps", 1e-3)),
    },
    "sklearn.decomposition": {
        "FastICA.__init__": has_default("whiten", "arbitrary-variance", today="unit-variance"),
        "MiniBatchDictionaryLearning.__init__": has_default("batch_size", 3),
    },
    "sklearn.ensemble": {
        "AdaBoostClassifier.__init__": sklearn_functions.tells_of_samme,
        "RandomForestClassifier.__init__": _CLASSES,
        "ExtraTreesClassifier.__init__": _CLASSES,
        "RandomForestRegressor.__init__": _VALUES,
        "ExtraTreesRegressor.__init__": _VALUES,
        **{
            name: all_of(_THREADS, takes_words("loss", sklearn_functions.BOOSTS))
            for name in ("GradientBoostingClassifier.__init__", "GradientBoostingRegressor.__init__")
        },
    },
    "sklearn.tree": {"DecisionTreeClassifier.__init__": _CLASSES, "DecisionTreeRegressor.__init__": _VALUES},
    "sklearn.linear_model": {
        "LogisticRegression.__init__": all_of(
            takes_words("penalty", {"none": None}), leaves_out({"multi_class": {"auto", "multinomial", "warn"}})
        ),
        **dict.fromkeys(("LinearRegression.__init__", "Ridge.__init__", "Lasso.__init__"), _LINEAR),
        **dict.fromkeys(
            ("SGDClassifier.__init__", "SGDRegressor.__init__"), takes_words("loss", sklearn_functions.GRADIENTS)
        ),
    },
    "sklearn.preprocessing._encoders": {
        "OneHotEncoder.__init__": refuses({"n_values": "since scikit-learn 0.22 it is categories=[range(n), ...]"}),
    },
    "sklearn.preprocessing._data": {"QuantileTransformer.__init__": has_default("subsample", 100000)},
    "sklearn.preprocessing": {"MinMaxScaler.__init__": sklearn_functions.takes_lists("feature_range", tuple)},
    "sklearn.utils.class_weight": {
        "compute_class_weight": sklearn_functions.takes_lists("classes", libraries.array_of),
    },
    "skimage.color": {"rgb2gray": image_functions.takes_grey},
    "skimage.feature": {
        "peak_local_max": image_functions.gives_masks,
        "blob_dog": has_default("threshold", 2.0),
        "hog": takes_names({"visualise": "visualize"}),
    },
    "skimage.util": {"random_noise": takes_names({"seed": "rng"})},
    "skimage.metrics._structural_similarity": {"structural_similarity": libraries.takes_multichannel},
    "skimage.filters": {"gaussian": has_default("channel_axis", -1, image_functions.has_colours)},
    "skimage.io": {"imread": takes_names({"as_grey": "as_gray"})},
    "skimage.measure": {"label": image_functions.takes_neighbors, "profile_line": has_default("mode", "constant")},
    "skimage.metrics": {
        name: all_of(
            libraries.takes_positions("data_range"), takes_names({"im_true": "image_true", "im_test": "image_test"})
        )
        for name in ("peak_signal_noise_ratio", "normalized_root_mse")
    },
    "skimage.morphology": {
        "remove_small_objects": image_functions.takes_least_sizes("min_size"),
        "remove_small_holes": image_functions.takes_least_sizes("area_threshold"),
    },
    "skimage.segmentation": {
        "slic": all_of(_LABELS, has_default("channel_axis", None, image_functions.is_grey)),
    },
    "keras.utils.conv_utils": {"convert_kernel": scipy_functions.copies_kernels},
}
_MOVED = {  # public names of modules that are private since scikit-learn 0.22, and gone since 0.24
    "cluster": {"k_means_": "_kmeans", "dbscan_": "_dbscan", "hierarchical": "_agglomerative"},
    "datasets": {"base": "_base"},
    "decomposition": {"pca": "_pca", "nmf": "_nmf", "truncated_svd": "_truncated_svd"},
    "ensemble": {"gradient_boosting": "_gb", "weight_boosting": "_weight_boosting", "bagging": "_bagging"},
    "feature_extraction": {"stop_words": "_stop_words"},
    "linear_model": {
        **{name: "_" + name for name in ("base", "logistic", "ridge", "coordinate_descent", "least_angle")},
        "stochastic_gradient": "_stochastic_gradient",
    },
    "manifold": {"t_sne": "_t_sne"},
    "metrics": {name: "_" + name for name in ("classification", "ranking", "regression", "scorer")},
    "neighbors": {name: "_" + name for name in ("base", "classification", "regression", "unsupervised")},
    "preprocessing": {"data": "_data", "label": "_label"},
    "svm": {"classes": "_classes", "base": "_base"},
    "tree": {"tree": "_classes", "export": "_export"},
    "utils": {"testing": "_testing"},
}
MODULES = {
    **{
        "sklearn.%s.%s" % (package, old): ("sklearn.%s.%s" % (package, new), "scikit-learn 0.24")
        for package, names in _MOVED.items()
        for old, new in names.items()
    },
    "sklearn.utils.linear_assignment_": (__package__ + ".sklearn_linear_assignment", "scikit-learn 0.23"),
    "sklearn.externals.six": ("six", "scikit-learn 0.23"),
    "sklearn.externals.six.moves": ("six.moves", "scikit-learn 0.23"),
    "pandas.util.testing": ("pandas.testing", "pandas 2.0"),
    "skimage.morphology.selem": ("skimage.morphology.footprints", "scikit-image 0.21"),
    "skimage.measure.simple_metrics": ("skimage.measure", "scikit-image 0.18"),
    "h5py.highlevel": ("h5py", "h5py 3.0"),
}


def _gym(module: Any, say: Callable[[str], None]) -> None:
    version = getattr(module, "__version__", "0.0")  # a folder of the script's own may have that name, and no version
    if tuple(map(int, version.split(".")[:2])) >= (0, 26):
        say(
            "gym %s's reset gives two values and step five: scripts of TensorFlow 1's time want one and four, "
            "pip install 'gym==0.25.2'" % version
        )


def _cv2(module: Any, say: Callable[[str], None]) -> None:
    # `from cv2 import cv2`, as editors of the time wrote it, loads OpenCV's own file a second time since 4.5.4
    sys.modules["cv2.cv2"] = module.cv2 = module


# module -> function of it, once it is loaded, and of what is told
LOADED: dict[str, Callable[[Any, Callable[[str], None]], None]] = {
    "pandas": pandas_functions.keeps_objects,
    "gym": _gym,
    "cv2": _cv2,
    "keras.wrappers.scikit_learn": sklearn_functions.has_tags,
    "npu_shim.compat.keras.scikit_learn": sklearn_functions.has_tags,
}
