"""Cards as data, what a compiled program does on one, and what is said where it cannot be compiled."""

import json
import stat
import sys

import pytest

from npu_shim import cli, configs
from npu_shim.pjrt import manifest
from npu_shim.pjrt.cost import card_report, cards, collectives, hlo, kernels, links, timeline
from npu_shim.pjrt.cost.collectives import Collective
from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.rewriter.errors import ConfigError


@pytest.mark.parametrize("name", cards.names())
def test_a_card_has_a_source_and_figures_that_fit_each_other(name):
    card = cards.card(name.upper())
    info = configs.load("cards", name + ".json")["gpu_device_info"]
    assert "data sheet" in card.source or "white paper" in card.source
    # two operations a clock and core; the data sheets' clock is a boost clock, the description's may be below it
    cores = info["core_count"] * info["fpus_per_core"] * 2 * info["clock_rate_ghz"] * 1e9
    assert card.peak["float32"] == pytest.approx(cores, rel=0.1)
    assert 0.2 < info["memory_bandwidth"] / info["device_memory_size"] * 1e9 / 1e9 < 100
    assert "core_count: %d\n" % info["core_count"] in card.target
    assert 'device_description_str: "%s"' % card.name in card.target


def changed(tmp_path, **values):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(dict(configs.load("cards", "h100.json"), **values)))
    return str(path)


def test_a_card_of_ones_own(tmp_path):
    card = cards.card(changed(tmp_path, name="Mine", peak={"float32": 1e12}))
    assert (card.key, card.name, card.memory) == ("mine", "Mine", 84929347584)
    assert card.units("float16") == card.units("tf32") == "float32"


INFO = configs.load("cards", "h100.json")["gpu_device_info"]


@pytest.mark.parametrize(("values", "said"), [
    ({"peak": {"float16": 1e12}}, "'peak.float32' is missing"),
    ({"peak": {"float32": 1e12, "flaot16": 1e12}}, "'peak.flaot16' is not known (did you mean 'float16'?)"),
    ({"peak": {"float32": -1}}, "'peak.float32' is -1, expected a number above 0"),
    ({"gpu_device_info": dict(INFO, cor_count=1)}, "'gpu_device_info.cor_count' is not known (did you mean 'core_co"),
    ({"gpu_device_info": dict(INFO, core_count=0)}, "'gpu_device_info.core_count' is 0"),
    ({"gpu_device_info": dict(INFO, core_count=1.5)}, "'gpu_device_info.core_count' is 1.5"),
    ({"gpu_device_info": {k: v for k, v in INFO.items() if k != "core_count"}}, "core_count' is missing"),
    ({"gpu_device_info": dict(INFO, cuda_compute_capability={"major": "9", "minor": 0})}, 'major\' is "9", expected a'),
    ({"gpu_device_info": 3}, "'gpu_device_info' is 3, expected an object with threads_per_block_limit, "),
    ({"name": None}, "'name' is null, expected a text"),
    ({"cost": 3}, "'cost' is not known"),
    ({"link": "NVLink"}, "'link' is 'NVLink', expected one of NVLink 4, "),
    ({"network": "NVLink 4"}, "'network' is 'NVLink 4', expected one of 400 Gbit/s, "),
])  # fmt: skip
def test_a_wrong_target_file(tmp_path, values, said):
    with pytest.raises(ConfigError) as error:
        cards.card(changed(tmp_path, **values))
    assert said in str(error.value)
    assert "mine.json" in str(error.value)
    assert "start from a copy of" in str(error.value)


def test_what_is_no_card(tmp_path):
    with pytest.raises(ConfigError, match=r"'h10' is neither a known card \(a100, .*did you mean 'h100'"):
        cards.card("h10")
    (tmp_path / "text.json").write_text("gpu_device_info {")
    with pytest.raises(ConfigError, match=r"text.json' cannot be read: Expecting value.*start from a copy"):
        cards.card(str(tmp_path / "text.json"))
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"list.json': it holds \[\], expected an object with name, source, li"):
        cards.card(str(tmp_path / "list.json"))


