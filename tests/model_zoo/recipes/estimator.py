"""Scripts that train by an Estimator: BERT and its kin, pre-trained at a toy's size."""

import json

import numpy as np
from data import BERT_WORDS, tfrecords, tiny_bert, write
from recipe import Recipe

NLP = "TensorFlow/built-in/nlp/"
LENGTH, PREDICTIONS = 32, 5
SIZES = "--max_seq_length=%d --max_predictions_per_seq=%d " % (LENGTH, PREDICTIONS)
STEPS = "--do_train=True --num_train_steps=8 --num_warmup_steps=2 --train_batch_size=4 --save_checkpoints_steps=4 "
FILES = "--bert_config_file={net}/tiny.json --output_dir={net}/out "
DIRECTORIES = "--input_files_dir={net}/records --eval_files_dir={net}/records --npu_bert_job_start_file= "


def masked_sentences(net, random, examples=64):
    """Pairs of sentences with masked words as TFRecords."""
    tiny_bert(net)
    tfrecords(net / "records" / "part-0.tfrecord", [
        {
            "input_ids": random.integers(0, len(BERT_WORDS), LENGTH),
            "input_mask": np.ones(LENGTH, int),
            "segment_ids": (np.arange(LENGTH) > LENGTH // 2).astype(int),
            "masked_lm_positions": random.choice(LENGTH, PREDICTIONS, replace=False),
            "masked_lm_ids": random.integers(0, len(BERT_WORDS), PREDICTIONS),
            "masked_lm_weights": np.ones(PREDICTIONS, np.float32),
            "next_sentence_labels": np.array([n % 2]),
        }
        for n in range(examples)
    ])  # fmt: skip


def questions(net, random, count=32):
    """Questions on paragraphs whose answers are in them, as SQuAD 1.1 writes them, and the vocabulary."""
    tiny_bert(net)
    paragraphs = []
    for number in range(count):
        context = list(random.choice(BERT_WORDS, 30))
        answer = {"text": context[10], "answer_start": len(" ".join(context[:10])) + 1}
        asked = {"id": str(number), "question": " ".join(random.choice(BERT_WORDS, 6)) + "?", "answers": [answer]}
        paragraphs.append({"context": " ".join(context), "qas": [asked]})
    write(net / "train.json", json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))


def pretraining(network, flags, **others):
    """A recipe for one of the scripts; the first loss is near log(100) + log(2)."""
    others = {"mode": "allow_fp32_to_fp16", "loss": (4, 7), "checkpoint": "out/model.ckpt-8.index", **others}
    script = others.pop("script", "run_pretraining.py")
    return Recipe(NLP + network, "%s %s" % (script, SIZES + STEPS + FILES + flags), masked_sentences, **others)


RECIPES = (
    pretraining(
        "BertNV_Series_for_TensorFlow",
        DIRECTORIES + "--iterations_per_loop=2 --npu_bert_loss_scale=0",
        script="src/run_pretraining.py",
        limit=600,
    ),
    pretraining(
        "Bert-base_ID0060_for_TensorFlow",
        DIRECTORIES + "--iterations_per_loop=2 --manual_fp16=True --use_fp16_cls=True --distributed=False "
        "--optimizer_type=adam --npu_bert_loss_scale=0 --npu_bert_clip_by_global_norm=False",
        script="src/pretrain/run_pretraining.py",
        path=["src"],
        lowers=False,
        limit=600,
    ),
    Recipe(
        NLP + "BertGoogle_Series_for_TensorFlow",  # its run_pretraining.py gives BertModel an argument that it has not
        "run_squad.py --do_train=True --train_file={net}/train.json --vocab_file={net}/vocab.txt --max_seq_length=64 "
        "--max_query_length=16 --doc_stride=32 --train_batch_size=4 --num_train_epochs=1 --num_train_steps=8 "
        "--save_checkpoints_steps=4 --iterations_per_loop=2 " + FILES,
        questions,
        loss=(2, 6),
        checkpoint="out/model.ckpt-*.index",
        limit=600,
    ),
    pretraining(
        "Albert_ZH_for_TensorFlow",
        "--input_file={net}/records/* --iterations_per_loop=2",
        limit=600,
    ),
    pretraining(
        "Roberta_ID2349_for_TensorFlow",
        "--input_file={net}/records/* --iterations_per_loop=2 --distributed=False",
        mode="allow_mix_precision",
        limit=600,
    ),
    Recipe(
        NLP + "Bertsquad_ID0495_for_TensorFlow",
        "run_squad.py --do_train=True --train_file={net}/train.json --vocab_file={net}/vocab.txt --max_seq_length=64 "
        "--do_predict=True --predict_file={net}/train.json --max_query_length=16 --doc_stride=32 --train_batch_size=4 "
        "--num_train_epochs=1 --save_checkpoints_steps=4 --iterations_per_loop=2 " + FILES,
        questions,
        own_fault="run_squad.py:48 imports torch_npu, the adapter of another framework, and sets an option of it",
        limit=600,
    ),
    pretraining(
        "BertBase_Google_ID0631_for_TensorFlow",  # its step counter counts variables: one assign beside each weight's
        "--input_file={net}/records/* --do_eval=True --max_eval_steps=2 --npu_bert_loss_scale=1024",
        mode="allow_mix_precision",
        checkpoint="out/model.ckpt-*.index",
        limit=600,
    ),
    pretraining(
        "FASPell_pretrain_ID1858_for_TensorFlow",
        "--input_file={net}/records/* --iterations_per_loop=2 --do_eval=True --max_eval_steps=2",
        script="run_pretraining.py",
        cwd="bert_modified",
        mode="allow_fp32_to_fp16",
        limit=600,
    ),
)
