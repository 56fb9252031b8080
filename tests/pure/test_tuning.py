"""What `npu-shim tune` decides without TensorFlow: criteria, ranking, bisection, files, state, wrong input."""

import json
import math

import pytest

from npu_shim import cli
from npu_shim.cli.scripts.tuning import criteria, launch, proposal, search, state, told, trials
from npu_shim.cli.scripts.tuning.criteria import Criterion, Outcome
from npu_shim.cli.scripts.tuning.proposal import Node
from npu_shim.options import precision
from npu_shim.options.ops import customize, mixlist
from npu_shim.rewriter.errors import ConfigError
from npu_shim.session.trial import protocol, ranking

FALLING = [1.0 / (step + 1) for step in range(80)]


# criteria


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("loss", Criterion("loss", "<=", 0.05)), ("loss<=0.02", Criterion("loss", "<=", 0.02)),
        ("finite", Criterion("finite", "<=", 0.05)), ("metric>=0.95", Criterion("metric", ">=", 0.95)),
        (" metric <= 3 ", Criterion("metric", "<=", 3.0)),
    ],
)  # fmt: skip
def test_words_are_criteria(word, expected):
    assert criteria.parsed([word], expected.kind == "metric") == (expected,)


@pytest.mark.parametrize(
    ("words", "has_pattern", "told"),
    [
        (["los"], False, "--criterion is 'los', expected one of loss, .* .did you mean 'loss'"),
        (["loss>=1"], False, "one of"), (["loss<=x"], False, "one of"), (["loss<=0"], False, "one of"),
        (["loss<=nan"], False, "expected one of"), (["finite<=1"], False, "expected one of"), ([""], False, "expected"),
        (["metric"], True, "expected one of"), (["metric>=1"], False, "give --metric REGEX"),
        (["loss"], True, "no --criterion like metric"),
    ],
)  # fmt: skip
def test_other_words_are_errors(words, has_pattern, told):
    with pytest.raises(ConfigError, match=told):
        criteria.parsed(words, has_pattern)


def test_deviation_is_relative_to_float32_along_the_whole_curve():
    assert criteria.deviation(FALLING, FALLING) == 0
    assert criteria.deviation([1.01 * value for value in FALLING], FALLING) < 0.011
    later = FALLING[:60] + [2 * value for value in FALLING[60:]]
    assert criteria.deviation(later, FALLING) > 0.2
    assert criteria.deviation([math.nan], [1.0]) == criteria.deviation([], FALLING) == math.inf
    assert criteria.deviation([0.0, 0.0], [0.0, 0.0]) == 0  # nothing to be relative to
    assert criteria.deviation([1e-3] * 8, [1.0] + [0.0] * 7) < 1  # a loss that goes to zero has a size there


def test_a_trial_fails_by_what_is_wrong_with_it():
    reference = Outcome({"loss:0": FALLING})
    loss, finite = [Criterion("loss", "<=", 0.05)], [Criterion("finite")]
    assert criteria.problems(Outcome({"loss:0": FALLING}), reference, loss) == []
    spoiled = Outcome({"loss:0": [*FALLING[:3], math.inf]}, 1)
    assert criteria.problems(spoiled, reference, [*loss, *finite]) == ["loss:0 is not finite from step 4 on"]
    assert criteria.problems(Outcome({"loss:0": FALLING[:9]}), reference, finite) == ["9 of 80 steps of loss:0"]
    assert criteria.problems(Outcome({"loss:0": FALLING}, 3), reference, finite) == ["the script ended with status 3"]
    double = Outcome({"loss:0": [2 * value for value in FALLING]})
    assert criteria.problems(double, reference, finite) == []
    assert "deviates" in criteria.problems(double, reference, loss)[0]
    wanted = [Criterion("metric", ">=", 0.9)]
    assert criteria.problems(Outcome({}, metric=0.91), reference, wanted) == []
    assert criteria.problems(Outcome({}, metric=0.89), reference, wanted) == ["metric 0.89"]
    assert criteria.problems(Outcome({}), reference, wanted) == ["no metric was printed"]


def test_a_loss_that_is_not_finite_in_float32_either_is_no_fault_of_the_mode():
    curve = [1.0, math.nan, 1.0]
    assert criteria.problems(Outcome({"a:0": curve}), Outcome({"a:0": curve}), [Criterion("finite")]) == []


