"""modify_mixlist: the format, the eleven legal wishes, what becomes of each list, and real users' files."""

import itertools
import json

import pytest
import reference_material

from npu_shim.options import precision
from npu_shim.options.ops import mixlist, op_names
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.tables.op_table import Entry, OpTable

LETTERS = "ABCDEFGHIJK"
LISTS = ("white", "gray", "black")
WISHES = [(way, listed) for way in ("add", "remove") for listed in LISTS]

# what is asked -> the list afterwards of an op that was white, gray, black
RESULTS = {
    "remove black": ("white", "gray", "gray"),
    "remove white": ("gray", "gray", "black"),
    "add gray": ("white", "gray", "black"),
    "add gray, remove black": ("white", "gray", "gray"),
    "add gray, remove white": ("gray", "gray", "black"),
    "add white": ("white", "white", "white"),
    "add white, remove gray": ("white", "white", "white"),
    "add white, remove black": ("white", "white", "white"),
    "add black": ("black", "black", "black"),
    "add black, remove gray": ("black", "black", "black"),
    "add black, remove white": ("black", "black", "black"),
}
ILLEGAL = [
    ", ".join("%s %s" % wish for wish in wishes)
    for size in range(1, 7)
    for wishes in itertools.combinations(WISHES, size)
    if ", ".join("%s %s" % wish for wish in wishes) not in RESULTS
]


def table(listed="gray", ops=LETTERS, **roles):
    """A table in which every op is on one list."""
    entries = {op: Entry(op, listed, role=roles.get(op, "computes"), tensorflow=(op,)) for op in ops}
    return OpTable("test", entries, {op: (op,) for op in ops})


def written(asked):
    """The text of a mixlist from {op: "add gray, remove black"}."""
    lists = {}
    for op, wishes in asked.items():
        for wish in wishes.split(", "):
            way, listed = wish.split()
            lists.setdefault(listed + "-list", {}).setdefault("to-" + way, []).append(op)
    return json.dumps(lists)


def lists_after(text, before):
    merged = mixlist.merge(mixlist.parse(text, "m.json"), before)
    return {op: entry.listed for op, entry in merged.table.entries.items()}


def test_there_are_eleven_legal_wishes_of_sixty_three():
    assert len(RESULTS) == len(mixlist.LEGAL) == 11
    assert len(ILLEGAL) == 52


@pytest.mark.parametrize("asked", RESULTS)
def test_result_of_a_legal_wish(asked):
    after = tuple(lists_after(written({"A": asked}), table(before))["A"] for before in LISTS)
    assert after == RESULTS[asked]


@pytest.mark.parametrize("asked", ILLEGAL)
def test_every_other_wish_is_refused(asked):
    with pytest.raises(ConfigError) as caught:
        mixlist.parse(written({"B": "add black", "A": asked}), "some/m.json")
    assert caught.value.code == "INTERNAL"
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith("modify_mixlist: file 'some/m.json' op A cannot be both: ")
    for wish in asked.split(", "):
        way, listed = wish.split()
        assert "%s the %s-list" % ({"add": "added to", "remove": "removed from"}[way], listed) in str(caught.value)


def test_all_contradictions_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        mixlist.parse(written({"A": "add white, add black", "B": "remove gray"}), "m")
    assert [problem.split()[4] for problem in caught.value.problems] == ["A", "B"]
    assert "removed from the gray-list alone" in caught.value.problems[1]


# The graph engine's own test: modify_mixlist_case1 to case6 with op_mix_list1 to op_mix_list5, whose ops A to K are, in
# three runs, gray, black and white by default.
OP_MIX_LIST = {
    1: written({
        "A": "add gray", "B": "remove black", "C": "remove white", "D": "add gray, remove black", "E": "add black",
        "F": "add black, remove white", "G": "add black, remove gray", "H": "add gray, remove white", "I": "add white",
        "J": "add white, remove black", "K": "add white, remove gray",
    }),
    2: written(dict.fromkeys(LETTERS, "add black")),
    3: written(dict.fromkeys(LETTERS, "add white")),
    4: written({"A": "add black, add white"}),
    5: '{"whi-list": {"to-add": ["A"]}, "blcak-list": {"to-add": ["B"]}}',
}  # fmt: skip
EXPECTED = {
    (1, "gray"): {"black": "EFG", "white": "IJK", "gray": "ABCDH"},
    (1, "black"): {"gray": "BD", "black": "ACEFGH", "white": "IJK"},
    (1, "white"): {"gray": "CH", "black": "EFG", "white": "ABDIJK"},
    (2, "gray"): {"black": LETTERS},
    (2, "black"): {"black": LETTERS},
    (2, "white"): {"black": LETTERS},
    (3, "gray"): {"white": LETTERS},
    (3, "black"): {"white": LETTERS},
    (3, "white"): {"white": LETTERS},
}


