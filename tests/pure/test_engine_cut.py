"""What of a step is the program, what feeds it and what reads it; text in, places out."""

from dataclasses import replace

import pytest

from npu_shim.engine.partition.cut import Place, plan
from npu_shim.engine.partition.nodes import Node, depths
from npu_shim.engine.partition.step_detection import ENOUGH, refusal
from npu_shim.rewriter.graph.arguments import tensor_of


def graph(text):
    """Nodes of lines "name:Op(inputs) flags"; flags are the fields of Node that are set, writes=v a variable."""
    nodes = {}
    for line in text.strip().splitlines():
        head, _, flags = line.strip().partition(")")
        name, _, rest = head.partition(":")
        op, _, inputs = rest.partition("(")
        fields = {}
        for flag in flags.split():
            key, _, value = flag.partition("=")
            fields[key] = {"writes": frozenset([value])}.get(key, value != "no" if value in ("", "no") else value)
        nodes[name] = Node(name, op, tuple(word for word in inputs.split() if word), **fields)
    return nodes


STEP = """
    next:IteratorGetNext(handle) host=kernel repeats=no
    handle:IteratorV2() host=kernel handle repeats=no
    scale:Const()
    scaled:Mul(next scale)
    v:VarHandleOp() variable
    read:ReadVariableOp(v) variable learned
    product:MatMul(scaled read) product
    loss:Mean(product)
    apply:ApplyAdam(v loss) writes=v variable repeats=no
    tag:Const() host=strings
    summary:ScalarSummary(tag loss) host=strings
"""


def test_the_three_parts_and_what_crosses():
    result = plan(graph(STEP), ["loss:0", "summary:0"], ["apply"])
    assert result.refusal is None
    assert result.fed == ("next:0",)
    assert result.shown == ("loss:0",)
    assert result.place("summary:0") is Place.READ
    assert result.place("next:0") is Place.FEED
    assert {name for name, place in result.places.items() if place is Place.PROGRAM} >= {"scaled", "product", "apply"}
    assert result.reasons == {"next": "kernel", "summary": "strings"}


def test_it_is_a_step_and_an_initializer_is_none():
    assert refusal(graph(STEP)) is None
    assert refusal(graph(STEP), ["other"]) is None
    assert "local variables alone" in refusal(graph(STEP), ["v"])
    initializer = graph("v:VarHandleOp() variable\n r:Qr(c) product\n c:Const()\n a:Assign(v r) writes=v variable")
    assert "little work" in refusal(initializer)
    assert refusal(graph("c:Const()")) == "it writes no variable"
    many = "\n".join("m%d:Mul(read) computes" % number for number in range(ENOUGH))
    small = "v:VarHandleOp() variable\n read:ReadVariableOp(v) variable learned\n a:AssignAdd(v read) writes=v variable"
    assert refusal(graph(small)) is not None
    assert refusal(graph(small + "\n" + many)) is None
    beside = "\n".join("r%d:RandomUniform() computes" % number for number in range(ENOUGH))
    assert "little work" in refusal(graph(small + "\n" + beside))  # variables that are copies of others begin so


TWO = """
    next:IteratorGetNext() host=kernel repeats=no
    v:VarHandleOp() variable
    read:ReadVariableOp(v) variable learned floating
    drawn:RandomUniform() repeats=no floating
    first:MatMul(next read) product floating
    kept:Mul(first drawn) floating
    size:Shape(kept)
    call:PyFunc(kept) host=python repeats=no
    second:MatMul(call read) product floating
    back:Reshape(second size) floating
    grown:Mul(back kept) floating
    apply:ApplyAdam(v grown) writes=v variable repeats=no
"""


