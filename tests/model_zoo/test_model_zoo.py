"""The model-zoo suite: how runs are judged, and a sample of them where NPU_SHIM_ZOO names a checkout of the scripts."""

import os
import subprocess
import sys

import drive
import library_table
import pytest
import suite
import table
import way_table
from drive import _start, folder_of, repositories_of, run, run_way
from judge import NO_STEP, NOT_TAKEN, OTHER, OWN_FAULT, STOPS, WHOLE, Ran, judge, judge_way, last_error
from recipe import HERE, LIBRARIES, REPOSITORIES, SCRIPTS, Recipe, chosen, recipes
from ways import ENGINE, FLOAT32, MIXED, REAL, THREE, chosen_ways

# a loop that is stopped, and a script that ends by itself with a checkpoint
SAMPLE = ("word2vec_ID0134", "LeNet_ID0127")

RECIPE = Recipe("TensorFlow/contrib/nlp/net", "train.py --steps=2")
GRAPH = {
    "mode": "allow_mix_precision", "low": "float16", "changed": True, "low_by_hand": 0, "slots": 9, "lowered": 4,
}  # fmt: skip
IDLE = {**GRAPH, "changed": False, "lowered": 0}


def step(number, loss=2.5, fetched=0, name="loss:0"):
    return {"step": number, "fetched": fetched, "seconds": 0.1 * number, "scalars": {name: loss}}


def ran(*trace, status=0, log="", missing=""):
    return Ran(status, list(trace), log, 10.0, missing)


def test_a_run_that_trains_in_its_mode_and_ends_is_whole():
    outcome = judge(RECIPE, ran(IDLE, GRAPH, step(1), step(2), step(3)))
    assert outcome.result == WHOLE
    assert (outcome.lowered, outcome.slots, outcome.steps, outcome.first_loss) == (4, 9, 3, 2.5)
    assert outcome.step_ms == 250  # without the first step, which is traced and compiled


@pytest.mark.parametrize(
    ("what", "result", "cause"),
    [
        (ran(step(1), step(2)), OTHER, "no graph reached the rewriter"),
        (ran(IDLE, step(1)), OTHER, "allow_mix_precision lowered nothing"),
        (ran({**GRAPH, "mode": "force_fp16"}, step(1)), OTHER, "in force_fp16, expected allow_mix_precision"),
        (ran(GRAPH, step(1), step(2, fetched=1)), OTHER, "1 of 2 graphs that train were changed"),
        (ran(GRAPH, step(1), {**step(2, fetched=1), "shared": True}), WHOLE, ""),
        (ran(GRAPH, step(1), status=None), STOPS, "over the limit of 300 s with 1 training steps"),
        (ran(GRAPH, step(1), status=3), STOPS, "exit status 3"),
        (ran(GRAPH, step(1), status=1, log="at x\nKeyError: 'a'\nbye"), STOPS, "KeyError: 'a'"),
        (ran(GRAPH, log="read\ndone\n"), STOPS, "no training step; last line: done"),
        (ran(GRAPH, step(1), step(2, loss=float("nan"))), STOPS, "a loss is nan, 1 of 2"),
        (ran(GRAPH, step(1), missing="*.index"), STOPS, "no checkpoint *.index"),
    ],
)
def test_what_is_not_whole_has_a_cause(what, result, cause):
    outcome = judge(RECIPE, what)
    assert (outcome.result, outcome.cause) == (result, cause)


def test_the_first_loss_is_held_against_its_range():
    within = RECIPE._replace(loss=(2, 3))
    assert judge(within, ran(GRAPH, step(1))).result == WHOLE
    assert judge(within, ran(GRAPH, step(1, loss=7.0))).cause == "first loss 7.0, expected 2 to 3"
    assert judge(within, ran(GRAPH, {**step(1), "scalars": {}})).cause == "first loss not fetched, expected 2 to 3"


