"""BERT and its kin, at a toy's size: pre-trained, fine-tuned."""

import json

from data import BERT_WORDS, folders, tfrecords, tiny_bert, write
from recipe import Recipe
from recipes.estimator import masked_sentences
from recipes.finetuning import names, sentence

FILES = "--bert_config_file=tiny.json --output_dir=out "
SIZES = "--max_seq_length=32 --max_predictions_per_seq=5 "
STEPS = "--do_train=True --num_train_steps=4 --num_warmup_steps=1 --train_batch_size=4 --save_checkpoints_steps=4 "
PRETRAINING = "run_pretraining.py --input_file=records/part-0.tfrecord " + FILES + SIZES + STEPS


def albert_sentences(net, random, examples=32):
    """Masked sentences with the names that ALBERT reads them by, and its configuration."""
    import numpy as np

    tiny_bert(net)
    tfrecords(net / "records" / "part-0.tfrecord", [
        {
            "input_ids": random.integers(0, len(BERT_WORDS), 32),
            "input_mask": np.ones(32, int),
            "segment_ids": (np.arange(32) > 16).astype(int),
            "token_boundary": np.ones(32, int),
            "masked_lm_positions": random.choice(32, 5, replace=False),
            "masked_lm_ids": random.integers(0, len(BERT_WORDS), 5),
            "masked_lm_weights": np.ones(5, np.float32),
            "next_sentence_labels": np.array([n % 2]),
        }
        for n in range(examples)
    ])  # fmt: skip
    size = json.loads((net / "tiny.json").read_text())
    size.update(num_hidden_groups=1, net_structure_type=0, gap_size=0, num_memory_blocks=0, inner_group_num=1)
    write(net / "tiny.json", json.dumps({**size, "down_scale_factor": 1}))


def tagged_words(net, random, folder, tags, count=16):
    """Sentences with a tag a word in three parts, under the names of BERT's Chinese taggers."""
    names(net, random)
    for part in ("train", "dev", "test"):
        rows = []
        for _ in range(count):
            rows += ["%s %s" % (word, random.choice(tags)) for word in sentence(random).split()] + [". O", ""]
        write(net / folder / (part + ".txt"), "\n".join(rows) + "\n")


ELECTRA = {
    "debug": True, "num_train_steps": 6, "save_checkpoints_steps": 6, "max_seq_length": 32, "vocab_size": 100,
    "pretrain_tfrecords": "{net}/records/*", "vocab_file": "{net}/vocab.txt", "embedding_size": 16,
    "model_hparam_overrides": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    },
}  # fmt: skip

RECIPES = (
    Recipe(
        "google-research/bert",
        PRETRAINING + "--do_eval=True --max_eval_steps=2 --eval_batch_size=4",
        masked_sentences,
        commit="eedf5716ce",
        loss=(4, 7),
        checkpoint="out/model.ckpt-4.index",
        again="run_pretraining.py --input_file=records/part-0.tfrecord --do_eval=True --max_eval_steps=2 "
        "--eval_batch_size=4 " + FILES + SIZES,
        limit=600,
    ),
    Recipe(
        "google-research/albert",
        "-m albert.run_pretraining --input_file=albert/records/part-0.tfrecord --albert_config_file=albert/tiny.json "
        "--output_dir=albert/out " + SIZES + STEPS,
        lambda net, random: albert_sentences(net / "albert", random),
        commit="b772393d3d",
        others={"albert": "google-research/albert"},  # a package of its own name: cloned into the folder it is run from
        checkpoint="albert/out/model.ckpt-4.index",
        loss=(4, 7),
        limit=600,
    ),
    Recipe(
        "brightmart/albert_zh",
        "run_pretraining.py --input_file=records/part-0.tfrecord " + FILES + SIZES + STEPS,
        albert_sentences,
        commit="52149e82fa",
        loss=(4, 7),
        checkpoint="out/model.ckpt-4.index",
        limit=600,
    ),
    Recipe(
        "ProHiryu/bert-chinese-ner",
        "BERT_NER.py --task_name=NER --do_train=True --do_eval=False --vocab_file=vocab.txt --data_dir=data "
        "--init_checkpoint=bert_model.ckpt --max_seq_length=32 --train_batch_size=4 --num_train_epochs=1 " + FILES,
        lambda net, random: (tagged_words(net, random, "data", ("O", "B-PER", "I-LOC")), folders(net, "output")),
        commit="96efd234c0",
        others={"bert": "google-research/bert"},
        checkpoint="out/model.ckpt-*.index",
        limit=600,
    ),
    Recipe(
        "macanv/BERT-BiLSTM-CRF-NER",
        "run.py -data_dir data -output_dir out -init_checkpoint bert_model.ckpt -vocab_file vocab.txt "
        "-bert_config_file tiny.json -max_seq_length 16 -batch_size 4 -num_train_epochs 1 -save_checkpoints_steps 4 "
        "-lstm_size 8",
        lambda net, random: tagged_words(net, random, "data", ("O", "B-PER", "I-LOC")),
        commit="ccf3f093f0",
        apart=0.3,  # dropout
        checkpoint="out/model.ckpt-*.index",
        limit=600,
    ),
    Recipe(
        "google-research/electra",
        "run_pretraining.py --data-dir={net}/out --model-name=tiny --hparams='%s'" % json.dumps(ELECTRA),
        masked_sentences,
        commit="8a46635f32",
        apart=0.3,  # what the generator draws in each step
        checkpoint="out/models/tiny/model.ckpt-6.index",
        limit=600,
    ),
)