def test_a_host_op_in_the_middle_stands_between_two_programs():
    result = plan(graph(TWO), ["first:0", "call:0", "size:0"], ["apply"])
    assert result.refusal is None
    assert result.places["call"] is Place.MIDDLE
    first, second = result.programs
    assert first.nodes == {"first", "read", "v", "kept", "drawn"}
    assert (first.fed, first.taken, first.passed, first.shown) == (("next:0",), (), ("kept:0",), ("kept:0",))
    assert (first.hosts, first.needs, first.effects) == ({"call"}, ("kept:0",), ("call",))
    # what is on the device is taken from there; a variable is read again, and so is what XLA must know as a constant
    assert second.nodes == {"second", "read", "v", "back", "size", "grown", "apply"}
    assert (second.fed, second.taken, second.passed) == (("call:0",), ("kept:0",), ())
    assert [result.stage(name) for name in ("first:0", "call:0", "size:0", "grown:0")] == [0, 0, 1, 1]


def test_each_host_op_behind_another_one_has_a_program_in_front():
    text = TWO.replace("grown:Mul(back kept)", """
    ask:PyFunc(back call) host=python repeats=no
    grown:Mul(ask kept)""")  # fmt: skip
    result = plan(graph(text), [], ["apply"])
    assert [sorted(program.hosts) for program in result.programs] == [["call"], ["ask"], []]
    assert [program.fed for program in result.programs] == [("next:0",), ("call:0",), ("ask:0",)]
    assert result.programs[1].needs == ("back:0", "call:0")
    assert result.carried == ("call:0",)
    assert [program.passed for program in result.programs] == [("kept:0",), (), ()]


def test_host_ops_on_the_same_level_share_a_place():
    text = TWO.replace("second:MatMul(call", """
    other:PyFunc(first) host=python repeats=no
    last:PyFunc(call other) host=python repeats=no
    second:MatMul(last""")  # fmt: skip
    result = plan(graph(text), [], ["apply"])
    assert [sorted(program.hosts) for program in result.programs] == [["call", "last", "other"], []]
    assert result.programs[0].shown == ("first:0", "kept:0")
    assert result.programs[1].fed == ("last:0",)


def test_a_host_op_in_the_middle_of_a_written_variable_is_refused():
    text = TWO.replace("call:PyFunc(kept)", "count:AssignAdd(v kept) writes=v repeats=no\n call:PyFunc(kept ^count)")
    result = plan(graph(text), [], ["apply"])
    assert result.refusal == (
        "node 'call' (PyFunc) must run in the session (python) and waits until variable 'v' is written"
    )
    looped = TWO.replace("call:PyFunc(kept)", "enter:Enter(kept)\n call:PyFunc(enter)")
    assert "'call' (PyFunc) must run in the session (python) and is inside of a loop" in plan(
        graph(looped), [], ["apply"]
    ).refusal  # fmt: skip


def test_what_is_drawn_in_a_loop_is_not_drawn_again():
    text = TWO.replace("kept:Mul(first drawn) floating", """
    enter:Enter(first) floating
    noise:RandomUniform(enter) repeats=no floating
    inside:Mul(noise enter) floating
    out:Exit(inside) floating
    kept:Mul(first out) floating""")  # fmt: skip
    assert plan(graph(text), [], ["apply"]).refusal is None
    text = text.replace("grown:Mul(back kept)", "again:Enter(back)\n more:Mul(inside again)\n grown:Exit(more)")
    result = plan(graph(text), [], ["apply"])
    assert result.refusal.startswith("node 'noise' (RandomUniform) draws anew each time")


def test_what_waits_for_the_program_and_must_run_in_the_session_is_refused():
    text = STEP + "    call:PyFunc(tag ^apply) host=python repeats=no"
    assert "'call'" in plan(graph(text), ["call:0"], ["apply"]).refusal


def test_assertions_run_before_the_step_and_not_behind_it():
    text = (
        STEP
        + """
    fits:Assert(next tag) host=speaks report repeats=no
    sane:Assert(loss tag) host=speaks report repeats=no asserts first=loss:0
    group:NoOp(^apply ^sane)
    """
    )
    text = text.replace("product:MatMul(scaled read)", "product:MatMul(scaled read ^fits)")
    result = plan(graph(text), ["loss:0"], ["group"])
    assert result.feeding == ("fits", "next")
    assert result.silent == ("sane",)
    assert result.programs[-1].effects == ()


