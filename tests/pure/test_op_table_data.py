"""The op table's files as data: shape, reasons, names. What TensorFlow has to say about them is in tests/tf."""

import collections
import json
import pathlib
import re

import pytest
import reference_material

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
PROFILE = CONFIGS / "ascend910"
KEYS = {"precision_reduce", "role", "engine", "dtypes", "keep", "tensorflow", "note"}
ROLES = {"moves", "source", "pinned", "container", "cast"}

# The vendor's flags as far as they are known, in patterns over Ascend IR names; an op that none matches is gray there.
VENDOR_WHITE = re.compile(
    r"(Depthwise)?Conv[23]D(Backprop(Input|Filter))?|MatMul(V2)?|BatchMatMul(V2)?|MaxPool|MaxPool3D|MaxPoolGrad|IsFinite|IsInf"
)
VENDOR_BLACK = re.compile(
    r"(Sparse)?Apply\w+|BiasAddGrad|Expm1|L2Loss|Log|Log1p|LogSoftmaxV2|Pow|ReduceProd|ReduceSum"
    r"|UnsortedSegment(Sum|Prod)|Xlog1py|Xlogy|SparseSegmentSumGrad|Enter|NextIteration"
)
# Real users' files have these, or are known to; they are slips and must not be taken for an op.
MISSPELT = {"MatMu1V2", "matmulv2", "Loglp"}


class DuplicateKey(ValueError):
    pass


def object_without_duplicates(pairs):
    counts = collections.Counter(key for key, _ in pairs)
    twice = [key for key, count in counts.items() if count > 1]
    if twice:
        raise DuplicateKey("%s appears twice" % ", ".join(twice))
    return dict(pairs)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=object_without_duplicates)


def rows():
    """(file name, IR op type, entry) of the whole profile, in reading order."""
    return [(path.name, name, entry) for path in sorted(PROFILE.glob("*.json")) for name, entry in read(path).items()]


def listed(entry):
    return {"true": "white", "false": "black"}.get(entry.get("precision_reduce", {}).get("flag"), "gray")


def vendor_listed(name):
    if VENDOR_WHITE.fullmatch(name):
        return "white"
    return "black" if VENDOR_BLACK.fullmatch(name) else "gray"


def entry_names():
    """Every name that the table understands -> IR op type of its entry; IR names win over TensorFlow's."""
    names = {op: name for _, name, entry in rows() for op in entry.get("tensorflow", [name])}
    names.update((name, name) for _, name, _ in rows())
    names.update(read(CONFIGS / "ascend_names.json")["variants"])
    return names


def complaints(name, entry):
    """What is wrong with the shape of one entry."""
    complaints = ["unknown key %s" % key for key in sorted(set(entry) - KEYS)]
    flags = entry.get("precision_reduce")
    if flags is not None and (set(flags) != {"flag"} or flags["flag"] not in ("true", "false")):
        complaints.append("flag %r" % flags)
    if entry.get("role", "moves") not in ROLES:
        complaints.append("role %r" % entry["role"])
    if (entry.get("role") == "cast") != (name == "Cast"):
        complaints.append("exactly Cast has the role cast")
    if entry.get("engine", "cube") != "cube":
        complaints.append("engine %r" % entry["engine"])
    lists = [key for key in ("tensorflow", "dtypes", "keep") if key in entry]
    complaints += ["%s is not a list of different names" % key for key in lists if not different_names(entry[key])]
    if entry.get("role") and listed(entry) == "white":
        complaints.append("white, yet it does not compute")
    if entry.get("role") and listed(entry) == "black" and entry["role"] != "pinned":
        complaints.append("black beside a role that has no use for it")
    return complaints


def different_names(value):
    named = isinstance(value, list) and all(isinstance(v, str) and v for v in value)
    return named and 0 < len(value) == len(set(value))


def wants_note(name, entry):
    """Why this entry must say its reason, or None."""
    if entry.get("role") in ("pinned", "container"):
        return "it is %s" % entry["role"]
    if name.startswith("_"):
        return "it is a group of TensorFlow's own ops"
    if entry.get("keep"):
        return "it keeps an attribute"
    if listed(entry) != vendor_listed(name):
        return "it is %s, the vendor's is %s" % (listed(entry), vendor_listed(name))
    return None


def test_files_are_there_and_have_no_key_twice():
    assert len(sorted(PROFILE.glob("*.json"))) > 10
    assert len(rows()) > 400
    with pytest.raises(DuplicateKey, match="Add appears twice"):
        json.loads('{"Add": {}, "Sub": {}, "Add": {}}', object_pairs_hook=object_without_duplicates)


def test_entries_have_only_known_keys_flags_and_roles():
    assert {(file, name): complaints(name, entry) for file, name, entry in rows() if complaints(name, entry)} == {}


@pytest.mark.parametrize(
    "entry",
    [
        {"precision_reduce": {"flag": "True"}},
        {"precision_reduce": {"flag": "true"}, "role": "moves"},
        {"role": "gray"},
        {"role": "cast"},
        {"engine": "vector"},
        {"tensorflow": []},
        {"tensorflow": "MatMul"},
        {"tensorflow": ["MatMul", "MatMul"]},
        {"white": True},
    ],
)
def test_a_bad_entry_is_noticed(entry):
    assert complaints("MatMulV2", entry)


