"""Each option, flag and variable says at a run's end that it had no effect, or there is a reason why it need not."""

import json
import pathlib
import re

import pytest

from npu_shim.cli.scripts import run
from npu_shim.options import table
from npu_shim.options.reports import doors, ledger

ROOT = pathlib.Path(__file__).resolve().parents[2]
# variables of tests, of this repository's own scripts, and of the compiler
NOT_OF_RUNS = {
    "NPU_SHIM_FUZZ", "NPU_SHIM_GOLDEN", "NPU_SHIM_LABEL", "NPU_SHIM_NIGHTLY", "NPU_SHIM_REPOSITORIES", "NPU_SHIM_WHEEL",
    "NPU_SHIM_TF115_TREE", "NPU_SHIM_TEST_TF115", "NPU_SHIM_TF", "NPU_SHIM_X86", "NPU_SHIM_ZOO", "NPU_SHIM_X",
    "NPU_SHIM_SWITCH", "NPU_SHIM_INLINE",
}  # fmt: skip


def test_every_flag_of_run_has_a_door_or_a_reason():
    assert sorted([*doors.FLAGS, *doors.FLAGS_WITHOUT_DOOR]) == sorted(run.OPTIONS)


def test_every_option_has_a_door_or_a_reason():
    known = {name: option for name, option in table.options().items() if option.status != "refused"}
    with_door = {name for name in known if name in doors.OPTIONS or name in doors.OPTIONS_WITHOUT_DOOR}
    keys = {name for name, option in known.items() if option.field and option.status == "honored"}
    assert sorted(with_door) == sorted(keys) == sorted([*doors.OPTIONS, *doors.OPTIONS_WITHOUT_DOOR])
    for name in known.keys() - keys:  # those that mean nothing here say so, and the others are no keys
        assert doors.ACCEPTED if known[name].status == "accepted" else known[name].run_config is not None, name


def test_every_variable_has_a_door_or_a_reason():
    files = [path for top in ("npu_shim", "rewriter", "docs") for path in (ROOT / top).rglob("*") if path.is_file()]
    texts = [path.read_text(errors="ignore") for path in files if path.suffix in (".py", ".md", ".cc", ".json")]
    named = {name for text in texts for name in re.findall(r"\bNPU_SHIM_[A-Z0-9_]*[A-Z0-9]\b", text)} - NOT_OF_RUNS
    assert sorted(named) == sorted([*doors.ENVIRONMENT, *doors.ENVIRONMENT_WITHOUT_DOOR])


def facts(*kinds):
    return [ledger.Fact(*(kind if isinstance(kind, tuple) else (kind, ""))) for kind in kinds]


# door -> what is noted where it had an effect; where it had none, beside a session; a word of the line
EFFECTS = {
    "mode": (ledger.LOWERED_IN_TRAINING, [ledger.LOWERED, (ledger.KEPT_IN_TRAINING, "float64")], "step: float64"),
    "engine": (ledger.TAKEN, [(ledger.LEFT, "the run of 'x': why"), ledger.NO_UPDATE], "all: the run of 'x': why"),
    "own engine": (ledger.TAKEN, [(ledger.LEFT, "why")], "has taken no training step, the session ran all: why"),
    "devices": (ledger.TAKEN, [(ledger.LEFT, "why")], "has taken no training step, the session ran all: why"),
    "shares": (ledger.SHARED, [ledger.TAKEN], "no training step ran on several devices"),
    "ahead": (ledger.AHEAD, [ledger.TAKEN], "reads an iterator that can be read ahead"),
    "worker": (ledger.TAKEN, [], "was not needed"),
    "scale": (ledger.SCALED, [(ledger.UNSCALED, "by hand"), ledger.WITHOUT_FLOAT16], "has scaled no loss: by hand"),
    "step": (ledger.TAKEN, [(ledger.LEFT, "why")], "no training step of a session ran as one"),
    "clusters": (ledger.CLUSTERS, [], "no cluster"),
    "watch": (ledger.WATCHED, [], "no run fetched a merged summary"),
    "dump": (ledger.DUMPED, [], "has written nothing"),
    "masters": (ledger.MASTERED, [], "had no effect: no optimizer of the script updates a 16-bit variable"),
    "restore": (ledger.CASTING, [], "had no effect: the script made no tf.train.Saver, or only some with builders"),
    "profile": (ledger.PROFILED, [], "has written no profile"),
    "repeat": (ledger.REPEATED, [], "the key alone does not"),
}


@pytest.mark.parametrize("door", doors.DOORS)
def test_a_door_that_nothing_passed_says_so(door):
    asked, met = [("--name", "word", door)], doors.DOORS[door].session
    if not met:
        assert doors.lines([], asked) == ["--name word " + EFFECTS[door][2]]
        assert doors.lines(facts(EFFECTS[door][0]), asked) == []
        return
    (none,) = doors.lines([], asked)
    assert none.startswith("--name word has reached no session: it %s, and the script" % doors.DOORS[door].takes)
    if door not in EFFECTS:
        assert doors.lines(facts(met), asked) == []
        return
    effect, others, words = EFFECTS[door]
    (line,) = doors.lines(facts(met, *others), asked)
    assert line.startswith("--name word ")
    assert words in line
    assert doors.lines(facts(met, *others, effect), asked) == []