@pytest.mark.parametrize(("number", "before"), EXPECTED)
def test_modify_mixlist_cases(number, before):
    expected = {op: listed for listed, ops in EXPECTED[number, before].items() for op in ops}
    assert lists_after(OP_MIX_LIST[number], table(before)) == expected


@pytest.mark.parametrize(("number", "word"), [(4, "op A"), (5, "did you mean 'white-list'?")])
def test_modify_mixlist_cases_that_fail(number, word):
    with pytest.raises(ConfigError, match=word.replace("?", r"\?")):
        mixlist.parse(OP_MIX_LIST[number], "m.json")


def test_modify_mixlist_case_of_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.json' cannot be read: No such file") as caught:
        mixlist.read(str(tmp_path / "absent.json"))
    assert caught.value.code == "INTERNAL"


ACCEPTED = {
    "{}": "an empty object",
    '{"gray-list": {}}': "a list without changes",
    '{"black-list": {"to-add": [], "to-remove": []}}': "empty changes",
    '{"black-list": {"to-add": ["A", "A"]}}': "an op twice in one array",
    '// black\n{"black-list": /* all\n of them */ {"to-add": ["A"]}} // end': "both kinds of comment",
    '{"black-list": {"to-add": ["a//b", "/*c*/"]}}': "comment signs inside a string",
    '{"black-list": {"to-add": ["A"]}} ] and more': "text behind the closing brace",
    '\n\t {"black-list": {"to-add": ["A"]}}': "white space before it",
    '{"black-list": {"to-add": ["no such op"]}}': "an unknown op",
}
REFUSED = {
    "": "is not JSON",
    "// nothing but this": "is not JSON",
    "{": "is not JSON",
    "[]": r"the file is \[\], expected an object with black-list and white-list and gray-list",
    "null": "the file is null",
    '{"grey-list": {"to-add": []}}': r"has the key 'grey-list'.*did you mean 'gray-list'\?",
    '{"whi-list": {}}': r"did you mean 'white-list'\?",
    '{"black_list": {}}': r"did you mean 'black-list'\?",
    '{"black-list": []}': "'black-list' is",
    '{"black-list": {"to_add": []}}': r"'black-list' has the key 'to_add', expected to-add, to-remove.*'to-add'\?",
    '{"black-list": {"to-add": "A"}}': "'to-add' of 'black-list' is \"A\", expected a list of op types",
    '{"black-list": {"to-add": ["A", 3]}}': "expected a list of op types",
    '{"black-list": {"to-add": [["A"]]}}': "expected a list of op types",
    '{"black-list": {"to-add": null}}': "expected a list of op types",
    '{"black-list": {"to-add": ["A",]}}': "is not JSON",
    '{"black-list": {"to-add": ["A"]},}': "is not JSON",
    "{'black-list': {}}": "is not JSON",
    "[" * 100000: "is not JSON",
}


@pytest.mark.parametrize("text", ACCEPTED, ids=list(ACCEPTED.values()))
def test_accepted(text):
    wishes = mixlist.parse(text, "m").wishes
    assert set(wishes.values()) <= {frozenset({("add", "black")})}
    assert bool(wishes) == ('["' in text)


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:40] or "an empty file")
def test_refused(text):
    with pytest.raises(ConfigError, match=REFUSED[text]) as caught:
        mixlist.parse(text, "m.json")
    assert caught.value.code == "INTERNAL"
    assert all(problem.startswith("modify_mixlist: file 'm.json' ") for problem in caught.value.problems)


def test_of_a_repeated_key_the_last_counts_and_a_warning_says_so():
    text = '{"black-list": {"to-add": ["A"]}, "white-list": {}, "black-list": {"to-add": ["B"]}}'
    assert list(mixlist.parse(text, "m.json").wishes) == ["B"]
    merged = mixlist.merge(mixlist.parse(text, "m.json"), table())
    assert merged.warnings == (
        "modify_mixlist: file 'm.json' has 'black-list' more than once in one object; the last counts",
    )


def test_files_relative_paths_and_byte_order_mark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.json").write_text(written({"A": "add black"}), encoding="utf-8-sig")
    assert list(mixlist.read("m.json").wishes) == list(mixlist.read("./m.json").wishes) == ["A"]
    (tmp_path / "latin.json").write_bytes(b'{"black-list": {"to-add": ["\xe9"]}}')
    for path, word in (("latin.json", "UTF-8"), (".", "Is a directory"), ("a\0b", "null")):
        with pytest.raises(ConfigError, match=word):
            mixlist.read(path)


def test_an_empty_path_is_not_configured():
    plain = precision.resolve({"precision_mode": "allow_mix_precision"})
    assert precision.resolve({"precision_mode": "allow_mix_precision", "modify_mixlist": ""}) == plain