def test_an_assertion_that_shows_a_result_is_known_by_its_condition_before_the_step():
    text = (
        STEP
        + """
    enough:Less(next)
    fits:Assert(enough loss tag) host=speaks report repeats=no asserts first=enough:0
    fed:Assert(loss tag) host=speaks report repeats=no asserts first=p:0
    small:Less(loss)
    sane:Assert(small tag) host=speaks report repeats=no asserts first=small:0
    kept:Less(read)
    same:Assert(kept loss tag) host=speaks report repeats=no asserts first=kept:0
    branch:If(enough loss) asserts first=enough:0
    group:NoOp(^apply ^fits ^fed ^sane ^same ^branch)
    """
    )
    result = plan(graph(text), ["loss:0"], ["group"])
    assert result.refusal is None
    assert result.conditions == {"branch": "enough:0", "fed": "p:0", "fits": "enough:0"}
    assert result.places["enough"] is Place.FEED
    assert result.silent == ("same", "sane")


GUARD = """
    ok:Less(%s)
    switch:Switch(ok ok)
    words:Const(^switch) host=strings
    say:Assert(switch words) host=speaks report repeats=no
    failed:Identity(switch ^say)
    guard:Merge(failed switch:1)
"""


def guarded(about):
    """The step behind an assertion in a conditional about a tensor."""
    return graph(STEP.replace("scaled:Mul(next scale)", "scaled:Mul(next scale ^guard)") + GUARD % about)


def test_an_assertion_in_a_conditional_runs_before_the_step_by_the_conditionals_end():
    result = plan(guarded("next"), ["loss:0"], ["apply"])
    assert result.refusal is None
    assert result.feeding == ("guard", "next")
    assert result.silent == ()
    assert "say" not in result.programs[-1].nodes


def test_an_assertion_in_a_conditional_is_silent_in_a_loop_or_behind_a_product():
    loop = "\n    enter:Enter(next)\n"
    nodes = {**graph(loop), **guarded("enter")}
    assert plan(nodes, ["loss:0"], ["apply"]).silent == ("say",)
    product = "\n    other:MatMul(next read) product\n"
    assert plan({**graph(product), **guarded("other")}, ["loss:0"], ["apply"]).silent == ("say",)


RECORDED = """
    writer:SummaryWriter() host=kernel handle repeats=no
    record:Equal(read scale)
    id:Identity(record)
    on:Switch(id id)
    value:Switch(loss id)
    to:Switch(writer id) host=kernel
    handle_in:Switch(v id) variable
    held:ReadVariableOp(handle_in:1) variable learned
    name:Const(^on) host=strings
    written:WriteScalarSummary(to:1 held name value:1) host=strings repeats=no
    then:Const(^written)
    else:Const(^on)
    end:Merge(else then)
    all:NoOp(^apply ^end)
"""


def recorded(old="", new=""):
    nodes = graph((STEP + RECORDED).replace(old, new))
    return {
        name: replace(node, first=tensor_of(node.inputs[0]) if node.inputs and node.inputs[0][0] != "^" else "")
        for name, node in nodes.items()
    }


def test_a_conditional_that_writes_summaries_runs_behind_the_program_as_a_whole():
    result = plan(recorded(), ["loss:0"], ["all"])
    (program,) = result.programs
    assert result.refusal is None
    assert program.shown == ("loss:0", "read:0", "record:0")
    assert program.effects == ("end",)
    assert program.again == {"held:0": "read:0"}
    assert {"id", "value", "written", "end", "held", "handle_in"}.isdisjoint(program.nodes)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("end:Merge(else then)", "end:Merge(else then)\n more:Const(^on)\n other:Merge(more)\n both:Add(other loss)"),
        ("value:Switch(loss id)", "value:Switch(loss id)\n inner:MatMul(value:1) product\n"),
        ("apply:ApplyAdam(v loss)", "apply:ApplyAdam(v loss ^end)"),
        ("WriteScalarSummary", "PyFunc"),  # given what the variable holds, it would run on either side
        ("then:Const(^written)", "then:Identity(held ^written)"),
        ("held:ReadVariableOp(handle_in:1)", "held:ReadVariableOp(handle_in:1 ^name)"),
    ],
    ids=["other results", "a product", "waited for", "no summary", "a value", "a read that waits"],
)
def test_a_conditional_that_holds_more_than_summaries_is_refused(old, new):
    targets = ["all", "both"] if "both" in new else ["all", "inner"] if "inner" in new else ["all"]
    assert "is inside of a loop or tf.cond" in plan(recorded(old, new), ["loss:0"], targets).refusal