def test_less_telling_reasons_are_given_where_there_is_no_better_one():
    engine = [("--engine", "pjrt", "engine")]
    for kinds, words in (
        ([(ledger.SMALL, "small")], "all: small"),
        ([(ledger.LEFT, "a"), (ledger.LEFT, "b")], "all: a (and 1 others)"),
        ([ledger.NO_UPDATE], "tf.contrib.opt.ScipyOptimizerInterface"),
        ([], "no run of a session updates variables"),
    ):
        assert words in doors.lines(facts(ledger.FREE_SESSION, *kinds), engine)[0]
    scale = [("--loss-scale", "8", "scale")]
    assert "nothing in float16" in doors.lines(facts(ledger.SESSION, ledger.WITHOUT_FLOAT16), scale)[0]
    assert "no optimizer" in doors.lines(facts(ledger.SESSION), scale)[0]
    mode = [("--precision-mode", "auto", "mode")]
    assert doors.lines(facts(ledger.SESSION, (ledger.KEPT, "why")), mode) == [
        "--precision-mode auto lowered nothing: why"
    ]
    assert doors.lines(facts(ledger.SESSION, (ledger.KEPT, "why"), ledger.LOWERED), mode) == []


def test_an_engine_that_a_config_or_enable_names_has_reached_the_sessions_that_it_is_for():
    """Such a session is not one that names no engine."""
    for name in ("option: npu_shim_engine", "npu_shim.enable: npu_shim_engine"):
        asked = [(name, "pjrt", doors.of_option("npu_shim_engine", "pjrt"))]
        assert doors.lines(facts(ledger.SESSION, ledger.TAKEN), asked) == []
        assert "has reached no session: it runs the training steps of sessions, and" in doors.lines([], asked)[0]
    assert doors.lines(facts(ledger.SESSION, ledger.TAKEN), doors.asked_by("--set", "npu_shim_engine=pjrt")) == []


def test_words_that_ask_for_nothing_are_no_requests():
    asked = lambda *pair: [door for _, _, door in doors.asked_by(*pair)]  # noqa: E731
    assert asked("--engine", "auto") == asked("--engine", "session") == asked("--loss-scale", "off") == []
    assert asked("--engine", "pjrt") == asked("NPU_SHIM_ENGINE", "pjrt") == ["engine"]
    assert asked("--set", "npu_shim_watch=true") == ["watch"]
    assert asked("--set", "npu_shim_engine=pjrt") == ["own engine"]
    assert doors.of_option("npu_shim_engine", "session") is None
    assert asked("--set", "npu_shim_profile=gpu") == ["options"]
    assert asked("--verbose", "") == asked("NPU_SHIM_LOG", "off") == []
    assert doors.of_option("iterations_per_loop", 1) is doors.of_option("npu_shim_xla", "off") is None
    assert doors.of_option("iterations_per_loop", 10) == "repeat"
    (line,) = doors.lines([], doors.asked_by("--set", "precision_mode=auto"))
    assert "it overrides the options of sessions" in line


STEPS = {
    (
        14,
        2,
        0,
        1,
        2,
        8192.0,
    ): "2 of 14 training steps were skipped, since their gradients overflowed: step 1 the first, "
    "step 2 the last; the loss scale is 8192 now",
    (14, 1, 0, 3, 3, None): "1 of 14 training steps were skipped, since their gradients overflowed: step 3",
    (
        40,
        40,
        12,
        1,
        40,
        1.0,
    ): "all 40 training steps were skipped, since their gradients overflowed: step 1 the first, step "
    "40 the last; the loss scale is 1 now, and is stuck at its smallest",
    (
        40,
        40,
        12,
        1,
        40,
        None,
    ): "all 40 training steps were skipped, since their gradients overflowed: step 1 the first, "
    "step 40 the last; the loss scale is stuck at its smallest",
}


def test_skipped_steps_are_told_with_the_first_and_the_last():
    for steps, line in STEPS.items():
        assert doors.lines(facts((ledger.STEPS, json.dumps([steps, "1:0"])))) == [line]
    assert doors.lines(facts((ledger.STEPS, json.dumps([(14, 0, 0, 0, 0, 1.0), "1:0"])))) == []


def test_sessions_with_equal_counts_of_skipped_steps_are_counted():
    steps = (4, 2, 0, 1, 2, None)
    [line] = doors.lines(facts(*((ledger.STEPS, json.dumps([steps, whose])) for whose in ("1:0", "1:1"))))
    assert line.startswith("2 of 4 training steps were skipped")
    assert line.endswith(" (in each of 2 sessions)")


def test_processes_note_into_one_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path))
    before = ledger.of_process()
    for _ in range(2):
        ledger.note(ledger.TAKEN)
        ledger.ask("option: npu_shim_watch", True, "watch")
    assert [fact.kind for fact in ledger.of_folder(str(tmp_path))] == [ledger.TAKEN, ledger.ASKED]
    assert ledger.of_process() == before
    (line,) = doors.lines([*ledger.of_folder(str(tmp_path)), *facts(ledger.SESSION)])
    assert line.startswith("option: npu_shim_watch True had no effect: no run fetched a merged summary")
    assert ledger.of_folder(str(tmp_path / "gone")) == ()
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path / "gone"))
    ledger.note(ledger.SCALED)  # the command that asked has ended