def test_removal_from_a_list_that_the_op_is_not_on_only_warns():
    merged = mixlist.merge(mixlist.parse(written({"A": "remove black", "B": "remove white"}), "m"), table("white"))
    assert merged.warnings == ("modify_mixlist: A: not on the black-list, so it cannot be removed from it",)
    assert (merged.table.entries["A"].listed, merged.table.entries["B"].listed) == ("white", "gray")


@pytest.mark.parametrize("listed", ["white", "black"])
def test_adding_to_the_gray_list_alone_changes_nothing_and_says_so(listed):
    merged = mixlist.merge(mixlist.parse('{"gray-list": {"to-add": ["A"]}}', "m"), table(listed))
    assert merged.table.entries["A"].listed == listed
    (warning,) = merged.warnings
    assert warning.startswith("modify_mixlist: A: stays on the %s-list: only to-remove it from there" % listed)
    moved = '{"gray-list": {"to-add": ["A"]}, "%s-list": {"to-remove": ["A"]}}' % listed
    assert not mixlist.merge(mixlist.parse(moved, "m"), table(listed)).warnings


def test_what_a_session_gets_to_say(tmp_path):
    path = tmp_path / "m.json"
    path.write_text(written({"MatMulV2": "remove black", "Conv2D": "add black", "MatMu1V2": "add black"}))
    chosen = precision.resolve({"precision_mode": "allow_mix_precision", "modify_mixlist": str(path)})
    assert [text.split(": ")[1] for text in chosen.warnings] == ["MatMulV2"]
    assert chosen.matched == (
        "modify_mixlist: MatMulV2: MatMul, _FusedMatMul stays white",
        "modify_mixlist: Conv2D: Conv2D, _FusedConv2D was white, becomes black",
    )
    assert [text.split(": ")[1] for text in chosen.unmatched] == ["MatMu1V2"]
    assert chosen.unmatched_in({"MatMul": 4}) == (chosen.unmatched[0] + "; that would have met 4 nodes of this graph",)


def test_one_name_may_stand_for_several_ops_and_the_report_says_for_which():
    done = mixlist.merge(mixlist.parse(written({"BNTrainingUpdate": "add black"}), "m"), profile())
    assert [mixlist.describe_match(match) for match in done.matched] == [
        "modify_mixlist: BNTrainingUpdate: %s was gray, becomes black"
        % "FusedBatchNorm, FusedBatchNormV2, FusedBatchNormV3, _FusedBatchNormEx"
    ]
    done = mixlist.merge(mixlist.parse(written({"ReduceSumD": "add black"}), "m"), profile())
    assert [mixlist.describe_match(match) for match in done.matched] == ["modify_mixlist: ReduceSumD: Sum stays black"]