@pytest.mark.parametrize(
    ("pattern", "printed", "value"),
    [
        (r"accuracy (\S+)", "accuracy 0.1\naccuracy 0.9\n", 0.9), (r"[\d.]+$", "a 1\nb 2.5", 2.5),
        (r"accuracy (\S+)", "accuracy 0.5\naccuracy none", 0.5), (r"x", "accuracy", None),
        (r"accuracy", "accuracy", None),
    ],
)  # fmt: skip
def test_the_metric_is_the_last_number_that_is_printed(pattern, printed, value):
    assert launch.metric(pattern, printed) == value


# ranking


class Steps:
    """A step of nodes: `bad` ones spoil it wherever they are low; each other one adds a little error."""

    def __init__(self, names, bad, follows=()):
        self.names, self.bad, self.follows, self.count = names, set(bad), dict(follows), 0

    def error(self, float32, low=None):
        self.count += 1
        kept = {name for name in float32 if low is None or name not in low}
        kept |= {name for name, source in self.follows.items() if low is None and source in kept}
        others = [name for name in self.names if name not in kept]
        return math.inf if self.bad & set(others) else 1e-3 * math.sqrt(len(others))


NAMES = ["net/block%d/%s" % (k, op) for k in range(40) for op in ("MatMul", "Add", "Relu", "grad/MatMul")]


@pytest.mark.parametrize("hints", [(), ("net/block7/Add", "elsewhere")])
@pytest.mark.parametrize("bad", [["net/block7/Add"], ["net/block3/Relu", "net/block39/grad/MatMul"], NAMES[:1]])
def test_the_nodes_at_fault_are_found_among_many_with_few_replays(bad, hints):
    steps = Steps(NAMES, bad)
    ranked = ranking.rank({name: name + "::line" for name in NAMES}, hints, steps.error, 80)
    assert ranked["first"] == len(bad)
    kept = {name for group in ranked["groups"][: ranked["first"]] for name in group["lines"]}
    assert kept == set(bad)
    assert ranked["errors"][0] == math.inf
    assert ranked["errors"][1] < 0.02
    assert ranked["replays"] == steps.count <= 60
    assert sorted(name for group in ranked["groups"] for name in group["lines"]) == sorted(NAMES)
    json.dumps(ranked)


def test_what_follows_another_node_need_not_be_kept_itself():
    steps = Steps(NAMES, ["net/block1/Add", "net/block1/Relu"], {"net/block1/Relu": "net/block1/Add"})
    ranked = ranking.rank(dict.fromkeys(NAMES, ""), (), steps.error, 80)
    assert [list(group["lines"]) for group in ranked["groups"][: ranked["first"]]] == [["net/block1/Add"]]


def test_a_limit_of_replays_leaves_groups():
    ranked = ranking.rank(dict.fromkeys(NAMES, ""), (), Steps(NAMES, NAMES[::7]).error, 9)
    assert ranked["replays"] < 40
    assert sorted(name for group in ranked["groups"] for name in group["lines"]) == sorted(NAMES)


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (["a/x", "a/y", "a/z", "b/x"], ("a/x", "a/y", "a/z")), (["a", "a/b"], ("a",)),
        (["n/a/x", "n/a/y", "n/b/x", "n/b/y", "n/c/x"], ("n/a/x", "n/a/y")), (["x1", "x2", "x3", "x4"], ("x1", "x2")),
    ],
)  # fmt: skip
def test_groups_are_split_between_scopes(names, first):
    assert ranking.halves(names) == (first, tuple(name for name in sorted(names) if name not in first))


# what is written


MIXED = {"precision_mode": "allow_mix_precision"}
LINE = "%s::InputDtype:float32,OutputDtype:float32"
GRAPH = [
    Node("a/MatMul", "MatMul", True, 100, LINE % "a/MatMul"), Node("b/MatMul", "MatMul", True, 300, LINE % "b/MatMul"),
    Node("a/Relu", "Relu", True, 1, LINE % "a/Relu"), Node("b/Relu", "Relu", True, 1, LINE % "b/Relu"),
    Node("a/Tanh", "Tanh", True, 1, LINE % "a/Tanh"), Node("sum", "Sum", False, 1, LINE % "sum"),
]  # fmt: skip


def proposed(names, values=MIXED):
    return proposal.of({name: LINE % name for name in names}, GRAPH, values)


