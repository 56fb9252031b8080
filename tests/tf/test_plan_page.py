"""The report as a page: what it says of a graph, and that a browser shows it."""

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf
from sessions import command as main

from npu_shim.configs import extras
from npu_shim.options import precision
from npu_shim.options.reports import kept_pages
from npu_shim.options.rewriting import rewrite_graph
from npu_shim.options.table import of_keywords
from npu_shim.rewriter.page import model, sizes

pytest.importorskip("plotly", reason="the report's treemap needs plotly")
MIX = {"precision_mode": "allow_mix_precision"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A graph file with an open batch: x -> MatMul -> Relu -> Exp -> Sum, and an initializer that nothing needs."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], "x")
        w = tf.get_variable("dense/w", [4, 8], use_resource=True)
        with tf.name_scope("dense"):
            y = tf.nn.relu(tf.matmul(x, w, name="product"), name="relu")
        tf.reduce_sum(tf.exp(y, name="growth"), name="loss")
    path = tmp_path_factory.mktemp("graph") / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def data_of(path):
    """The pages in a report."""
    packed = re.search('<script id="data" .*?>(.*?)</script>', path.read_text()).group(1)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def rows(page):
    """Node name -> its row of the columns."""
    nodes = page["nodes"]
    return {name: {key: nodes[key][k] for key in nodes} for k, name in enumerate(nodes["name"])}


def decisions(page):
    """Slot -> (dtype before, dtype after, reason, the slot that decided)."""
    words, slots = page["words"], page["slots"]
    names = ["%s.%s" % (page["nodes"]["name"][n], words[s]) for n, s in zip(slots["node"], slots["name"])]
    columns = zip(names, slots["was"], slots["becomes"], slots["reason"], slots["because"])
    return {
        name: (words[was], words[becomes], words[reason], names[because] if because >= 0 else None)
        for name, was, becomes, reason, because in columns
    }


def test_a_page_says_what_the_plan_says(graph, tmp_path, capsys):
    out = tmp_path / "plan.html"
    arguments = ["plan", graph, "--fetches", "loss", "--precision-mode", "allow_mix_precision", "--device", "GPU"]
    assert main(capsys, *arguments, "--html", out, "--json", tmp_path / "plan.json")[0] == 0
    (page,) = data_of(out)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert page["summary"]["lowered"] == plan["summary"]["lowered"] == 2
    said = decisions(page)
    for d in plan["decisions"]:
        name = "%s.%s" % (d["node"], d["attr"])
        if "Initializer" in name or name == "dense/w/Assign.dtype":
            assert name not in said  # the fetch does not need it
        elif name in said:
            assert said[name] == (d["was"], d["becomes"], d["reason"], d["because"])
    assert said["dense/relu.T"][1:] == ("float16", "follows its low-precision producer", "dense/product.T")
    assert said["growth.T"][1:3] == ("float32", "black-listed")


def test_a_warning_has_the_line_that_fixes_it(tmp_path, capsys):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], "x")
        tf.add(tf.matmul(x, x, name="product"), tf.constant(-1e9), name="masked")
    path, out, exception_file = tmp_path / "graph.pb", tmp_path / "plan.html", tmp_path / "customize.ini"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    arguments = ["plan", path, "--fetches", "masked", "--precision-mode", "allow_mix_precision", "--html", out]
    assert main(capsys, *arguments)[0] == 0
    (warning,) = data_of(out)[0]["warnings"]
    assert warning["node"] == "masked"
    assert warning["line"] == "masked::InputDtype:float32,float32,OutputDtype:float32"
    exception_file.write_text(warning["line"] + "\n")
    assert main(capsys, *arguments, "--customize-dtypes", exception_file)[0] == 0
    assert data_of(out)[0]["warnings"] == []