# a step on the card as JAX 0.12 prints it: a loop, a product by Triton, updates in place, one by cuBLAS
SCHEDULED = """
HloModule jit_step, is_scheduled=true

%product (p0: f16[64,32], p1: f16[32,16]) -> f32[64,16] {
  %p0 = f16[64,32]{1,0} parameter(0)
  %p1 = f16[32,16]{1,0} parameter(1)
  %dot = f16[64,16]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %wide = f32[64,16]{1,0} convert(%dot)
}

%low (q0: f32[32,16]) -> f16[32,16] {
  %q0 = f32[32,16]{1,0} parameter(0)
  ROOT %narrow = f16[32,16]{1,0} convert(%q0)
}

%put (s0: f32[8,64,16], s1: f32[64,16], s2: s32[]) -> f32[8,64,16] {
  %s0 = f32[8,64,16]{2,1,0} parameter(0)
  %s1 = f32[64,16]{1,0} parameter(1)
  %s2 = s32[] parameter(2)
  %one = f32[1,64,16]{2,1,0} bitcast(%s1)
  %zero = s32[] constant(0)
  ROOT %written = f32[8,64,16]{2,1,0} dynamic-update-slice(%s0, %one, %s2, %zero, %zero)
}

%next (n0: s32[]) -> s32[] {
  %n0 = s32[] parameter(0)
  %step = s32[] constant(1)
  ROOT %sum = s32[] add(%n0, %step)
}

%less (l0: s32[]) -> pred[] {
  %l0 = s32[] parameter(0)
  %most = s32[] constant(8)
  ROOT %compare = pred[] compare(%l0, %most), direction=LT
}

%body (t: (s32[], f32[8,64,16], f16[64,32], f16[32,16])) -> (s32[], f32[8,64,16], f16[64,32], f16[32,16]) {
  %t = (s32[], f32[8,64,16]{2,1,0}, f16[64,32]{1,0}, f16[32,16]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %all = f32[8,64,16]{2,1,0} get-tuple-element(%t), index=1
  %x = f16[64,32]{1,0} get-tuple-element(%t), index=2
  %w = f16[32,16]{1,0} get-tuple-element(%t), index=3
  %made = f32[64,16]{1,0} fusion(%x, %w), kind=kCustom, calls=%product
  %more = f32[8,64,16]{2,1,0} fusion(%all, %made, %i), kind=kLoop, calls=%put
  %after = s32[] fusion(%i), kind=kLoop, calls=%next
  ROOT %out = (s32[], f32[8,64,16]{2,1,0}, f16[64,32]{1,0}, f16[32,16]{1,0}) tuple(%after, %more, %x, %w)
}

%condition (c: (s32[], f32[8,64,16], f16[64,32], f16[32,16])) -> pred[] {
  %c = (s32[], f32[8,64,16]{2,1,0}, f16[64,32]{1,0}, f16[32,16]{1,0}) parameter(0)
  %at = s32[] get-tuple-element(%c), index=0
  ROOT %go = pred[] fusion(%at), kind=kLoop, calls=%less
}

ENTRY %main (feed: f16[64,32], weight: f32[32,16], stack: f32[8,64,16], given: s32[]) -> (f32[8,64,16], f32[64,64]) {
  %feed = f16[64,32]{1,0} parameter(0)
  %weight = f32[32,16]{1,0} parameter(1)
  %stack = f32[8,64,16]{2,1,0} parameter(2)
  %given = s32[] parameter(3)
  %cast = f16[32,16]{1,0} fusion(%weight), kind=kLoop, calls=%low
  %first = s32[] START
  %begin = (s32[], f32[8,64,16]{2,1,0}, f16[64,32]{1,0}, f16[32,16]{1,0}) tuple(%first, %stack, %feed, %cast)
  %loop = (s32[], f32[8,64,16]{2,1,0}, f16[64,32]{1,0}, f16[32,16]{1,0}) while(%begin), condition=%condition, body=%body
  %result = f32[8,64,16]{2,1,0} get-tuple-element(%loop), index=1
  %taken = f32[1,64,16]{2,1,0} slice(%result), slice={[3:4], [0:64], [0:16]}
  %flat = f32[64,16]{1,0} bitcast(%taken)
  %gemm = (f32[64,64]{1,0}, s8[4194304]{0}) custom-call(%flat, %flat), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["1"]},"precision_config":{"operand_precision":["PRECISION","PRECISION"]}}}
  %square = f32[64,64]{1,0} get-tuple-element(%gemm), index=0
  ROOT %results = (f32[8,64,16]{2,1,0}, f32[64,64]{1,0}) tuple(%result, %square)
}
"""  # noqa: E501
# by hand: the weight's cast 32*16*(4+2); eight times the product (64*32+32*16)*2 + 64*16*4, its result read and
# written 2*64*16*4 with a counter of 4, the counter 4+4 and the condition 4+1; the slice 2*64*16*4, the square
# 64*16*4 + 64*64*4
CAST, SQUARE = 32 * 16 * 6, 64 * 16 * 4 + 64 * 64 * 4
STEP = (64 * 32 + 32 * 16) * 2 + 64 * 16 * 4 + 2 * 64 * 16 * 4 + 4 + 8 + 5


