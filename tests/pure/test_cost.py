"""What a step costs, counted from HLO texts small enough to count by hand."""

from dataclasses import replace

import pytest

from npu_shim.pjrt.cost import counts, hlo, inlining, live, report
from npu_shim.pjrt.manifest import Manifest, Tensor

# as TensorFlow's XLA of 2023 prints it, and as JAX's of today
OLD = """
HloModule step, entry_computation_layout={(f16[8,64]{1,0}, f32[64,10]{1,0})->(f32[10]{0})}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(f32[] %a, f32[] %b), metadata={op_type="Sum" op_name="a(b" source_file="x.py" source_line=1}
}

ENTRY %main (x: f16[8,64], w: f32[64,10]) -> (f32[10]) {
  %x = f16[8,64]{1,0} parameter(0), parameter_replication={false}
  %w = f32[64,10]{1,0} parameter(1)
  %low = f16[64,10]{1,0} convert(f32[64,10]{1,0} %w)
  %dot.1 = f16[8,10]{1,0} dot(f16[8,64] %x, f16[64,10] %low), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %wide = f32[8,10]{1,0} convert(f16[8,10]{1,0} %dot.1)
  %exp = f32[8,10]{1,0} exponential(f32[8,10]{1,0} %wide)
  %zero = f32[] constant(0)
  %reduced = f32[10]{0} reduce(f32[8,10]{1,0} %exp, f32[] %zero), dimensions={0}, to_apply=%add
  ROOT %result = (f32[10]{0}) tuple(f32[10]{0} %reduced)
}
"""
NEW = """
HloModule step

region_0.1 {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ENTRY main.5 {
  x = f16[8,64]{1,0} parameter(0)
  w = f32[64,10]{1,0} parameter(1)
  low = f16[64,10]{1,0} convert(w)
  dot.1 = f16[8,10]{1,0} dot(x, low), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  wide = f32[8,10]{1,0} convert(dot.1)
  exp = f32[8,10]{1,0} exponential(wide)
  zero = f32[] constant(0)
  reduced = f32[10]{0} reduce(exp, zero), dimensions={0}, to_apply=region_0.1
  ROOT result = (f32[10]{0}) tuple(reduced)
}
"""


@pytest.mark.parametrize("text", [OLD, NEW], ids=["2023", "today"])
def test_a_product_a_function_and_a_sum(text):
    module = hlo.parse(text)
    cost = counts.count(module)
    assert cost.products == {"float16": 2 * 8 * 10 * 64}  # by what goes in, whatever becomes of it
    assert cost.other == {"float32": 80 + 80}
    assert not cost.notes
    # the weight's cast, made when it is read, and the product: x and w are arguments
    assert live.peak(module, feeds=1) == 64 * 10 * 2 + 8 * 10 * 2


def products(line, *arguments):
    lines = ["  p%d = %s parameter(%d)" % (at, shape, at) for at, shape in enumerate(arguments)]
    text = "HloModule m\n\nENTRY main {\n%s\n  ROOT r = %s\n}\n" % ("\n".join(lines), line)
    return sum(counts.count(hlo.parse(text)).products.values())


def test_a_convolution_counts_what_meets_the_image():
    same = "f32[2,4,4,8]{3,2,1,0} convolution(p0, p1), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    # along a side of 4: the middle of the kernel meets 4 places, its ends 3 each
    assert products(same, "f32[2,4,4,3]{3,2,1,0}", "f32[3,3,3,8]{3,2,1,0}") == 2 * 2 * 8 * 3 * (3 + 4 + 3) ** 2
    strided = "f32[2,2,2,8] convolution(p0, p1), window={size=1x1 stride=2x2}, dim_labels=b01f_01io->b01f"
    assert products(strided, "f32[2,4,4,3]", "f32[1,1,3,8]") == 2 * 2 * 8 * 3 * 4
    dilated = "window={size=1x1 pad=0_1x0_1 lhs_dilate=2x2}"
    spread = "f32[1,4,4,1] convolution(p0, p1), %s, dim_labels=b01f_01io->b01f" % dilated
    assert products(spread, "f32[1,2,2,1]", "f32[1,1,1,1]") == 2 * 4