def test_what_an_engine_takes_is_counted_among_the_steps_that_write():
    taken = {"taken": True, "programs": 2, "host_ops": 3}
    left = {"taken": False, "why": "a string"}
    lines = [{**step(1), **taken}, {**step(2), "taken": False, "why": NO_STEP}, {**step(3), **left}]
    outcome = judge(RECIPE, ran(GRAPH, *lines))
    assert (outcome.taken, outcome.written, outcome.why_not, outcome.host_ops) == (1, 2, "a string", 3)
    shown = table.markdown({"TensorFlow/a:b": outcome, "TensorFlow/c:d": judge(RECIPE, ran(GRAPH))})
    assert "| a | b | whole | 1 of 2 | 2 | 3 | 2.5 |" in shown
    assert "| c | d | stops |  | 0 | 0 |" in shown  # it has the same columns
    assert "the engine took the steps of 0 of 1" in shown


def test_a_loss_scale_that_is_fetched_is_no_loss():
    fetched = {"loss_scale:0": float("inf"), "cost:0": 1.5}
    assert judge(RECIPE, ran(GRAPH, {**step(1), "scalars": fetched})).first_loss == 1.5


def test_float16_by_hand_is_expected_where_the_recipe_says_so():
    by_hand = RECIPE._replace(lowers=False)
    assert judge(by_hand, ran({**IDLE, "low_by_hand": 12}, step(1))).result == WHOLE
    assert judge(by_hand, ran(IDLE, step(1))).result == OTHER


def test_a_fault_of_the_script_is_told_and_one_that_has_gone_as_well():
    own = RECIPE._replace(own_fault="train.py:3 reads a file that it never writes")
    assert judge(own, ran(status=1))[:2] == (OWN_FAULT, own.own_fault)
    assert judge(own, ran(GRAPH, step(1))).result == STOPS


def test_the_last_error_of_a_log_is_its_cause():
    log = "ValueError: first\nTraceback\ntensorflow.python.framework.errors_impl.InternalError: last\n  in x.py"
    assert last_error(log) == "InternalError: last"
    assert last_error(log + "\nInternalError: Graph execution error:\n\nDetected at") == "InternalError: last"
    assert last_error("an Error: in the middle\n") == ""


def test_a_way_asks_for_what_it_is_about():
    assert judge_way(RECIPE, FLOAT32, ran(step(1)), None).result == WHOLE
    assert judge_way(RECIPE, MIXED, ran(GRAPH, step(1)), [2.5]).result == WHOLE
    assert judge_way(RECIPE, MIXED, ran(IDLE, step(1)), [2.5])[:2] == (OTHER, "allow_mix_precision lowered nothing")
    assert judge_way(RECIPE, MIXED, ran(step(1)), [2.5])[:2] == (OTHER, "no graph reached the rewriter")
    taken = {**step(1), "taken": True, "programs": 1, "host_ops": 0}
    left = {**step(2), "taken": False, "why": "a string"}
    assert judge_way(RECIPE, ENGINE, ran(taken), None).result == WHOLE
    assert judge_way(RECIPE, ENGINE, ran(taken, left), None)[:2] == (NOT_TAKEN, "a string")
    assert judge_way(RECIPE, ENGINE, ran(step(1)), None)[:2] == (NOT_TAKEN, "no session reached the engine")


def test_losses_stay_beside_those_of_float32():
    lines = [GRAPH, step(1, loss=2.5), step(2, loss=2.0)]
    assert judge_way(RECIPE, MIXED, ran(*lines), [2.4, 2.1]).result == WHOLE
    assert judge_way(RECIPE, MIXED, ran(*lines), [2.5, 2.4])[:2] == (STOPS, "loss 2 is 2, in float32 2.4")
    assert judge_way(RECIPE._replace(apart=0.3), MIXED, ran(*lines), [2.5, 2.4]).result == WHOLE
    assert judge_way(RECIPE, MIXED, ran(GRAPH, step(1, loss=0.05)), [0.02]).result == WHOLE  # near zero: by difference