def scheduled(start="constant(0)", precision="HIGHEST"):
    return kernels.Kernels(hlo.parse(SCHEDULED.replace("START", start).replace("PRECISION", precision)))


def test_what_kernels_of_a_compiled_program_move_and_compute():
    program = scheduled()
    # the condition is asked once more than the body runs: left out, it is a few bytes
    assert kernels.moved(program.all) == CAST + 8 * STEP + 2 * 64 * 16 * 4 + SQUARE
    assert kernels.products(program.all) == {
        "float16": (8, 8 * 2 * 64 * 16 * 32), "float32": (1, 2 * 64 * 64 * 16)
    }  # fmt: skip
    assert not program.notes
    kinds = card_report._by_kind(program.all)
    assert kinds["matrix products"] == {"kernels": 9, "bytes": 8 * ((64 * 32 + 32 * 16) * 2 + 64 * 16 * 4) + SQUARE}
    assert kinds["converts"] == {"kernels": 1, "bytes": CAST}
    assert sum(kernel.converts * kernel.times for kernel in program.all) == 8 + 1


def test_a_loop_that_the_program_does_not_tell_the_steps_of():
    program = scheduled("copy(%given)")
    assert kernels.moved(program.all) == 8 + CAST + STEP + 2 * 64 * 16 * 4 + SQUARE
    assert program.notes == {"a loop whose number of steps is not in the program is counted as one step"}


def test_products_by_default_are_tf32_where_a_card_has_it():
    executed = scheduled(precision="DEFAULT").all
    assert set(kernels.products(executed)) == {"float16", "tf32"}
    assert set(kernels.products(executed, cards.card("t4").units)) == {"float16", "float32"}


def test_the_bound_is_the_longer_of_moving_and_computing_kernel_by_kernel(tmp_path):
    info = dict(INFO, memory_bandwidth=10**9)
    card = cards.card(changed(tmp_path, gpu_device_info=info, peak={"float32": 1e9, "float16": 1e9}))
    seconds, by_memory = card_report.bound(scheduled().all, card)
    moving = CAST + 8 * (2 * 64 * 16 * 4 + 4 + 8 + 5) + 2 * 64 * 16 * 4
    computing = 8 * 2 * 64 * 16 * 32 + 2 * 64 * 64 * 16  # these kernels compute longer than they move
    assert seconds == pytest.approx((moving + computing) / 1e9)
    assert by_memory == pytest.approx(moving / (moving + computing))


def kernels_of(lines, arguments=(), more=""):
    """The kernels of an entry with these lines, the last of them its result."""
    given = ["  p%d = %s parameter(%d)" % (at, shape, at) for at, shape in enumerate(arguments)]
    *first, last = ["  " + line for line in lines]
    body = "\n".join([*given, *first, "  ROOT " + last.strip()])
    return kernels.Kernels(hlo.parse("HloModule m\n\n%sENTRY main {\n%s\n}\n" % (more, body)))


IMAGE, KERNEL, RESULT = "f16[8,10,10,32]", "f16[64,3,3,32]", "f16[8,10,10,64]"