def test_a_grouped_convolution():
    line = "bf16[1,2,2,6] convolution(p0, p1), window={size=1x1}, dim_labels=b01f_01io->b01f, feature_group_count=3"
    assert products(line, "bf16[1,2,2,3]", "bf16[1,1,1,6]") == 2 * 4 * 6


LOOP = """
HloModule loop

body {
  t = (s32[], f32[4,4]{1,0}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  m = f32[4,4]{1,0} get-tuple-element(t), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  dot = f32[4,4]{1,0} dot(m, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = (s32[], f32[4,4]{1,0}) tuple(next, dot)
}

condition {
  t = (s32[], f32[4,4]{1,0}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(7)
  ROOT less = pred[] compare(i, n), direction=LT
}

ENTRY main {
  m = f32[4,4]{1,0} parameter(0)
  FIRST
  start = (s32[], f32[4,4]{1,0}) tuple(first, m)
  ROOT loop = (s32[], f32[4,4]{1,0}) while(start), condition=condition, body=body
}
"""


def test_a_loop_counts_its_steps_where_the_program_tells():
    known = counts.count(hlo.parse(LOOP.replace("FIRST", "first = s32[] constant(2)")))
    assert known.products == {"float32": 5 * 2 * 4 * 4 * 4}
    assert not known.notes
    unknown = counts.count(hlo.parse(LOOP.replace("FIRST", "first = s32[] parameter(1)")))
    assert unknown.products == {"float32": 2 * 4 * 4 * 4}
    assert unknown.notes == {"a loop whose number of steps is not in the program is counted as one step"}


def test_a_loop_behind_a_call_and_one_that_counts_down_from_its_end():
    text = LOOP.replace("ROOT less = pred[] compare(i, n), direction=LT", """less = pred[] compare(i, n), direction=LT
  yes = pred[] constant(true)
  ROOT both = pred[] call(less, yes), to_apply=all""").replace("body {", """all {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT both = pred[] and(a, b)
}

down {
  t = (s32[], f32[4,4]{1,0}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  m = f32[4,4]{1,0} get-tuple-element(t), index=1
  one = s32[] constant(1)
  next = s32[] subtract(i, one)
  dot = f32[4,4]{1,0} dot(m, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = (s32[], f32[4,4]{1,0}) tuple(next, dot)
}

left {
  t = (s32[], f32[4,4]{1,0}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(0)
  ROOT less = pred[] compare(i, n), direction=GT
}

body {""", 1).replace("  ROOT loop = ", "  loop = ").replace("FIRST", "first = s32[] constant(4)")
    back = "  ROOT back = (s32[], f32[4,4]{1,0}) while(loop), condition=left, body=down\n}\n"
    cost = counts.count(hlo.parse(text.rstrip()[:-1] + back))
    assert cost.products == {"float32": (3 + 7) * 2 * 4 * 4 * 4}
    assert not cost.notes


def test_what_cannot_be_counted_is_said():
    text = 'HloModule m\n\nENTRY main {\n  ROOT r = f32[4] custom-call(), custom_call_target="Sort"\n}\n'
    assert counts.count(hlo.parse(text)).notes == {"custom call Sort is not counted"}


def test_a_value_lives_until_its_last_reader():
    chain = """
HloModule m

ENTRY main {
  x = f32[4,4]{1,0} parameter(0)
  a = f32[4,4]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[4,4]{1,0} dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[4,4]{1,0} dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  fused = f32[4,4]{1,0} add(c, KEPT)
  ROOT r = (f32[4,4]{1,0}) tuple(fused)
}
"""
    # c reads b: two stand at once; the sum is a result and takes none
    assert live.peak(hlo.parse(chain.replace("KEPT", "x")), feeds=1) == 64 * 2
    assert live.peak(hlo.parse(chain.replace("KEPT", "b")), feeds=1) == 64 * 2
    # the sum reads a, which is there until c is
    assert live.peak(hlo.parse(chain.replace("KEPT", "a")), feeds=1) == 64 * 3