def test_a_print_hands_on_in_the_program_and_prints_in_the_session():
    text = STEP.replace("apply:ApplyAdam(v loss)", "apply:ApplyAdam(v print)")
    text += "    print:Print(loss loss) report forwards repeats=no"
    result = plan(graph(text), [], ["apply"])
    assert result.places["print"] is Place.PROGRAM
    assert result.programs[-1].effects == ("print",)
    assert result.shown == ("loss:0",)


def test_a_print_of_what_is_fed():
    """Regression: an IndexError left the step to the session."""
    result = plan(graph(STEP + "    print:Print() report forwards repeats=no"), ["print:0"], ["apply"])
    assert result.programs[-1].effects == ("print",)


CHECK = "    check:CheckNumerics(%s) host=error checks repeats=no"


def test_a_check_of_a_result_is_run_behind_the_program_and_hands_on_in_it():
    result = plan(graph(STEP + CHECK % "loss" + "\n    end:Identity(check ^apply)"), ["end:0"], [])
    assert result.places["check"] is result.places["end"] is Place.PROGRAM
    assert result.programs[-1].effects == ("check",)
    assert result.shown == ("loss:0",)


def test_a_check_in_front_of_an_update_is_run_before_it():
    text = STEP.replace("apply:ApplyAdam(v loss)", "apply:ApplyAdam(v check)")
    result = plan(graph(text + CHECK % "loss"), [], ["apply"])
    assert result.places["check"] is Place.MIDDLE
    assert len(result.programs) == 2


def test_reports_in_conditionals_are_silent_with_what_makes_their_text():
    text = (
        STEP
        + """
    flag:Const()
    switch:Switch(loss flag)
    word:StringFormat(switch:1) host=strings
    say:PrintV2(word) host=speaks report repeats=no
    out:Identity(switch:1 ^say)
    merge:Merge(out switch)
    """
    )
    nodes = graph(text)
    assert depths(nodes)["say"] == 1
    assert depths(nodes)["merge"] == 0
    result = plan(nodes, ["merge:0"], ["apply"])
    assert result.refusal is None
    assert result.silent == ("say",)
    assert "word" not in result.places


def test_random_numbers_that_the_host_shares_are_drawn_once():
    text = STEP.replace("scaled:Mul(next scale)", """
    noise:RandomUniform(scale) repeats=no
    call:PyFunc(noise) host=python repeats=no
    both:Mul(call noise)
    scaled:Mul(next both)""")  # fmt: skip
    result = plan(graph(text), ["loss:0"], ["apply"])
    assert result.fed == ("call:0", "next:0", "noise:0")
    assert result.place("noise:0") is Place.FEED


def test_loops_have_depths():
    nodes = graph("""
    start:Const()
    enter:Enter(start)
    merge:Merge(enter next)
    cond:LoopCond(merge)
    switch:Switch(merge cond)
    body:Add(switch:1)
    next:NextIteration(body)
    exit:Exit(switch)
    """)
    depth_of = depths(nodes)
    assert [depth_of[name] for name in ("start", "enter", "merge", "switch", "body", "exit")] == [0, 1, 1, 1, 1, 0]