def test_sizes_are_those_of_one_example(graph):
    graph_def = tf.GraphDef.FromString(graph.read_bytes())
    chosen = precision.resolve(of_keywords(MIX))
    measured = sizes.of(graph_def, chosen.table.entries)
    assert measured["dense/product"] == sizes.Size(2 * 1 * 4 * 8, (8,))
    assert measured["dense/relu"] == sizes.Size(8, (8,))
    assert measured["loss"] == sizes.Size(8, (1,))  # a sum's work is its input's
    assert measured["x"].operations == 0
    done = rewrite_graph(graph_def, [], ["loss"], chosen, "GPU")
    page = rows(model.of(done.plan, measured, "graph", 0.0))
    assert (page["dense/product"]["before"], page["dense/product"]["after"]) == (32, 16)
    assert (page["dense/product"]["low"], page["growth"]["low"]) == (1, 0)


def _products():
    x = tf.placeholder(tf.float32, [2, 8, 8, 3])
    f = tf.placeholder(tf.float32, [3, 3, 3, 5])
    y = tf.nn.conv2d(x, f, 1, "SAME", name="forward")
    dx, df = tf.gradients(y, [x, f])
    depthwise = tf.nn.depthwise_conv2d(x, tf.placeholder(tf.float32, [3, 3, 3, 1]), [1] * 4, "SAME", name="depthwise")
    batch = tf.matmul(tf.placeholder(tf.float32, [4, 6, 2]), tf.placeholder(tf.float32, [4, 6, 7]), True, name="batch")
    return {
        y: 2 * (2 * 8 * 8 * 5) * 27, dx: 2 * (2 * 8 * 8 * 5) * 27, df: 2 * (2 * 8 * 8 * 5) * 27,
        depthwise: 2 * (2 * 8 * 8 * 3) * 9, batch: 2 * (4 * 2 * 7) * 6,
    }  # fmt: skip


def test_operations_of_products_are_those_of_a_hand_count():
    with tf.Graph().as_default() as graph:
        wanted = {tensor.op.name: count for tensor, count in _products().items()}
    measured = sizes.of(graph.as_graph_def(), precision.resolve(of_keywords(MIX)).table.entries)
    assert {name: measured[name].operations for name in wanted} == wanted


def test_a_node_colocated_with_one_that_was_removed_has_its_size(graph):
    """Grappler removes nodes in loops that others name: such graphs had no sizes at all."""
    graph_def = tf.GraphDef.FromString(graph.read_bytes())
    product = next(node for node in graph_def.node if node.name == "dense/product")
    product.attr["_class"].list.s.append(b"loc:@gone")
    entries = precision.resolve(of_keywords(MIX)).table.entries
    assert sizes.of(graph_def, entries)["dense/product"].operations == 2 * 4 * 8


def test_a_graph_that_contradicts_a_batch_of_one_keeps_its_open_sizes():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], "x")
        tf.add_n([x, tf.zeros([3, 4])], name="sum")
    assert sizes.of(graph.as_graph_def(), precision.resolve(of_keywords(MIX)).table.entries)["sum"].elements == (12,)


def test_the_chain_of_reasons_of_a_node(graph, capsys):
    arguments = ["plan", graph, "--fetches", "loss", "--precision-mode", "allow_mix_precision", "--device", "GPU"]
    status, out, _ = main(capsys, *arguments, "--explain", "dense/relu")
    assert status == 0
    assert out.splitlines() == [
        "dense/relu (Relu)",
        "  dense/relu.T float16, was float32: follows its low-precision producer",
        "    because of dense/product (MatMul) dense/product.T float16, was float32: white-listed",
        "  cast of dense/relu to float32 for growth",
    ]
    status, _, err = main(capsys, *arguments, "--explain", "dense/rel")
    assert status == 2
    assert "no node 'dense/rel' in the graph (did you mean 'dense/relu'?)" in err