@pytest.mark.parametrize(("name", "left", "right", "result"), [
    ("Forward", IMAGE, KERNEL, RESULT), ("BiasActivationForward", IMAGE, KERNEL, RESULT),
    ("BackwardInput", RESULT, KERNEL, IMAGE), ("BackwardFilter", IMAGE, RESULT, KERNEL),
])  # fmt: skip
def test_a_convolution_by_cudnn_counts_as_the_convolution_it_belongs_to(name, left, right, result):
    call = "r = (%s{3,2,1,0}, u8[1000]{0}) custom-call(p0, p1), window={size=3x3 pad=1_1x1_1}, " % result
    call += 'dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$conv%s"' % name
    (kernel,) = kernels_of([call], (left, right)).all
    assert kernel.kind == "convolutions"
    assert kernel.products == (("float16", 2 * 8 * 32 * 64 * (10 + 9 + 9) ** 2),)
    assert kernel.bytes == 2 * (8 * 10 * 10 * (32 + 64) + 64 * 9 * 32)  # without the space that cuDNN is lent


@pytest.mark.parametrize(("name", "products"), [
    ("forward", 64 + 32), ("backward_queries", 2 * 64 + 32), ("backward_keys", 2 * (64 + 32)),
])  # fmt: skip
def test_an_attention_kernel_counts_its_products(name, products):
    """Of 4 batches and 16 heads, 128 queries and 256 keys; a call of another kernel by Triton is none of ours."""
    given = ("bf16[4,128,16,64]", "bf16[4,256,16,64]", "bf16[4,256,16,32]")
    call = 'r = bf16[4,128,16,64]{3,2,1,0} custom-call(p0, p1, p2), custom_call_target="__gpu$xla.gpu.triton", '
    call += 'backend_config={debug = false, ir = "ML\\EFR\\22name\\00", name = "%s", num_warps = 4 : i32}'
    (kernel,) = kernels_of([call % ("npu_shim_attention_" + name)], given).all
    assert kernel.kind == "attention"
    assert kernel.products == (("bfloat16", 2 * 4 * 16 * 128 * 256 * products),)
    assert kernels_of([call % "others"], given).notes == {"operations of others are not counted, its bytes are"}


def test_what_no_one_can_count_is_said():
    kernels = kernels_of(['r = f32[16]{0} custom-call(p0), custom_call_target="mine"'], ("f32[16]",))
    assert (kernels.all[0].kind, kernels.all[0].bytes) == ("other calls", 128)
    assert kernels.notes == {"operations of mine are not counted, its bytes are"}


def test_a_copy_that_is_awaited_is_one_kernel():
    lines = ["s = (f32[16]{0}, f32[16]{0}, u32[]) copy-start(p0)", "d = f32[16]{0} copy-done(s)"]
    (kernel,) = kernels_of(lines, ("f32[16]",)).all
    assert (kernel.kind, kernel.bytes) == ("copies, transposes", 128)


BRANCHES = """small {
  a = f32[16]{0} parameter(0)
  ROOT b = f32[16]{0} negate(a)
}

large {
  c = f32[1024]{0} parameter(0)
  d = f32[1024]{0} negate(c)
  ROOT e = f32[16]{0} slice(d), slice={[0:16]}
}

"""


EXCHANGES = """HloModule m, is_scheduled=true

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ENTRY main {
  x = f32[64,32]{1,0} parameter(0)
  w = f32[32,32]{1,0} parameter(1)
  start = ((f32[64,32]{1,0}), f32[64,32]{1,0}) all-reduce-start(x), channel_id=1, to_apply=add, metadata={op_name="jit(step)/call_exported/gradients/one"}
  y = f32[64,32]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[64,32]{1,0} dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  one = f32[64,32]{1,0} all-reduce-done(start)
  two = (bf16[4]{0}, bf16[8]{0}) all-gather(one, z), channel_id=2, dimensions={0}
  three = f32[8,32]{1,0} reduce-scatter(z), channel_id=3, dimensions={0}, to_apply=add
  ROOT all = ((bf16[4]{0}, bf16[8]{0}), f32[8,32]{1,0}) tuple(two, three)
}
"""  # noqa: E501