def test_no_op_has_two_entries():
    owners = collections.defaultdict(list)
    for file, name, entry in rows():
        owners["IR " + name].append(file)
        for op in entry.get("tensorflow", [name]):
            owners["TensorFlow " + op].append("%s %s" % (file, name))
    assert {op: where for op, where in owners.items() if len(where) > 1} == {}


def test_reasons_are_given_where_required_and_are_one_sentence():
    missing = {name: wants_note(name, e) for _, name, e in rows() if wants_note(name, e) and not e.get("note")}
    assert missing == {}
    for _, name, entry in rows():
        note = entry.get("note", "An ending.")
        assert note == note.strip(), name
        assert note.endswith("."), name
        assert note[0].isupper(), name


def test_cube_is_the_convolution_and_matrix_family_and_runs_in_float16_only():
    cube = {name: entry for _, name, entry in rows() if entry.get("engine") == "cube"}
    assert {"Conv2D", "Conv3DBackpropFilter", "DepthwiseConv2D", "MatMulV2", "BatchMatMul", "Einsum"} <= set(cube)
    assert {name for name, entry in cube.items() if listed(entry) != "white"} == set()
    assert {name for _, name, entry in rows() if "dtypes" in entry} == set(cube)
    assert {tuple(entry["dtypes"]) for entry in cube.values()} == {("float16",)}


def test_decisions_that_the_design_fixes():
    lists = {name: listed(entry) for _, name, entry in rows()}
    losses = ["SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits", "CTCLoss", "L2Loss"]
    assert {lists[name] for name in ["SoftmaxV2", "LogSoftmaxV2", *losses]} == {"black"}
    assert {lists[name] for name in ("ReduceSum", "ReduceMean", "ReduceProd", "BiasAddGrad")} == {"black"}
    assert {lists[name] for name in ("IsFinite", "IsInf", "ReduceMax", "ReduceMin", "BatchNorm", "Add")} == {"gray"}
    roles = {name: entry.get("role") for _, name, entry in rows()}
    for name in roles:
        if re.match("(Sparse)?Apply[A-Z]", name):
            assert (roles[name], lists[name]) == ("pinned", "black"), name


def test_every_variant_points_to_an_entry_and_hides_nothing():
    known = {name for _, name, _ in rows()} | {op for _, name, e in rows() for op in e.get("tensorflow", [name])}
    variants = read(CONFIGS / "ascend_names.json")["variants"]
    entries = {name for _, name, _ in rows()}
    assert {v: base for v, base in variants.items() if base not in entries} == {}
    assert sorted(set(variants) & known) == []


def test_only_one_name_means_different_ops_on_ascend_and_in_tensorflow():
    owner = {op: name for _, name, entry in rows() for op in entry.get("tensorflow", [name])}
    clashes = {name: owner[name] for _, name, _ in rows() if name in owner and owner[name] != name}
    # Ascend's BatchMatMulV2 is TensorFlow's BatchMatMulV3; TensorFlow's BatchMatMulV2 is Ascend's BatchMatMul
    assert clashes == {"BatchMatMulV2": "BatchMatMul"}


def test_the_names_that_users_trip_over():
    names = entry_names()
    expected = {
        "MatMul": "MatMulV2", "BatchMatMulV3": "BatchMatMulV2", "Softmax": "SoftmaxV2", "LogSoftmax": "LogSoftmaxV2",
        "Sum": "ReduceSum", "ReduceSumD": "ReduceSum", "Mean": "ReduceMean", "ReduceMeanD": "ReduceMean",
        "FusedBatchNormV3": "BatchNorm", "BNTrainingUpdate": "BatchNorm", "FusedBatchNormGradV3": "BatchNormGrad",
        "ResourceApplyAdam": "ApplyAdam", "ApplyAdamD": "ApplyAdam", "Roll": "RollV2", "Muls": "Mul", "TileD": "Tile",
        "AddV2": "Add", "StridedSliceD": "StridedSlice", "ConfusionSoftmaxGrad": "SoftmaxV2", "Cast": "Cast",
    }  # fmt: skip
    assert {name: names.get(name) for name in expected} == expected


def test_op_names_of_real_mixlists_resolve_unless_misspelt():
    names = entry_names()
    seen = set()
    for lists in reference_material.table("mixlists").values():
        seen.update(op for edits in lists.values() for ops in edits.values() for op in ops)
    assert {op for op in seen if op not in names} == seen & MISSPELT


def test_misspelt_names_are_not_ops():
    assert MISSPELT & set(entry_names()) == set()


def test_lines_are_short_enough_to_review():
    paths = [*sorted(PROFILE.glob("*.json")), CONFIGS / "ascend_names.json", CONFIGS / "other_versions.json"]
    longest = {path.name: max(map(len, path.read_text(encoding="utf-8").splitlines())) for path in paths}
    assert {name: length for name, length in longest.items() if length > 160} == {}