def test_a_repository_has_a_row_with_all_ways():
    outcomes = {
        "a/b:x.py float32": judge_way(RECIPE, FLOAT32, ran(step(1)), None),
        "a/b:x.py mixed": judge_way(RECIPE, MIXED, ran(IDLE, step(1)), [2.5]),
    }
    shown = way_table.markdown(outcomes)
    assert "| a/b | x.py | whole | other precision |" in shown
    assert "1 scripts: 1 of 1 whole in float32, 0 of 1 whole in mixed; 0 in every way" in shown


def test_a_library_has_a_row_with_what_was_installed():
    name = "tflearn:train.py"
    outcomes = {
        name + " float32": judge_way(RECIPE, FLOAT32, ran(step(1, loss=2.5)), None),
        name + " mixed": judge_way(RECIPE, MIXED, ran(GRAPH, step(1, loss=2.5)), [2.5]),
        name + " 1.15.5": judge_way(RECIPE, REAL, ran(step(1, loss=9.0)), [2.5]),
    }
    shown = library_table.markdown(outcomes)
    assert "| tflearn | `tflearn==0.5.0` | whole | whole |  | stops | 4 of 9 |" in shown
    assert "1 libraries: 1 of 1 whole in float32, 1 of 1 whole in mixed, 0 of 1 whole in 1.15.5; 0 in every" in shown


def test_each_library_has_a_script_and_says_what_is_installed():
    everything = recipes(LIBRARIES)
    assert len({recipe.name for recipe in everything}) == len(everything)
    assert all(recipe.install and recipe.checkpoint for recipe in everything)
    assert {path.name for path in SCRIPTS.iterdir()} == {recipe.network for recipe in everything}
    assert all((SCRIPTS / recipe.network / "train.py").is_file() for recipe in everything)


def test_the_real_one_needs_its_interpreter(monkeypatch):
    monkeypatch.delenv("NPU_SHIM_TF115", raising=False)
    with pytest.raises(LookupError, match="NPU_SHIM_TF115 must name an interpreter"):
        chosen_ways("float32,1.15.5")
    monkeypatch.setenv("NPU_SHIM_TF115", sys.executable)
    assert chosen_ways("1.15.5") == [REAL]


def test_ways_are_named():
    assert chosen_ways("mixed,engine") == [MIXED, ENGINE]
    with pytest.raises(LookupError, match="there is no way 'fast', but float32, mixed"):
        chosen_ways("float32,fast")


def test_recipes_of_repositories_say_at_which_commit_they_were_tried():
    everything = recipes(REPOSITORIES)
    assert len({recipe.name for recipe in everything}) == len(everything)
    assert all(len(recipe.commit) == 10 for recipe in everything)


def test_recipes_are_found_by_name_and_by_domain():
    everything = recipes()
    assert len({recipe.name for recipe in everything}) == len(everything)
    assert {recipe.domain for recipe in chosen(["superresolution"])} == {"superresolution"}
    assert len(chosen(["word2vec"])) == 1
    with pytest.raises(LookupError, match="no recipe has 'nothing'"):
        chosen(["nothing"])