def test_a_type_that_is_kept_whole_is_black_listed_and_others_are_single_nodes():
    proposed_files = proposed(["a/Tanh", "a/Relu"])
    assert json.loads(proposed_files.mixlist) == {"black-list": {"to-add": ["Tanh"]}}
    assert proposed_files.customized == LINE % "a/Relu" + "\n"
    assert proposed_files.written("d/ops_info.json") == {
        "modify_mixlist": "d/ops_info.json", "customize_dtypes": "d/ops_info.customize_dtypes.txt",
    }  # fmt: skip
    read = mixlist.merge(mixlist.parse(proposed_files.mixlist, "x"), proposal.table_of(MIXED))
    assert read.table.entries["Tanh"].listed == "black"
    assert read.unmatched == ()
    assert list(customize.parse(proposed_files.customized, "x", read.table).by_name) == ["a/Relu"]
    assert proposed(["a/Relu", "b/Relu"]).customized == ""


def test_products_are_never_black_listed_and_modes_without_lists_get_none():
    assert proposed(["a/MatMul", "b/MatMul"]).mixlist == ""
    assert proposed(["a/Tanh"], {"precision_mode": "allow_fp32_to_fp16"}).mixlist == ""


def test_the_scripts_own_files_stay_in_force(tmp_path):
    (tmp_path / "own").write_text("# mine\n\na/Relu::OutputDtype:float16\nother::OutputDtype:float32\n")
    (tmp_path / "list.json").write_text('{"black-list": {"to-add": ["Add"]}}')
    own = {"customize_dtypes": str(tmp_path / "own"), "modify_mixlist": str(tmp_path / "list.json")}
    proposal = proposed(["a/Relu", "a/Tanh"], {**MIXED, **own})
    assert proposal.mixlist == ""
    assert proposal.customized.splitlines() == [LINE % "a/Relu", LINE % "a/Tanh", "other::OutputDtype:float32"]


def test_the_share_counts_operations_or_nodes_where_these_are_unknown():
    table = precision.profile_table("ascend910")
    high = [node._replace(low=node.name != "a/MatMul" and node.low) for node in GRAPH]
    assert proposal.share(GRAPH, table).low == 1.0
    assert proposal.share(high, table) == ((1, 2), (300, 400))
    assert proposal.share(high, table).low == 0.75
    assert proposal.share([node._replace(operations=0) for node in high], table).low == 0.5


def test_a_graph_trains_by_its_updates_or_by_its_gradients():
    columns = {"op": [0], "low": [1], "operations": [2], "custom": ["line"]}
    pages = [
        {"title": title, "words": ["MatMul"], "nodes": {**columns, "name": [name]}}
        for title, name in (("training: a", "a"), ("evaluation: b", "b"), ("evaluation: c", "gradients/c"))
    ]
    assert proposal.nodes(pages) == [Node(name, "MatMul", True, 2, "line") for name in ("a", "gradients/c")]


# the search


class Progress:
    began = 0.0


class Trainings:
    """Stands for `trials.run`: a training is good where `bad` nodes are in float32; its names are kept in `ran`."""

    def __init__(self, bad, replayable=True):
        self.bad, self.replayable, self.ran = set(bad), replayable, []

    def __call__(self, folder, wanted, trial, progress):
        self.ran.append(trial.name)
        kept = self._kept(trial.options)
        good = trial.options.get("use_off_line") is False or not self.bad - kept
        groups = [{"lines": {node.name: node.line}, "error": 0.5} for node in GRAPH if node.low]
        ranked = {"problem": None if self.replayable else "no", "groups": groups, "first": 4, "errors": [1, 0]}
        return {
            "losses": {"loss:0": FALLING if good else [math.nan] * 80}, "scales": [], "status": 0, "metric": None,
            "printed": "", "values": MIXED, "ranking": ranked if trial.name == search.REPLAY else None,
            "nodes": [list(node._replace(low=node.low and node.name not in kept)) for node in GRAPH],
            "hints": ["a/Tanh"], "advice": [],
        }  # fmt: skip

    def _kept(self, options):
        kept = set()
        if "customize_dtypes" in options:
            with open(options["customize_dtypes"]) as f:
                kept |= {line.partition("::")[0] for line in f}
        if "modify_mixlist" in options:
            with open(options["modify_mixlist"]) as f:
                types = json.load(f)["black-list"]["to-add"]
            kept |= {node.name for node in GRAPH if node.op in types}
        return kept


