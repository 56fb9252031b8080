"""The results that README begins with, from the committed files: python scripts/readme.py writes them into it.

A test compares README with what this makes, so no figure there is typed by hand.
"""

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
ATTENTION = ("bert batch 16x512", "bfloat16", "jax-bfloat16-wide")  # of gpu_attention.md
FORM, PEAK, MOVED = 1, 5, 8  # columns of gpu_compiled.md: the form, and what is "of float32"


def results():
    """README's block of results, as Markdown."""
    networks = "\n".join("| %s |" % " | ".join(row) for row in [*_networks(), *_accuracy()])
    return (
        "\n| | |\n|---|---|\n%s\n\n"
        "Training steps in float16, as XLA compiles them for a card ([`gpu_compiled.md`](benchmarks/gpu_compiled.md)): "
        "peak memory and bytes moved, as parts\nof float32's, and of a hand-written JAX program's in float16. The last "
        "row is in\nbfloat16: our attention is [kernels](benchmarks/gpu_attention.md), JAX's is as XLA has it:\n\n"
        "%s\n\n"
    ) % (networks, _steps())


def _networks():
    """A row for each suite whose table is committed: what it is, and how many of its networks are whole."""
    for path in sorted([*BENCHMARKS.glob("*.md"), *(ROOT / "docs").glob("*.md")]):
        text, link = path.read_text(encoding="utf-8"), path.relative_to(ROOT)
        counted = re.search(r"^(\d+) scripts: (\d+) whole, .*own fault$", text, re.MULTILINE)
        if counted:
            what = "[Public NPU networks](%s) that train unmodified, in the precision mode that they ask for"
            yield what % link, "%s of %s" % counted.groups()[::-1]
        counted = re.search(r"^(\d+) scripts: .*; (\d+) in every way$", text, re.MULTILINE)
        if counted:
            what = "[Public TensorFlow 1 programs](%s) that train unmodified: in float32, mixed, and on today's XLA"
            yield what % link, "%s of %s" % counted.groups()[::-1]


def _accuracy():
    """A row for each entrance of the quickstart: its accuracy in float32 and in mixed precision."""
    text = (BENCHMARKS / "digits.txt").read_text(encoding="utf-8")
    for entrance, full, mixed in re.findall(r"^(sess\.run|Estimator) +(0\.\d+) +(0\.\d+)$", text, re.MULTILINE):
        what = "[Accuracy on digits](benchmarks/digits.txt) through %s"
        yield what % entrance, "float32 %s, mixed %s" % (full, mixed)


def _sections(name):
    """Text of a benchmark's section for each card."""
    return dict(part.split("\n", 1) for part in (BENCHMARKS / name).read_text(encoding="utf-8").split("\n## ")[1:])


def _steps():
    """A row for each model, beside float32 and beside JAX, and one for attention, with a column for each card."""
    sections = _sections("gpu_compiled.md")
    lines = ["| | %s |" % " | ".join(CARDS.values()), "|---" * (len(CARDS) + 1) + "|"]
    for model, title in MODELS.items():
        for beside, of in (("float32", _of_float32), ("JAX", _of_jax)):
            cells = ("memory %s, bytes %s" % of(sections[card], model) for card in CARDS)
            lines.append("| %s, beside %s | %s |" % (title, beside, " | ".join(cells)))
    sections = _sections("gpu_attention.md")
    cells = ("memory %s, bytes %s" % _of_jax(sections[card], *ATTENTION) for card in CARDS)
    lines.append("| BERT-large, sequences of 512, beside JAX | %s |" % " | ".join(cells))
    return "\n".join(lines)


def _of_float32(section, model):
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| %s |" % model)]
    (row,) = (row for row in rows if row[FORM] == "float16")
    return row[PEAK], row[MOVED]


def _of_jax(section, model, form="float16", other="jax-float16"):
    form = r"^- %s %s beside %s: .*peak memory ([\d.]+), bytes ([\d.]+)" % (model, form, other)
    return re.search(form, section, re.MULTILINE).groups()


def written(text):
    """README's text with the results in it."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + results() + rest[rest.index(END) :]


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(written(readme.read_text(encoding="utf-8")), encoding="utf-8")