def test_the_difference_of_two_modes(graph, tmp_path, capsys):
    out = tmp_path / "both.html"
    arguments = ["plan", graph, "--fetches", "loss", "--device", "GPU", "--diff"]
    status, text, _ = main(capsys, *arguments, "allow_mix_precision", "allow_mix_precision_bf16", "--html", out)
    assert status == 0
    assert text.startswith("2 types differ between allow_mix_precision and allow_mix_precision_bf16\n")
    difference = data_of(out)[0]["differences"]
    assert [row[0] for row in difference["nodes"]] == ["dense/product", "dense/relu"]
    assert difference["nodes"][0][2:] == ["float16: white-listed", "bfloat16: white-listed"]
    mixlist = tmp_path / "ops_info.json"
    mixlist.write_text(json.dumps({"black-list": {"to-add": ["Relu"]}}))
    arguments[-1:] = ["--precision-mode", "allow_mix_precision", "--diff"]
    assert main(capsys, *arguments, "allow_mix_precision", mixlist)[1].count("Relu, 1:") == 1
    status, _, err = main(capsys, *arguments, "allow_mix_precision", "alow_mix_precision")
    assert status == 2
    assert "--diff: 'alow_mix_precision' is no precision mode, profile or modify_mixlist file" in err
    assert "allow_mix_precision" in err.partition("file")[2]


@pytest.mark.parametrize(
    ("name", "said"), [("plan.htm", "ends in .html"), ("nowhere/plan.html", "no folder"), ("folder.html", "be written")]
)
def test_a_file_that_cannot_be_written_is_told_before_anything_is_done(graph, tmp_path, capsys, name, said):
    (tmp_path / "folder.html").mkdir()
    status, _, err = main(capsys, "plan", graph, "--fetches", "loss", "--html", tmp_path / name)
    assert status == 2
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]


@pytest.mark.parametrize(("words", "said"), [
    (["--html", "o.html", "--json", "o.json", "--write", "o.pb", "--explain", "dense/rel"], "no node 'dense/rel' in"),
    (["--html", "o.html", "--json", "nowhere/o.json"], "--json: there is no folder"),
    (["--diff", "allow_mix_precision", "force_fp16", "--write", "o.pb"], "--diff and --write: each tells"),
    (["--engine", "--html", "o.html"], "--engine and --html: each tells something else"),
])  # fmt: skip
def test_a_mistake_ends_the_command_before_any_of_its_files_is_written(
    graph, tmp_path, capsys, monkeypatch, words, said
):
    monkeypatch.chdir(tmp_path)
    status, out, err = main(capsys, "plan", graph, "--fetches", "loss", "--precision-mode", "force_fp16", *words)
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("words", "said"), [
    (["--report", "o.html", "nothing.py"], "script 'nothing.py' cannot be read: No such file or directory"),
    (["--calibrate", "3", "nothing.py"], "script 'nothing.py' cannot be read: No such file or directory"),
    ([__file__.rpartition("/")[0]], "script '%s' cannot be read: Is a directory" % __file__.rpartition("/")[0]),
    ([sys.executable], "script '%s' is not Python source text: give its .py file, or -m MODULE" % sys.executable),
    (["--reprot", "o.html", "script.py"], "npu-shim run has no option '--reprot' (did you mean '--report'?)"),
])  # fmt: skip
def test_a_run_that_cannot_begin_is_one_line(tmp_path, capsys, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    status, out, err = main(capsys, "run", *words)
    assert (status, out, err) == (2, "", "npu_shim: %s\n" % said)
    assert not list(tmp_path.iterdir())


def test_without_plotly_there_is_one_clear_error(graph, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    status, _, err = main(capsys, "plan", graph, "--fetches", "loss", "--html", tmp_path / "plan.html")
    assert status == 2
    assert "needs the package plotly" in err
    assert extras.pip_install("report") in err
    assert not list(tmp_path.iterdir())


SCRIPT = """
import numpy as np, os, sys
import tensorflow as tf
from npu_bridge.npu_init import *
x = tf.placeholder(tf.float32, [None, 4], "x")
w = tf.get_variable("w", [4, 4])
loss = tf.reduce_mean(tf.square(tf.matmul(x, w)), name="loss")
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
by_hand = w.assign(w - 0.1 * tf.gradients(loss, w)[0])  # as BERT's optimizer updates
config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes("allow_mix_precision")
os.chdir("/")
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    for rows in (2, 3):
        session.run([loss, train], {x: np.ones([rows, 4])})
        session.run(loss, {x: np.ones([rows, 4])})
        session.run(by_hand.op, {x: np.ones([rows, 4])})
sys.exit(3)
"""


def test_a_run_reports_each_graph_once_whatever_way_it_ends(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "npu_shim", "run", "--report", "out.html", "script.py"], cwd=str(tmp_path),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ}, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stdout
    data = data_of(tmp_path / "out.html")
    assert [page["title"].partition(":")[0] for page in data] == ["training", "evaluation", "training"], done.stdout
    assert all(page["summary"]["lowered"] for page in data)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "script.py"]


