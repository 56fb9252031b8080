"""The op table against TensorFlow's registries: each name exists, none is missing, each claim has a type attribute."""

import collections
import pathlib

import pytest
import reference_material

from npu_shim import configs
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.tables import op_table

FLOAT, HALF, BFLOAT16 = 1, 19, 14
LOW = (HALF, BFLOAT16)
# "DEFAULT" kernels serve every device type that has none of its own; TensorFlow registers Identity, Reshape, ... so
DEVICES = ("CPU", "GPU", "DEFAULT")


@pytest.fixture(scope="module")
def entries():
    """IR op type -> Entry of the whole profile."""
    entries = {}
    for path in sorted(pathlib.Path(configs.folder("ascend910")).glob("*.json")):
        entries.update(op_table.read_file(str(path)))
    return entries


@pytest.fixture(scope="module")
def by_op(entries):
    """TensorFlow op type -> Entry."""
    return {op: entry for entry in entries.values() for op in entry.tensorflow}


@pytest.fixture(scope="module")
def other_versions():
    return configs.load("other_versions.json")


@pytest.fixture(autouse=True)
def _reference_version():
    import tensorflow.compat.v1 as tf

    if not tf.__version__.startswith("2.15."):
        pytest.skip("the table is held against TensorFlow 2.15's registry, this is %s" % tf.__version__)


def type_attrs(op):
    """Type attribute name -> dtype numbers that the op's definition admits, None for any."""
    attrs = tf_internals.op_defs()[op].attr
    return {a.name: set(a.allowed_values.list.type) or None for a in attrs if a.type in ("type", "list(type)")}


def admits(allowed, dtype):
    return allowed is None or dtype in allowed


def has_kernel(op, attr, dtype):
    """Whether a CPU or GPU kernel takes `dtype` for `attr`; an attribute that a kernel does not constrain takes any."""
    for kernel in tf_internals.kernels().get(op, ()):
        constrained = {c.name: set(c.allowed_values.list.type) for c in kernel.constraint}
        if kernel.device_type in DEVICES and dtype in constrained.get(attr, {dtype}):
            return True
    return False


def lowerable_attrs(op):
    """Type attributes that admit float32 and a 16-bit dtype for which there is a kernel."""
    return [
        attr
        for attr, allowed in type_attrs(op).items()
        if admits(allowed, FLOAT) and any(admits(allowed, low) and has_kernel(op, attr, low) for low in LOW)
    ]


def test_every_tensorflow_name_is_registered_or_of_another_version(by_op, other_versions):
    registered = tf_internals.op_defs()
    assert sorted(op for op in by_op if op not in registered and op not in other_versions) == []


def test_other_versions_are_needed_and_say_which(by_op, other_versions):
    registered = tf_internals.op_defs()
    assert sorted(op for op in other_versions if op in registered or op not in by_op) == []
    assert all(text.startswith("TensorFlow ") for text in other_versions.values())


def test_no_holes(by_op):
    lowerable = [op for op in sorted(tf_internals.op_defs()) if lowerable_attrs(op)]
    assert len(lowerable) > 900
    assert [op for op in lowerable if op not in by_op] == []


def test_no_op_with_a_float_attribute_is_unknown(by_op):
    """Stronger than no holes: also what only a later kernel, or XLA, could lower."""
    floating = [op for op in sorted(tf_internals.op_defs()) if any(admits(a, FLOAT) for a in type_attrs(op).values())]
    assert [op for op in floating if op not in by_op] == []


def test_lowerable_is_not_everything():
    assert lowerable_attrs("MatMul") == ["T"]
    assert lowerable_attrs("IdentityN") == ["T"]  # registered for the device type DEFAULT only
    assert lowerable_attrs("FusedBatchNormV3") == ["T"]
    assert lowerable_attrs("FusedBatchNorm") == []
    assert lowerable_attrs("NoOp") == []
    assert lowerable_attrs("StringSplit") == []


def test_white_and_cube_ops_can_be_lowered(entries):
    can = {
        name: any(admits(allowed, low) for op in e.tensorflow for allowed in type_attrs(op).values() for low in LOW)
        for name, e in entries.items()
        if e.listed == "white" or e.cube
    }
    assert len(can) > 20
    assert [name for name, lowerable in can.items() if not lowerable] == []


def test_moving_and_containing_ops_have_a_float_attribute(by_op, other_versions):
    roles = collections.defaultdict(list)
    for op, entry in by_op.items():
        if op not in other_versions:
            roles[entry.role].append((op, any(admits(a, FLOAT) for a in type_attrs(op).values())))
    assert [op for role in ("moves", "container", "cast") for op, floating in roles[role] if not floating] == []
    assert [op for op, _ in roles["cast"]] == ["Cast"]


def fixed_float_outputs(op):
    return [arg.name for arg in tf_internals.op_defs()[op].output_arg if arg.type == FLOAT]


def test_sources_produce_floating_data(by_op):
    """A source hands out floats, by an attribute or by a fixed type, or is a variable's handle or reference."""
    strange = []
    for op, entry in by_op.items():
        if entry.role != "source":
            continue
        definition = tf_internals.op_defs()[op]
        typed = {arg.type_attr or arg.type_list_attr for arg in definition.output_arg} - {""}
        floats = any(admits(type_attrs(op)[attr], FLOAT) for attr in typed) or fixed_float_outputs(op)
        if not floats and not op.lstrip("_").endswith(("VarHandleOp", "VarHandlesOp", "OnlyVarHandleOp")):
            strange.append(op)
    assert strange == []


def test_moving_ops_compute_no_fixed_float(by_op):
    assert [op for op, entry in by_op.items() if entry.role == "moves" and fixed_float_outputs(op)] == []


def test_kept_attributes_exist_and_something_is_left_to_lower(entries):
    kept = {name: e for name, e in entries.items() if e.keep}
    assert {"BatchNorm", "BatchNormGrad"} <= set(kept)
    for name, entry in kept.items():
        attrs = set().union(*(type_attrs(op) for op in entry.tensorflow))
        assert entry.keep <= attrs, name
        assert attrs - entry.keep, name


def test_reference_ops_are_never_lowered(by_op):
    """A reference is somebody's variable: an op that takes or hands on one must leave its dtype alone."""
    for op, definition in tf_internals.op_defs().items():
        if op in by_op and any(arg.is_ref for arg in [*definition.input_arg, *definition.output_arg]):
            assert by_op[op].role in ("pinned", "source", "container"), op


def category(entry):
    if entry is None:
        return "unlisted"
    words = {"white": "allow", "gray": "infer", "black": "deny"}
    return words[entry.listed] if entry.role == "computes" else entry.role


def test_drift_against_grappler_is_printed(by_op, capsys):
    """Where our table and TensorFlow's own lists part is information; that we know each of its ops is asserted."""
    lists = reference_material.table("grappler_lists")
    same_meaning = {("clear", "moves"), ("clear", "infer"), ("clear", "container")}
    drift = collections.defaultdict(list)
    unknown = []
    for theirs, ops in lists.items():
        for op in ops:
            ours = category(by_op.get(op))
            if ours == "unlisted" and op in tf_internals.op_defs():
                unknown.append(op)
            elif ours not in (theirs, "unlisted") and (theirs, ours) not in same_meaning:
                drift[theirs, ours].append(op)
    with capsys.disabled():
        for (theirs, ours), ops in sorted(drift.items()):
            print("\nGrappler %s, ascend910 %s: %s" % (theirs, ours, ", ".join(sorted(ops))), end="")
    assert unknown == []