def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("NPU_SHIM_ZOO", raising=False)
    monkeypatch.delenv("NPU_SHIM_REPOSITORIES", raising=False)
    assert suite.main(["word2vec"]) == 2
    assert suite.main(["--zoo", str(tmp_path)]) == 2
    assert suite.main(["--repositories", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "--zoo DIR" in said
    assert "has no folder TensorFlow" in said
    assert "has no checkout such as" in said


def test_what_a_recipe_asks_of_run_stands_in_front_of_what_the_way_does(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(drive, "_start", lambda recipe, command, net, runner, *others: started.append(runner) or 0)
    recipe = RECIPE._replace(options=["--set", "npu_shim_saturate=true"], prepare=["data.py"], again="read.py")
    assert drive._start_all(recipe, tmp_path, MIXED, {}, None) == 0
    asked = ["--set", "npu_shim_saturate=true", "--precision-mode", "auto"]
    run_it = ["-m", "npu_shim", "run"]
    assert started == [run_it, [str(HERE / "observe.py"), *asked], [*run_it, *asked]]


def test_sets_of_words_have_one_order_in_all_ways(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    orders = set()
    for number in range(3):
        with open(str(tmp_path / str(number)), "w") as log:
            command = "-c 'print(list({str(n) for n in range(50)}))'"
            assert _start(RECIPE, command, tmp_path, [], {}, log) == 0
        orders.add((tmp_path / str(number)).read_text())
    assert len(orders) == 1


@pytest.mark.nightly
def test_graphs_keep_the_seed_that_estimators_take_away():
    code = "import observe; observe.sow(5); import tensorflow.compat.v1 as tf; graph = tf.Graph()\n"
    code += "for given, seed in ((None, 5), (7, 7)):\n    graph.seed = given\n    assert graph.seed == seed, graph.seed"
    own = {**os.environ, "NPU_SHIM_TRACE": os.devnull, "PYTHONPATH": str(HERE)}
    done = subprocess.run([sys.executable, "-c", code], env=own, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_results_of_other_networks_stay_in_the_file(tmp_path):
    outcomes = {"TensorFlow/a:x.py": judge(RECIPE, ran(GRAPH, step(1)))}
    table.write(tmp_path / "a.json", outcomes)
    again = table.read(tmp_path / "a.json")
    assert again == outcomes
    assert "| a | x.py | whole | allow_mix_precision | 4 of 9 |" in table.markdown(again)


@pytest.fixture(scope="module")
def zoo():
    """A checkout of the collection that the user has; it is never part of this repository."""
    if not os.environ.get("NPU_SHIM_ZOO"):
        pytest.skip("NPU_SHIM_ZOO names no checkout of the collection")
    return folder_of(os.environ["NPU_SHIM_ZOO"])


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_the_suite_is_whole(name, zoo, tmp_path):
    (recipe,) = chosen([name])
    outcome = run(recipe, zoo, tmp_path)
    assert (outcome.result, outcome.cause) == (WHOLE, "")


@pytest.fixture(scope="module")
def repositories():
    """Checkouts of public repositories that the user has, in owner/name; never part of this repository."""
    if not os.environ.get("NPU_SHIM_REPOSITORIES"):
        pytest.skip("NPU_SHIM_REPOSITORIES names no folder with checkouts of public repositories")
    return repositories_of(os.environ["NPU_SHIM_REPOSITORIES"], recipes(REPOSITORIES))


@pytest.mark.nightly
@pytest.mark.parametrize("name", [recipe.name for recipe in recipes(REPOSITORIES)])
def test_a_repository_is_whole_in_three_ways(name, repositories, tmp_path):
    (recipe,) = (recipe for recipe in recipes(REPOSITORIES) if recipe.name == name)
    if not (repositories / recipe.network).is_dir():
        pytest.skip("no checkout of " + recipe.network)
    losses = None
    for way in THREE:
        outcome = run_way(recipe, repositories, tmp_path, way, losses)
        assert (outcome.result, outcome.cause) == (WHOLE, ""), way.name
        losses = losses or outcome.losses


KEPT = """
import observe
observe.watch_entrances()  # as with the engine: sessions are imported then
observe.keep_float32()
from npu_shim.session.interception.session_options import resolve
from npu_shim.options import precision
asked = {"precision_mode": "allow_mix_precision"}
print(resolve(asked).policy == precision.resolve(asked).policy == precision.resolve({}).policy)
"""


@pytest.mark.nightly
def test_float32_is_for_sessions_with_the_engine_too(tmp_path):
    trace = tmp_path / "trace.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", KEPT], cwd=str(HERE), env={**os.environ, "NPU_SHIM_TRACE": str(trace)},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["True"]