def test_a_loop_is_as_deep_as_it_is_entered_though_it_waits_for_a_branch_inside():
    nodes = graph(
        """
    start:Const()
    enter:Enter(start)
    merge:Merge(enter next)
    cond:LoopCond(merge)
    switch:Switch(merge cond)
    decides:Less(switch:1)
    branch:Switch(switch:1 decides)
    push:StackPushV2(branch)
    sync:ControlTrigger(^push)
    joined:Merge(branch push)
    next:NextIteration(joined ^sync)
    %s
    count:Enter(late9)
    counts:Merge(count counted)
    exit:Exit(leaves)
    leaves:Switch(counts cond)
    counted:NextIteration(counts ^sync)
    behind:AsString(exit)
    """
        % "\n".join("late%d:Identity(%s)" % (n, "late%d" % (n - 1) if n else "start") for n in range(10))
    )
    depth_of = depths(nodes)
    assert [depth_of[name] for name in ("push", "joined", "merge", "counts", "exit", "behind")] == [2, 1, 1, 1, 0, 0]


def test_a_step_whose_rest_the_session_cannot_run_without_running_its_input_again_is_refused():
    waits = STEP.replace("scale:Const()", "scale:Reading(^next)")
    refusal = plan(graph(waits), ["loss:0"], ["apply"]).refusal
    assert refusal.startswith("node 'scale' (Reading) waits for 'next' (IteratorGetNext), which the session runs")
    group = STEP + "\n    both:NoOp(^apply ^next)"
    assert plan(graph(group), ["loss:0"], ["both"]).refusal is None  # the session runs 'apply' alone


def test_a_gradient_s_constant_that_waits_for_a_host_op_is_given_to_the_session():
    result = plan(graph(TWO + "\n    two:Const(^call)\n    half:Mul(grown two)"), ["half:0"], ["apply"])
    assert result.refusal is None
    assert result.waiting == ((), ("two",))  # in front of the first program 'call' is still to run
    assert plan(graph(STEP.replace("scale:Const()", "scale:Const(^v)")), ["loss:0"], ["apply"]).waiting == ((),)
    group = TWO + "\n    all:NoOp(^call)\n    one:Const(^all)\n    two:Const(^one)\n    half:Mul(grown two)"
    assert plan(graph(group), ["half:0"], ["apply"]).waiting == ((), ("two",))


def test_a_constant_that_waits_for_host_ops_of_two_parts_leaves_the_step_to_the_session():
    """If the first program cannot be compiled, one of them has run and the other one has not."""
    refusal = plan(graph(TWO + "\n    two:Const(^next ^call)\n    half:Mul(grown two)"), ["half:0"], ["apply"]).refusal
    assert refusal.startswith("node 'two' (Const) waits for 'next' (IteratorGetNext), which the session runs")


@pytest.mark.parametrize("between", [
    "two:Const(^put)", "two:Mul(loss loss ^put)", "all:NoOp(^put)\n one:Const(^all)\n two:Identity(one)"
])  # fmt: skip
def test_what_stands_between_two_ops_behind_the_program_keeps_their_order(between):
    text = STEP + "\n put:PyFunc(loss) host=python repeats=no\n %s\n seen:PyFunc(two) host=python repeats=no"
    result = plan(graph(text % between), ["seen:0", "two:0", "loss:0"], ["apply"])
    assert result.refusal is None
    assert result.place("two:0") is Place.READ
    assert result.programs[-1].needs == result.shown == ("loss:0",)


def test_what_waits_for_an_op_behind_the_program_and_gives_nothing_to_another_one_is_the_program_s():
    text = STEP + "\n put:PyFunc(loss) host=python repeats=no\n two:Mul(loss loss ^put)\n tail:Const(^next)"
    seen = "\n seen:PyFunc(tail loss) host=python repeats=no"
    result = plan(graph(text + seen), ["two:0", "seen:0"], ["apply"])
    assert result.place("two:0") is Place.PROGRAM
    assert result.place("tail:0") is Place.PROGRAM  # what it waits for has run in an earlier part


def test_a_step_that_writes_into_the_memory_of_a_tensor_is_refused():
    """Whoever reads that memory by its own name sees what was written."""
    text = STEP + "\n    row:InplaceUpdate(scaled index loss)\n    index:Const()\n    seen:Identity(scaled ^row)"
    assert plan(graph(text), ["seen:0"], ["apply"]).refusal == (
        "node 'row' (InplaceUpdate) writes into the memory of its input, which a program does not share"
    )