def test_what_nothing_uses_is_not_counted():
    unused = "  dead = f16[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n  wide ="
    assert counts.count(hlo.parse(NEW.replace("  wide =", unused))).products == {"float16": 2 * 8 * 10 * 64}


CALLED = """
HloModule m

double.1 {
  a.1 = f32[4]{0} parameter(0)
  sum.1 = f32[4]{0} add(a.1, a.1)
  ROOT both.1 = (f32[4]{0}, f32[4]{0}) tuple(sum.1, a.1)
}

npu_shim_attention_forward_0123456789abcdef.2 {
  ROOT b.1 = f32[4]{0} parameter(0)
}

ENTRY main {
  x.1 = f32[4]{0} parameter(0)
  one.1 = (f32[4]{0}, f32[4]{0}) call(x.1), to_apply=double.1
  first.1 = f32[4]{0} get-tuple-element(one.1), index=0
  two.1 = (f32[4]{0}, f32[4]{0}) call(first.1), to_apply=double.1
  last.1 = f32[4]{0} get-tuple-element(two.1), index=0
  same.1 = f32[4]{0} get-tuple-element(two.1), index=1
  kept.1 = f32[4]{0} call(last.1), to_apply=npu_shim_attention_forward_0123456789abcdef.2
  ROOT all.1 = (f32[4]{0}, f32[4]{0}) tuple(kept.1, same.1)
}
"""


def test_calls_are_inlined_but_those_of_attention():
    module = inlining.inlined(hlo.parse(CALLED))
    main = module.computations["main"]
    assert [x.code for x in main.instructions.values() if x.code != "tuple"] == ["parameter", "add", "add", "call"]
    assert main.instructions["two.1/sum.1"].operands == ("one.1/sum.1", "one.1/sum.1")
    assert main.instructions["kept.1"].operands == ("two.1/sum.1",)
    assert main.instructions[main.root].operands == ("kept.1", "one.1/sum.1")
    assert counts.count(module).other == {"float32": 8}


def test_text_without_an_entry():
    with pytest.raises(ValueError, match="no entry computation"):
        hlo.parse("HloModule m")


STATE = (
    Tensor("feed", "x:0", (8, 64), "float16"), Tensor("state", "w", (64, 10), "float32", "parameter"),
    Tensor("state", "w/m", (64, 10), "bfloat16", "optimizer"), Tensor("state", "flag", (), "bool", "other"),
)  # fmt: skip


def test_the_report_has_a_column_each_and_ratios():
    plain = report.of_text("float32", OLD.replace("f16", "f32"), Manifest(STATE, ()))
    plain = replace(plain, temporary=4000, moved=20000, compiled_for="this CPU")
    mixed = replace(report.of_text("mixed", OLD, Manifest(STATE, ())), temporary=2000)
    text = report.as_text([plain, mixed]).splitlines()
    rows = {line[:22].strip(): line[22:].split("  ") for line in text}
    assert [cell.strip() for cell in rows["products in float16"] if cell.strip()] == ["0 FLOP", "10.24 KFLOP"]
    assert rows["parameters"][-1].strip() == "2.56 KB (1.00x)"
    assert rows["optimizer state"][-1].strip() == "1.28 KB (1.00x)"
    assert rows["temporary"][-1].strip() == "2.00 KB (0.50x)"
    assert rows["bytes moved"][-1].strip() == "-"
    assert text[-1] == "bytes moved and temporary memory: compiled for this CPU"
    (first, second) = report.as_json([plain, mixed])
    assert first["state"] == {"parameter": 2560, "optimizer": 1280, "other": 1}
    assert second["products"] == {"float16": 10240}
    assert second["feeds"] == 1024