def test_what_devices_exchange_and_what_overlaps_products():
    assert collectives.of(hlo.parse(EXCHANGES)) == (
        Collective("all-reduce", 64 * 32 * 4, 2, "gradients/one"),
        Collective("all-gather", 24, 0, ""),
        Collective("reduce-scatter", 8 * 32 * 4, 0, ""),
    )
    assert [kernel.kind for kernel in kernels.Kernels(hlo.parse(EXCHANGES)).all] == ["matrix products"] * 2


def test_what_a_card_sends_and_how_long_a_step_waits_for_it():
    one, all_of_it = 64 * 32 * 4, {"one": 1.0, "other": 1.0}
    link = links.Links(links.Link("a", 1000.0, True), links.Link("b", 100.0, False))
    line = timeline.Timeline(hlo.parse(EXCHANGES), all_of_it, link, 8)
    sent = {kind: some.sent for kind, some in line.travelling.items()}
    assert sent == {"all-reduce": 2 * 7 / 8 * one, "all-gather": 24 * 7 / 8, "reduce-scatter": 8 * 32 * 4 * 7}
    alone = timeline.Timeline(hlo.parse(EXCHANGES), all_of_it, None, 8)
    products = {kernel.name: 3.0 for kernel in kernels.Kernels(hlo.parse(EXCHANGES)).all}
    hides = timeline.Timeline(hlo.parse(EXCHANGES), products, link, 8)
    assert alone.seconds == 0.0
    assert line.seconds == pytest.approx(sum(sent.values()) / 1000)
    # of the all-reduce's 14.336 s, products compute for 6 s; the others wait for their ends
    assert hides.seconds == line.seconds
    assert timeline.Timeline(hlo.parse(EXCHANGES), dict.fromkeys(products, 10.0), link, 8).seconds == pytest.approx(
        20 + (sum(sent.values()) - sent["all-reduce"]) / 1000
    )
    assert link.seconds(800.0, 8) == 0.8
    assert link.seconds(800.0, 64) == 1.0  # a port of 100 carries an eighth
    assert [links.topology(count) for count in (1, 8, 12, 64)] == ["1x1x1", "1x1x8", "1x1x12", "1x8x8"]


def test_a_loop_exchanges_in_each_of_its_steps():
    text = SCHEDULED.replace("START", "constant(0)").replace(
        "%made = f32[64,16]{1,0} fusion(%x, %w), kind=kCustom, calls=%product",
        "%own = f32[64,16]{1,0} fusion(%x, %w), kind=kCustom, calls=%product\n"
        "  %made = f32[64,16]{1,0} all-reduce(%own), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%next",
    )
    link = links.Links(links.Link("a", 1000.0, True), links.Link("b", 100.0, False))
    line = timeline.Timeline(hlo.parse(text), {"own": 1.0}, link, 8)
    sent = 8 * 2 * 3 / 4 * 64 * 16 * 4
    assert line.travelling["all-reduce"].sent == sent
    assert line.seconds == pytest.approx(8 + sent / 1000)


@pytest.mark.parametrize("name", cards.names())
def test_a_card_has_links(name):
    card = cards.card(name)
    assert card.links.inside.bandwidth < card.bandwidth
    assert card.links.text(8) == card.links.inside.name
    assert card.links.text(16).endswith(" between hosts")


def test_of_a_conditional_the_branch_counts_that_moves_most():
    line = "r = f32[16]{0} conditional(p0, p1, p2), branch_computations={small, large}"
    program = kernels_of([line], ("s32[]", "f32[16]", "f32[1024]"), BRANCHES)
    assert kernels.moved(program.all) == 2 * 4096 + 2 * 64


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    """An exported step whose program nothing here reads, with 4 GB of variables."""
    folder = str(tmp_path_factory.mktemp("steps") / "step")
    state = Tensor("state", "w", (1000, 1000, 1000), "float32", "parameter")
    manifest.write(folder, b"no program", Manifest((state,), (state,)))
    return folder