def wanted(out, most=10):
    return trials.Wanted(("train.py",), (Criterion("loss", "<=", 0.05),), None, None, most, 1, str(out))


def searched(tmp_path, trainings, monkeypatch, most=10):
    monkeypatch.setattr(trials, "run", trainings)
    kept = state.State(str(tmp_path / "o.json.tune"), {"script": "train.py"})
    return search.Search(wanted(tmp_path / "o.json", most), kept, Progress()).result()


def test_nothing_is_tuned_where_the_own_mode_trains_as_float32(tmp_path, monkeypatch):
    trainings = Trainings([])
    result = searched(tmp_path, trainings, monkeypatch)
    assert trainings.ran == [search.FLOAT32, search.OWN]
    assert result.failed == ()
    assert result.proposed.texts("o.json") == {}
    assert "nothing is to be tuned" in told.as_text(result, "o.json", "loss")


def test_the_fewest_groups_are_found_by_bisection(tmp_path, monkeypatch):
    trainings = Trainings(["b/MatMul"])  # the second of the ranking, whose first proposal is 4 groups
    result = searched(tmp_path, trainings, monkeypatch)
    assert trainings.ran[3:] == ["4 in float32", "2 in float32", "1 in float32"]
    assert result.best.kept == 2
    assert result.proposed.customized.splitlines() == [LINE % "a/MatMul", LINE % "b/MatMul"]
    text = told.as_text(result, "o.json", "loss")
    assert "kept in float32 (2 of 5 nodes that the mode lowers):" in text
    assert "stay low" in text  # both products are in float32
    assert 'custom_op.parameter_map["customize_dtypes"].s = tf.compat.as_bytes("o.customize_dtypes.txt")' in text


def test_what_deviates_no_more_than_float32_itself_is_as_good(tmp_path, monkeypatch):
    trainings = Trainings([])

    def noisy(folder, asked, trial, progress):
        outcome = trainings(folder, asked, trial, progress)
        away = {search.OWN: 1.2, search.DISTURBED: noisy.disturbed}.get(trial.name, 1.0)
        return {**outcome, "losses": {"loss:0": [away * value for value in FALLING]}}

    noisy.disturbed = 1.1
    result = searched(tmp_path, noisy, monkeypatch)
    assert trainings.ran == [search.FLOAT32, search.OWN, search.DISTURBED]
    assert result.failed == ()
    assert "the loss deviates by 0.0" in told.as_text(result, "o.json", "loss")
    noisy.disturbed = 1.01
    (tmp_path / "o.json.tune").unlink()
    assert "loss:0 deviates by 0.1" in searched(tmp_path, noisy, monkeypatch).failed[0]


def test_more_groups_are_tried_where_the_first_do_not_do(tmp_path, monkeypatch):
    trainings = Trainings(["a/Tanh"])
    result = searched(tmp_path, trainings, monkeypatch)
    assert trainings.ran[3:] == ["4 in float32", "5 in float32"]
    assert json.loads(result.proposed.mixlist) == {"black-list": {"to-add": ["Relu", "Tanh"]}}


def test_without_a_replay_hints_go_first(tmp_path, monkeypatch):
    trainings = Trainings(["a/Tanh"], replayable=False)
    result = searched(tmp_path, trainings, monkeypatch)
    assert trainings.ran[3:] == ["1 in float32"]
    assert json.loads(result.proposed.mixlist) == {"black-list": {"to-add": ["Tanh"]}}


def test_trials_are_limited_and_the_next_command_goes_on(tmp_path, monkeypatch):
    trainings = Trainings(["a/Tanh"])
    result = searched(tmp_path, trainings, monkeypatch, most=4)
    assert result.best is None
    assert "no list met loss within 4 trials" in told.as_text(result, "o.json", "loss")
    again = Trainings(["a/Tanh"])
    assert searched(tmp_path, again, monkeypatch, most=6).best.kept == 5
    assert again.ran == ["5 in float32"]
    with pytest.raises(ConfigError, match="2 trials do not suffice for the one called 'replay'"):
        searched(tmp_path / "..", Trainings(["a/Tanh"]), monkeypatch, most=2)