def test_two_pages_of_one_title_are_told_apart(tmp_path):
    for number, mode in enumerate(["a", "b", "a"]):
        with gzip.open(tmp_path / ("%d%s" % (number, kept_pages.SUFFIX)), "wt") as f:
            json.dump({"title": "training: loss", "mode": mode, "nodes": {}, "slots": {}}, f)
    assert [page["title"] for page in kept_pages.collected(str(tmp_path))] == ["training: loss", "training: loss (2)"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Headless Chromium."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="the browser test needs selenium")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("the browser test needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = tmp_path_factory.mktemp("profile")
    quiet = "--disable-background-networking --disable-component-update --disable-sync --no-first-run"
    for word in ("--headless --no-sandbox --disable-gpu %s --user-data-dir=%s" % (quiet, profile)).split():
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    chrome.set_script_timeout(60)
    yield chrome
    chrome.quit()


READY = """
const done = arguments[0];
const over = () => document.body.dataset.ready || !document.getElementById("failure").hidden;
const wait = () => over() ? done() : setTimeout(wait, 20);
wait();
"""


def test_the_table_begins_with_what_costs_most_in_float32_and_says_why(graph, tmp_path, capsys, browser):
    out = tmp_path / "plan.html"
    arguments = ["plan", graph, "--fetches", "loss", "--precision-mode", "allow_mix_precision", "--device", "GPU"]
    assert main(capsys, *arguments, "--html", out)[0] == 0
    browser.set_window_size(1600, 1000)
    browser.get("file://%s" % out)
    browser.execute_async_script(READY)
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#found tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    halves = [row[0] for row in cells[1:] if len(row) == 1]
    assert [half.split(" ", 1)[1] for half in halves] == ["in float32", "in low precision"]
    low_from = cells.index([halves[1]])
    high, low = cells[2:low_from], cells[low_from + 1 :]
    page = rows(data_of(out)[0])
    assert {row[0] for row in high} == {name for name in page if not page[name]["low"]}
    for half in (high, low):
        costs = [(page[row[0]]["operations"], page[row[0]]["after"]) for row in half]
        assert costs == sorted(costs, reverse=True)
    assert high[0][0] in ("growth", "loss")
    assert high[0][5] == "black-listed"
    assert ["dense/relu", "follows its low-precision producer", "dense/product"] in [[r[0], *r[5:]] for r in low]
    assert browser.find_element("css selector", "h1").text == "graph.pb"  # no path
    assert browser.execute_script("return document.getElementById('found').clientWidth") > 1450


def test_a_browser_folds_searches_and_shows_reasons(graph, tmp_path, capsys, browser):
    out = tmp_path / "plan.html"
    arguments = ["plan", graph, "--fetches", "loss", "--precision-mode", "allow_mix_precision", "--device", "GPU"]
    assert main(capsys, *arguments, "--html", out)[0] == 0
    browser.get("file://%s" % out)
    browser.execute_async_script(READY)
    texts = lambda css: [element.text for element in browser.find_elements("css selector", css)]  # noqa: E731
    assert texts("#failure") == [""]
    assert "2 of " in " ".join(texts(".card"))
    assert "dense" in " ".join(texts("#treemap .slicetext"))
    browser.find_element("css selector", "#search").send_keys("relu float16")
    browser.execute_async_script("setTimeout(arguments[0], 400)")
    (row,) = browser.find_elements("css selector", "#found tr.link")
    row.click()
    assert "follows its low-precision producer" in texts("#node")[0]
    assert "dense/product.T (MatMul) float16: white-listed" in texts("#node")[0]
    browser.execute_script("draw('dense')")
    assert texts("#treemap .pathbar")[0].startswith("graph.pb")
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
