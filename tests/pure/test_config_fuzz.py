"""Whatever stands in a mixlist, a customize_dtypes file or a parameter_map: ConfigError or a result that says it all.

Examples are few and always the same; NPU_SHIM_FUZZ=N searches N examples a test at random.
"""

import json
import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npu_shim.options import amp, precision
from npu_shim.options import table as options
from npu_shim.options.ops import customize, mixlist
from npu_shim.rewriter.errors import ConfigError

COUNT = int(os.environ.get("NPU_SHIM_FUZZ", "0"))
fuzz = settings(
    max_examples=COUNT or 100,
    derandomize=not COUNT,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
TABLE = precision.profile_table("ascend910")
NAMES = [
    "MatMul", "MatMulV2", "ReduceSumD", "Sum", "Softmax", "Reshape", "StridedSliceD", "Cast", "ApplyAdamD",
    "BatchMatMulV2", "ReduceMean", "ReduceMeanD", "MatMu1V2", "KLDiv", "", "a b", "\u767d", "//", "/*",
]  # fmt: skip

op_lists = st.lists(st.sampled_from(NAMES) | st.text(max_size=5), max_size=4)
words = st.sampled_from(["black-list", "white-list", "gray-list", "grey-list", "to-add", "to-remove", "to_add", ""])
right_lists = st.dictionaries(
    st.sampled_from(list(mixlist.LISTS)), st.dictionaries(st.sampled_from(mixlist.WAYS), op_lists), max_size=3
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=12,
)


def error_of(read):
    """The ConfigError of a function, or None; any other exception is the test's failure."""
    try:
        read()
    except ConfigError as error:
        return error
    return None


def asked_for(lists):
    """{op name: set of (way, list)} as a reader of the file would say it."""
    asked = {}
    for listed, ways in lists.items():
        for way, ops in ways.items():
            for op in ops:
                asked.setdefault(op, set()).add((way[3:], mixlist.LISTS[listed]))
    return asked


def expected_list(now, wish):
    """The list of one op of list `now` after one wish, or None where the wish says nothing."""
    for listed in ("black", "white"):
        if ("add", listed) in wish:
            return listed
    return "gray" if ("remove", now) in wish else None


@fuzz
@given(right_lists)
def test_no_rule_of_a_mixlist_is_dropped_silently(lists):
    asked = asked_for(lists)
    wrong = {op for op, wish in asked.items() if frozenset(wish) not in mixlist.LEGAL}
    error = error_of(lambda: mixlist.parse(json.dumps(lists), "m"))
    assert len(error.problems if error else ()) == len(wrong)
    if error:
        return
    read = mixlist.parse(json.dumps(lists), "m")
    merged = mixlist.merge(read, TABLE)
    assert {match.name for match in merged.matched} | {missing.name for missing in merged.unmatched} == set(asked)
    named = {op for name in asked for op in TABLE.ops(name)}
    assert {op for op in TABLE.entries if merged.table.entries[op] is not TABLE.entries[op]} <= named
    for op in named:
        names = [name for name in asked if op in TABLE.ops(name)]
        now = TABLE.entries[op].listed
        wanted = {expected_list(now, asked[name]) for name in names} - {None}
        assert merged.table.entries[op].listed in (wanted or {now})
        contradicted = any("several names stand for %s:" % op in text for text in merged.warnings)
        assert contradicted == (len(wanted) > 1)


@fuzz
@given(anything, st.text(max_size=6))
def test_any_json_is_a_mixlist_or_a_config_error(value, tail):
    parses_or_refuses(json.dumps(value) + tail)


@fuzz
@given(st.text(alphabet='{}[]":,/*\\ \n\tAab-list-to-add', max_size=60))
def test_any_text_is_a_mixlist_or_a_config_error(text):
    parses_or_refuses(text)


def parses_or_refuses(text):
    error = error_of(lambda: mixlist.merge(mixlist.parse(text, "m.json"), TABLE))
    if error:
        assert error.code == "INTERNAL"
        assert all(problem.startswith("modify_mixlist: file 'm.json' ") for problem in error.problems)


@fuzz
@given(right_lists, st.lists(st.sampled_from(["// x\n", "/* y */", " ", "\n"]), max_size=4))
def test_comments_change_nothing(lists, comments):
    text = json.dumps(lists)
    try:
        plain = mixlist.parse(text, "m")
    except ConfigError:
        return
    for comment in comments:
        text = comment + text.replace("{", "{" + comment, 1) + comment
    assert mixlist.parse(text, "m") == plain


@fuzz
@given(content=st.binary(max_size=80))
def test_any_bytes_are_a_file_or_a_config_error(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    for read in (lambda: mixlist.read(str(path)), lambda: customize.read(str(path), TABLE)):
        error = error_of(read)
        assert error is None or error.code == "INTERNAL"


dtype_texts = st.sampled_from(["float16", "FLOAT", "bf16", "int32", "", " ", "Float32"])
rule_names = st.sampled_from(["n", "a/b_1", "scope/MatMul", "OpTypes", "m"])
type_names = st.sampled_from(["MatMulV2", "MatMul", "Softmax", "SoftmaxV2", "matmulv2", "KLDiv"])
right_lines = st.tuples(
    rule_names.map("{}::".format) | type_names.map("OpType::{}:".format),
    st.lists(dtype_texts, max_size=3).map(",".join),
    st.lists(dtype_texts, max_size=2).map(",".join),
).map(lambda parts: "%sInputDtype:%s,OutputDtype:%s" % parts)


@fuzz
@given(st.lists(right_lines | st.sampled_from(["", "# n::x", "  "]), max_size=6))
def test_no_rule_of_a_customize_file_is_dropped_silently(lines):
    read = customize.parse("\n".join(lines), "c", TABLE)
    kept = {custom.line for custom in [*read.by_name.values(), *read.by_op.values()]}
    for number, line in enumerate(lines, 1):
        if "Dtype" not in line or number in kept:
            continue
        warned = any("line %d: " % number in text for text in read.warnings)
        assert warned or any(line.startswith("OpType::%s:" % missing.name) for missing in read.unmatched)


@fuzz
@given(st.text(max_size=40) | st.text(alphabet="nOpType::InputDtype,OutputDtype:float16 \n#", max_size=80))
def test_any_text_is_a_customize_file_or_a_config_error(text):
    error = error_of(lambda: customize.parse(text, "c", TABLE))
    if error:
        assert error.code == "INTERNAL"
        assert all(problem.startswith("customize_dtypes: file 'c', line ") for problem in error.problems)


def values_of(option):
    """Entries that a user may write for an option: right, nearly right, of another type, in another field."""
    accepted = [("s", value.encode()) if isinstance(value, str) else ("i", value) for value in option.accepted or ()]
    strange = [("s", b""), ("s", b"\xff"), ("s", b"a\0b"), ("b", True), ("i", -1)]
    foreign = [("f", 1.5), (None, None), ("list", [])]
    return st.sampled_from(accepted + strange + foreign) | st.integers().map(lambda i: ("i", i))


known = options.parameter_keys()
interesting = sorted(name for name in known if "precision" in name or "list" in name or name.startswith("npu_shim"))
keys = st.sampled_from(interesting) | st.sampled_from(sorted(known)) | st.text(max_size=8)
parameter_maps = st.lists(keys, max_size=5, unique=True).flatmap(
    lambda names: st.fixed_dictionaries(
        {name: values_of(known[name]) if name in known else st.just(("s", b"x")) for name in names}
    )
)


OWN_NAMES = ("npu_shim_ops_info_dir", "npu_shim_white_list", "npu_shim_black_list")


def mode_of(values):
    """Name of the mode that options ask for: by themselves, by an amp level, by a profile, or by the run mode."""
    level = values.get("npu_shim_amp_level")
    for option in ("precision_mode", "precision_mode_v2"):
        if values.get(option):
            return values[option]
    if set(values) & set(OWN_NAMES[1:]):
        return "allow_mix_precision"
    if level in amp.levels():
        return amp.levels()[level]["precision_mode"]["float16"]
    if str(values.get("npu_shim_profile")).startswith("grappler"):
        return "allow_mix_precision"
    return "force_fp16" if values.get("graph_run_mode") == 0 else "allow_fp32_to_fp16"


@fuzz
@given(parameter_maps)
def test_any_parameter_map_is_read_or_a_config_error(entries):
    values, unknown = options.read_values(entries)
    assert set(values) | {name for name, _ in unknown} == set(entries)
    problems = options.check_values(values)
    error = error_of(lambda: options.validate(values))
    assert str(error) == ("npu_shim: %s" % problems[0] if problems else "None")
    if error:
        return
    error = error_of(lambda: precision.resolve(values))
    if error:
        assert error.code in ("INVALID_ARGUMENT", "INTERNAL")
        # only what names a file, a folder or an op can still be wrong
        assert set(values) & {"modify_mixlist", "customize_dtypes", *OWN_NAMES}
    else:
        assert precision.resolve(values).policy.name == mode_of(values)