def test_what_is_interrupted_goes_on_where_it_was(tmp_path, monkeypatch):
    trainings = Trainings(["b/MatMul"])

    def stopped(folder, asked, trial, progress):
        if trial.name == "2 in float32":
            raise KeyboardInterrupt
        return trainings(folder, asked, trial, progress)

    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, stopped, monkeypatch)
    again = Trainings(["b/MatMul"])
    assert searched(tmp_path, again, monkeypatch).best.kept == 2
    assert again.ran == ["2 in float32", "1 in float32"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"status": 1, "printed": "  its last line"}, "ends with status 1 in float32:\n  its last line"),
        ({"losses": {}}, "no training step was seen"),
        ({"losses": {"loss:0": [1.0, math.nan]}}, "float32 itself does not meet loss<=0.05 .loss:0 is not finite"),
    ],
)
def test_a_float32_that_does_not_do_is_one_error(tmp_path, monkeypatch, change, told):
    trainings = Trainings([])
    with pytest.raises(ConfigError, match=told):
        searched(tmp_path, lambda *arguments: {**trainings(*arguments), **change}, monkeypatch)
    searched(tmp_path, trainings, monkeypatch)  # what was wrong is fixed, and the trial runs again
    assert trainings.ran == [search.FLOAT32, search.FLOAT32, search.OWN]


def test_a_mode_that_lowers_nothing_is_one_error(tmp_path, monkeypatch):
    trainings = Trainings([])
    with pytest.raises(ConfigError, match="lowers nothing"):
        searched(tmp_path, lambda *arguments: {**trainings(*arguments), "nodes": []}, monkeypatch)


# the state


def test_the_state_of_something_else_is_refused(tmp_path):
    path = str(tmp_path / "a.tune")
    state.State(path, {"script": "a.py"}).trial("x", dict)
    assert state.State(path, {"script": "a.py"}).resumed == 1
    with pytest.raises(ConfigError, match="state of another tuning"):
        state.State(path, {"script": "b.py"})
    (tmp_path / "a.tune").write_text("[]")
    with pytest.raises(ConfigError, match="is no state of npu-shim tune"):
        state.State(path, {"script": "a.py"})


def test_losses_of_the_process_with_the_most_of_them_count(tmp_path):
    (tmp_path / "1.losses.tsv").write_text("loss:0\t1.0\nloss:0\t0.5\nloss sc")
    (tmp_path / "2.losses.tsv").write_text("loss:0\tnan\n")
    assert protocol.losses(str(tmp_path)) == {"loss:0": [1.0, 0.5]}


# where a trial runs


def test_what_a_trial_writes_is_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "MANY", 3)
    source, place = tmp_path / "source", tmp_path / "place"
    for name in ("train.py", "out/old", "data/a", "data/b", "data/c", ".git/config"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / "linked").symlink_to(source / "out")
    launch._link_all(str(source), str(place))
    (place / "out" / "new").write_text("of the trial")
    (place / "made").mkdir()
    assert sorted(path.name for path in (source / "out").iterdir()) == ["old"]
    assert (place / "out" / "old").read_text() == "out/old"
    assert [(place / name).is_symlink() for name in ("train.py", "data", ".git", "linked", "out")] == [
        True, True, True, True, False,
    ]  # fmt: skip


# the command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere.py"], "script 'nowhere.py' cannot be read: No such file or directory"),
        (["--criterion", "los", "train.py"], "did you mean 'loss'?"),
        (["--criterion", "metric>=1", "--metric", "(", "train.py"], "--metric '(' is not a regular expression"),
        (["--trials", "1", "train.py"], "--trials is '1', expected a whole number, 2 or more"),
        (["--seed", "x", "train.py"], "--seed is 'x'"),
        (["--out", "no/where.json", "train.py"], "--out: there is no folder"),
        (["--out", "train.py", "train.py"], "expected a file name that ends in .json"),
        (["--out", "there.json", "train.py"], "'there.json' is there already"),
        (["train.py", "--criterion", "loss"], "put it before SCRIPT"),
    ],
)
def test_wrong_words_are_one_error_before_any_trial(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "start", lambda *_: pytest.fail("a trial ran"))
    (tmp_path / "train.py").write_text("")
    (tmp_path / "there.json").write_text("{}")
    assert cli.main(["tune", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.json", "train.py"]