NAMES = {
    "MatMul": {"MatMul", "_FusedMatMul"},  # TensorFlow's name of an Ascend entry means the op itself
    "MatMulV2": {"MatMul", "_FusedMatMul"},
    "BatchMatMul": {"BatchMatMul", "BatchMatMulV2", "_MklFusedBatchMatMulV2"},
    "BatchMatMulV2": {"BatchMatMulV3"},
    "Softmax": {"Softmax"},
    "SoftmaxV2": {"Softmax"},
    "LogSoftmaxV2": {"LogSoftmax"},
    "Sum": {"Sum"},
    "ReduceSum": {"Sum"},
    "ReduceMean": {"Mean"},
    "ReduceMax": {"Max"},
    "ReduceAll": set(),
    "BatchNorm": {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx"},
    "ApplyAdam": {"ApplyAdam", "ResourceApplyAdam"},
    "RollV2": {"Roll"},
    "Conv2D": {"Conv2D", "_FusedConv2D"},
    "StridedSliceD": {"StridedSlice"},
    "TileD": {"Tile"},
    "ApplyAdamD": {"ApplyAdam", "ResourceApplyAdam"},
    "Muls": {"Mul"},
    "ConfusionSoftmaxGrad": {"Softmax"},
}


def profile():
    return precision.profile_table("ascend910")


@pytest.mark.parametrize("name", NAMES)
def test_names_of_ascend_and_of_tensorflow(name):
    expected = {"MatMul"} if name == "MatMul" else NAMES[name]
    merged = mixlist.merge(mixlist.parse(written({name: "add black"}), "m"), profile())
    assert {op for match in merged.matched for op, _, _ in match.changes} == expected
    assert [missing.name for missing in merged.unmatched] == ([] if expected else [name])
    assert all(merged.table.entries[op].listed == "black" for op in expected)


def test_the_one_name_that_means_different_ops_says_which_it_took():
    merged = mixlist.merge(mixlist.parse(written({"BatchMatMulV2": "add black"}), "m"), profile())
    [text] = merged.warnings
    assert text.startswith("modify_mixlist: BatchMatMulV2: Ascend's name of TensorFlow's BatchMatMulV3; ")
    assert text.endswith("TensorFlow's own BatchMatMulV2 is Ascend's BatchMatMul")
    assert merged.table.entries["BatchMatMulV2"].listed == "white"


def test_several_names_for_one_op():
    def after(asked):
        merged = mixlist.merge(mixlist.parse(written(asked), "m"), profile())
        return merged.table.entries["Mean"].listed, len(merged.warnings)

    assert after({"ReduceMeanD": "add white", "ReduceMean": "add white"}) == ("white", 0)
    # a wish that decides nothing takes nothing back
    assert after({"ReduceMeanD": "add white", "ReduceMean": "add gray"}) == ("white", 0)
    assert after({"ReduceMean": "add gray", "ReduceMeanD": "add white"}) == ("white", 0)
    merged = mixlist.merge(
        mixlist.parse('{"white-list": {"to-add": ["ReduceMean"]}, "black-list": {"to-add": ["ReduceMeanD"]}}', "m"),
        profile(),
    )
    assert merged.table.entries["Mean"].listed == "black"
    [text] = merged.warnings
    assert text.startswith("modify_mixlist: several names stand for Mean: ")
    assert text.endswith("ReduceMean makes it white, ReduceMeanD makes it black; the last counts")


def test_a_list_given_to_an_op_that_moves_data_decides():
    before = table("gray", A="moves", B="moves")
    after = mixlist.merge(mixlist.parse(written({"A": "add black", "B": "add gray"}), "m"), before).table
    assert (after.entries["A"].role, after.entries["A"].listed) == ("computes", "black")
    assert after.entries["B"].role == "moves"


@pytest.mark.parametrize("role", ["pinned", "source", "container", "cast"])
def test_a_list_given_to_an_op_that_has_no_use_for_it_warns(role):
    def warnings(asked):
        return mixlist.merge(mixlist.parse(written({"A": asked}), "m"), table("gray", A=role)).warnings

    [text] = warnings("add white")
    assert text.startswith("modify_mixlist: A: keeps its dtype whatever its list, because it ")
    # black means as written, and so it is
    assert warnings("add black") == ()
    assert warnings("add gray") == ()


def test_unmatched_names_say_what_they_would_have_met():
    merged = mixlist.merge(mixlist.parse(written({"MatMu1V2": "add black", "Qqqqq": "add black"}), "m"), profile())
    first, second = merged.unmatched
    counts = {"MatMul": 11, "_FusedMatMul": 1, "Sum": 5}
    text = "modify_mixlist: MatMu1V2: no op type of this name, so it changes nothing (did you mean 'MatMulV2'?)"
    assert op_names.describe(first) == text
    assert op_names.describe(first, counts) == text + "; that would have met 12 nodes of this graph"
    assert op_names.describe(first, {"MatMul": 1}) == text + "; that would have met 1 node of this graph"
    assert op_names.describe(first, {}) == text + "; that would have met 0 nodes of this graph"
    assert op_names.describe(second, counts) == "modify_mixlist: Qqqqq: no op type of this name, so it changes nothing"


@pytest.mark.parametrize("name", ["SigmoidCrossEntropyWithLogits", "KLDiv", "MseLoss", "SGD", "Reduction"])
def test_ascend_ops_without_tensorflow_op_are_not_called_unknown(name):
    merged = mixlist.merge(mixlist.parse(written({name: "add black"}), "m"), profile())
    text = op_names.describe(merged.unmatched[0], {"MatMul": 3})
    assert text.startswith("modify_mixlist: %s: an op of Ascend's without a TensorFlow op, so it changes" % name)


def test_names_without_tensorflow_op_hide_no_op():
    known = profile()
    assert [name for name in op_names.without_tensorflow() if known.ops(name)] == []


def test_real_mixlists():
    mixlists = reference_material.table("mixlists")
    assert len(mixlists) == 29
    missing = {}
    named = set()
    for name, lists in mixlists.items():
        read = mixlist.parse(json.dumps(lists), name)
        merged = mixlist.merge(read, profile())
        assert {match.name for match in merged.matched} | {name.name for name in merged.unmatched} == set(read.wishes)
        named |= set(read.wishes)
        missing.update((name.name, name.suggestion) for name in merged.unmatched)
    assert len(named) > 40
    assert missing == {"MatMu1V2": "MatMulV2", "matmulv2": "MatMulV2"}


@pytest.mark.parametrize(("length", "told"), [(58, '"%s"' % ("x" * 58)), (59, '"' + "x" * 56 + "...")])
def test_a_long_value_is_shortened(length, told):
    with pytest.raises(ConfigError) as raised:
        mixlist.parse('{"black-list": "%s"}' % ("x" * length), "m")
    assert "is %s, expected an object" % told in str(raised.value)
