"""What users do next: clicks in sessions, click and purchase from long histories."""

import json

import numpy as np
from data import tfrecords, write
from recipe import Recipe

LONG, LINES, WIDTH = 300, 4, 4  # of MMoE's examples: steps of a history, lines; of its embedding
HISTORIES = ("127_14", "109_14", "110_14", "150_14")


def sessions(folder, random, count=4500, items=300):
    """Sessions of two to seven clicks: session, item and time a line."""
    for name, some in (("rsc15_train_full.txt", count), ("rsc15_test.txt", 20)):
        lines = ["SessionId\tItemId\tTime"]
        for session in range(some):
            clicked = random.integers(0, items, random.integers(2, 8))
            lines += ["%d\t%d\t%d" % (session, item, time) for time, item in enumerate(clicked)]
        write(folder / name, "\n".join(lines) + "\n")


def purchases(net, random, features=500, examples=10):
    """Users, items, four histories each and whether they clicked and bought, in records; the configuration."""
    ids = {"UID": [LINES], "UserAttr": [LINES, 8], "ItemID": [LINES], "ItemAttr": [LINES, 4], "Scene": [LINES]}
    values = {"ClickLabel": [LINES], "ConversionLabel": [LINES]}
    for name in HISTORIES:
        ids.update({name + "_SeqID": [LINES, LONG], name + "_SeqID_len": [LINES]})
        values[name + "_SeqVal"] = [LINES, LONG]
    for part in ("train", "test"):
        tfrecords(net / "records" / (part + "_0"), [
            {
                **{name: random.integers(1, features, shape) for name, shape in ids.items()},
                **{name: random.integers(0, 2, shape).astype(np.float32) for name, shape in values.items()},
            }
            for _ in range(examples)
        ])  # fmt: skip
    shapes = {"line_example": LINES, "int_shape": ids, "float_shape": values}
    write(net / "records" / "data_args.json", json.dumps(shapes) + "\n")
    own = (net / "config" / "mmoe_config.py").read_text(encoding="utf-8")
    records = {"train_path": str(net / "records"), "test_path": str(net / "records"), "train_size": examples * LINES}
    smaller = "batch_size, embed_size = %d, %d\ndata_para.update(%r, input_dim=%d)\ntransformer_params.update(%r)\n"
    transformer = {"d_model": 8 * WIDTH, "d_ff": 8 * WIDTH, "num_heads": 2, "num_blocks": 1}
    write(net / "config" / "small.py", own + "\n" + smaller % (2 * LINES, WIDTH, records, features, transformer))


RECIPES = (
    Recipe(
        "TensorFlow/built-in/nlp/GRU4Rec_ID0128_for_TensorFlow",
        "main.py --path_to_train={net}/clicks --path_to_test={net}/clicks --train=1 --epoch=1",
        lambda net, random: sessions(net / "clicks", random),
        cwd="gru4rec_BP",
        checkpoint="gru4rec_BP/checkpoint/gru-model-0.index",
        loss=(5, 12),
        limit=600,
    ),
    Recipe(
        "TensorFlow/built-in/recommendation/MMoE_Transformer",
        "train/main.py --config_name=small --npu_mode",
        purchases,
        path=["."],
        loss=(0.5, 20),
        limit=600,
    ),
)
