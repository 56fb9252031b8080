"""The results that README begins with, from the committed files: python scripts/readme.py writes them into it.

A test compares README with what this makes, so no figure there is typed by hand.
"""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
BEGIN, END = "<!-- results: python scripts/readme.py -->\n", "<!-- end of results -->\n"
MODELS = {
    "resnet50 batch 128": "ResNet-50, batch 128",
    "bert batch 32": "BERT-large, batch 32",
    "lstm batch 64": "LSTM language model, batch 64",
}
CARDS = {"h100": "H100", "a100": "A100", "rtx4090": "RTX 4090"}
TIMED = (  # file of a measurement on a GPU, title, our form, the same by hand
    ("gpu_h200_resnet50", "ResNet-50, batch 128", "float16", "jax-float16"),
    ("gpu_h200_bert", "BERT-large, batch 32", "float16", "jax-float16"),
    ("gpu_h200_lstm", "LSTM language model, batch 64", "float16", "jax-float16"),
    ("gpu_h200_bert_16x512", "BERT-large, sequences of 512", "bfloat16", "jax-bfloat16-wide"),
    ("gpu_h200_bert_16x512", "BERT-large, sequences of 512", "bfloat16", "jax-bfloat16-cudnn"),
)
FORM, PEAK, MOVED = 1, 5, 8  # columns of gpu_compiled.md: the form, and what is "of float32"


def results():
    """README's block of results, as Markdown."""
    networks = "\n".join("| %s |" % " | ".join(row) for row in [*_networks(), *_unseen(), _accuracy()])
    return (
        "\n| | |\n|---|---|\n%s\n\n"
        "Training steps timed on an NVIDIA H200, as multiples of the step as written (float32, products in TF32), and "
        "by hand in JAX in the same dtype:\n\n%s\n\n"
        "Training steps in float16, compiled by XLA for cards that were not at hand: peak memory and bytes moved, as\n"
        "parts of float32's ([`gpu_compiled.md`](benchmarks/gpu_compiled.md); [`gpu_attention.md`]"
        "(benchmarks/gpu_attention.md) has sequences of 512):\n\n%s\n\n"
    ) % (networks, _timed(), _steps())


def _networks():
    """A row for each suite whose table is committed: what it is, and how many of its networks are whole."""
    paths = [*BENCHMARKS.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    for path in sorted(paths, key=lambda path: (path.stem == "libraries", path)):
        text, link = path.read_text(encoding="utf-8"), path.relative_to(ROOT)
        counted = re.search(r"^(\d+) scripts: (\d+) whole, .*own fault$", text, re.MULTILINE)
        if counted:
            what = (
                "[Public NPU networks](%s) that train unmodified, in their own mode, once what stopped them is mended"
            )
            yield what % link, "%s of %s" % counted.groups()[::-1]
        counted = re.search(r"^(\d+) scripts: .*; (\d+) in every way$", text, re.MULTILINE)
        if counted:
            what = "[Public TensorFlow 1 programs](%s), likewise: in float32, mixed, and on today's XLA"
            yield what % link, "%s of %s" % counted.groups()[::-1]
        counted = re.search(r"^(\d+) libraries: (\d+) of .*, (\d+) of \d+ whole in mixed, .*; (\d+) in", text, re.M)
        if counted:
            total, *whole = counted.groups()
            what = "[Libraries of TensorFlow 1's time](%s): in float32, mixed, and in every way"
            yield what % link, "%s, %s, %s of %s" % (*whole, total)


def _unseen():
    """A row for networks and one for repositories that nobody here had run before, with what was whole on which day."""
    text = (BENCHMARKS / "unseen.md").read_text(encoding="utf-8")
    days = re.findall(r"^\| ([\d-]+) \| (networks|repositories) \| (\d+) \| (\d+) \|", text, re.MULTILINE)
    for kind, title in (("networks", "Networks"), ("repositories", "Repositories")):
        rates = [
            "%s of %s (%s)" % (whole, of, day) for day, drawn, of, whole in sorted(days, reverse=True) if drawn == kind
        ]
        yield "[%s that nobody here had run before](benchmarks/unseen.md)" % title, ", ".join(rates)


def _accuracy():
    """The row of the quickstart: the accuracy in float32 and in mixed precision, through each of its entrances."""
    text = (BENCHMARKS / "digits.txt").read_text(encoding="utf-8")
    entrances = re.findall(r"^(sess\.run|Estimator) +(0\.\d+) +(0\.\d+)$", text, re.MULTILINE)
    accuracies = ["%s: float32 %s, mixed %s" % entrance for entrance in entrances]
    return "[Accuracy on digits](benchmarks/digits.txt)", "; ".join(accuracies)


def _timed():
    """A row for each measurement on a GPU: our form beside float32 and beside a form by hand."""
    lines = [
        "| | speed, float32 = 1 | memory | speed, JAX = 1 | memory | samples a second |",
        "|---|---|---|---|---|---|",
    ]
    for name, title, form, hand in TIMED:
        (row,) = json.loads((BENCHMARKS / (name + ".json")).read_text(encoding="utf-8"))["rows"]
        ours, full, other = (row["forms"][key] for key in (form, "tf32", hand))
        by_cudnn = ", JAX's attention by cuDNN" if hand.endswith("-cudnn") else ""
        cells = ["[%s](benchmarks/%s.md), %s%s" % (title, name, form, by_cudnn)]
        for of in (full, other):
            cells += ["%.2f" % (of["seconds"] / ours["seconds"]), "%.2f" % (ours["memory"] / of["memory"])]
        lines.append("| %s | %.0f |" % (" | ".join(cells), row["sizes"]["batch"] / ours["seconds"]))
    return "\n".join(lines)


def _sections(name):
    """Text of a benchmark's section for each card."""
    return dict(part.split("\n", 1) for part in (BENCHMARKS / name).read_text(encoding="utf-8").split("\n## ")[1:])


def _steps():
    """A row for each model, with a column for each card."""
    sections = _sections("gpu_compiled.md")
    lines = ["| | %s |" % " | ".join(CARDS.values()), "|---" * (len(CARDS) + 1) + "|"]
    for model, title in MODELS.items():
        cells = ("memory %s, bytes %s" % _of_float32(sections[card], model) for card in CARDS)
        lines.append("| %s | %s |" % (title, " | ".join(cells)))
    return "\n".join(lines)


def _of_float32(section, model):
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| %s |" % model)]
    (row,) = (row for row in rows if row[FORM] == "float16")
    return row[PEAK], row[MOVED]


def written(text):
    """README's text with the results in it."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + results() + rest[rest.index(END) :]


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(written(readme.read_text(encoding="utf-8")), encoding="utf-8")