def test_a_card_too_small_for_the_variables(step, tmp_path, capsys):
    small = changed(tmp_path, gpu_device_info=dict(INFO, device_memory_size=3 * 10**9))
    assert cli.main(["cost", step, "--target", small, "--jax", "/nowhere"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("npu_shim: the variables alone take 4.00 GB, 'mine' has 3.00 GB: no batch fits; take a")


def test_what_a_card_has_no_room_for_several_have(step, tmp_path, capsys):
    """Then it comes to the interpreter, which is none."""
    small = changed(tmp_path, gpu_device_info=dict(INFO, device_memory_size=3 * 10**9))
    argv = ["cost", step, "--target", small, "--jax", "/nowhere", "--devices", "8", "--shard-state"]
    assert cli.main([*argv, "optimizer"]) == 2
    assert "the variables alone take 4.00 GB" in capsys.readouterr().err
    assert cli.main([*argv, "all"]) == 2
    assert "'/nowhere' cannot be run" in capsys.readouterr().err


def interpreter(tmp_path, modules):
    """An interpreter that has these modules (path -> text) and nothing that is installed."""
    for name, text in modules.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    path = tmp_path / "python"
    path.write_text('#!/bin/sh\nPYTHONPATH="%s" exec "%s" -S "$@"\n' % (tmp_path, sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


NO_PLUGIN = 'def get_topology_desc(**given): raise NotImplementedError("topology not implemented for cuda")\n'
TAKES_NONE = 'def get_topology_desc(**given): raise RuntimeError("FAILED_PRECONDITION: no such field\\nmore")\n'
DIES = 'import os\ndef get_topology_desc(**given): os.write(2, b"F0000 Check failed: cores > 0"); os._exit(134)\n'
FAKE = {"jax/__init__.py": "", "jax/experimental/__init__.py": ""}


def fake(topologies):
    return dict(FAKE, **{"jax/experimental/topologies.py": topologies})


INSTALL = "; install it there with: pip install 'jax[cuda12]', or name another interpreter with --jax or $"


@pytest.mark.parametrize(("modules", "said"), [
    ({}, "has no JAX, which compiles for a GPU (No module named 'jax')" + INSTALL),
    (fake(NO_PLUGIN),
     "has JAX without its CUDA plugin, which compiles for a GPU (topology not implemented for cuda)" + INSTALL),
    (fake(TAKES_NONE), "takes no such target: FAILED_PRECONDITION: no such field"),
    (fake(DIES), "cannot compile the step: F0000 Check failed: cores > 0"),
], ids=["no JAX", "no plugin", "no such target", "it dies"])  # fmt: skip
def test_what_an_interpreter_lacks(step, tmp_path, capsys, modules, said):
    python = interpreter(tmp_path, modules)
    assert cli.main(["cost", step, "--target", "h100", "--jax", python]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert python in error
    assert len(error.splitlines()) == 1


def test_an_interpreter_that_is_none(step, capsys, tmp_path):
    assert cli.main(["cost", step, "--target", "h100", "--jax", str(tmp_path / "python")]) == 2
    said = "npu_shim: '%s' cannot be run: No such file or directory\n"
    assert capsys.readouterr().err == said % (tmp_path / "python")


def test_arguments_that_do_not_go_together(step, capsys):
    assert cli.main(["cost", step, "--target", "h100", "--no-compile"]) == 2
    assert "--target and --no-compile" in capsys.readouterr().err
    assert cli.main(["cost", step, "--target", "h100,H100", "--jax", sys.executable]) == 2
    assert "two targets are called 'h100'" in capsys.readouterr().err
    assert cli.main(["cost", step, "--target", "h100,v100"]) == 2
    assert "target 'v100' is neither a known card" in capsys.readouterr().err
    several = ["cost", step, "--target", "h100", "--jax", sys.executable, "--devices"]
    assert cli.main([*several, "all"]) == 2
    assert "need not be here: give their number" in capsys.readouterr().err
    assert cli.main([*several, "8", "--shard-state", "optimiser"]) == 2
    assert "--shard-state is 'optimiser', expected one of off, optimizer, all (did you mean 'optimizer'" in (
        capsys.readouterr().err
    )
    assert cli.main(["cost", step, "--devices", "8"]) == 2
    assert "give --target with them" in capsys.readouterr().err
