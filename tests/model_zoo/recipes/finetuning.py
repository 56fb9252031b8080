"""BERT and its kin, fine-tuned at a toy's size: pairs of sentences, names in sentences, news."""

import json

import numpy as np
from data import BERT_WORDS, folders, tiny_bert, write
from recipe import Recipe

NLP = "TensorFlow/built-in/nlp/"
FILES = "--vocab_file={net}/vocab.txt --bert_config_file={net}/tiny.json --output_dir={net}/out "
TRAIN = "--do_train=True --max_seq_length=32 --train_batch_size=4 --num_train_epochs=1 --data_dir={net}/text "


def sentence(random):
    return " ".join(random.choice(BERT_WORDS[:-1], 8))


def paraphrases(net, random, count=24):
    """Pairs of sentences, and whether the second says the same, in a table a part."""
    tiny_bert(net)
    for part in ("train", "dev"):
        rows = ["\t".join((str(n % 2), "1", "2", sentence(random), sentence(random))) for n in range(count)]
        write(net / "text" / (part + ".tsv"), "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + "\n".join(rows) + "\n")


def headlines(net, random, count=24):
    """News with their category, a JSON object a line, in three parts; an empty checkpoint but for the pooler's bias."""
    tiny_bert(net)
    one_weight(net / "bert_model.ckpt")
    for part in ("train", "dev", "test"):
        rows = [{"label": "10%d" % (n % 4), "sentence": sentence(random)} for n in range(count)]
        write(net / "text" / (part + ".json"), "".join(json.dumps(row) + "\n" for row in rows))


def one_weight(path):
    """A checkpoint to begin with: the pooler's bias, which is all that it has."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        bias = np.linspace(-1, 1, 32, dtype="float32")
        tf.get_variable("bert/pooler/dense/bias", initializer=bias, use_resource=False)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(path))


def names(net, random, count=24):
    """Sentences with a tag a word, a word a line, in three parts."""
    tiny_bert(net)
    one_weight(net / "bert_model.ckpt")
    folders(net, "out", "middle")
    for part in ("train", "dev", "test"):
        rows = []
        for _ in range(count):
            rows += ["%s %s" % (word, random.choice(("O", "B-PER", "I-LOC"))) for word in sentence(random).split()]
            rows += [". O", ""]
        write(net / "text" / (part + ".txt"), "\n".join(rows) + "\n")


RECIPES = (
    Recipe(
        NLP + "Bert_Google_MRPC_ID1466_for_TensorFlow",
        "run_classifier.py --task_name=mrpc --do_eval=True " + TRAIN + FILES,
        paraphrases,
        env={"DEVICE_INDEX": 0},
        loss=(0.3, 2),
        checkpoint="out/model.ckpt-*.index",
        limit=600,
    ),
    Recipe(
        NLP + "Bert-NER_ID0797_for_TensorFlow",  # a TPUEstimator
        # no --do_eval: its confusion matrix has no room for the last label, which only a trained network avoids
        "BERT_NER.py --task_name=NER --crf=False --middle_output={net}/middle --do_lower_case=False "
        "--init_checkpoint={net}/bert_model.ckpt " + TRAIN + FILES,
        names,
        checkpoint="out/model.ckpt-*.index",
        limit=600,
    ),
    Recipe(
        NLP + "CLUE_BERT_ID1646_for_TensorFlow",  # its step counter counts variables: one assign beside each weight's
        "run_classifier.py --task_name=tnews --do_eval=True --init_checkpoint={net}/bert_model.ckpt "
        "--num_train_epochs=8 --npu_bert_loss_scale=1024 " + TRAIN.replace("--num_train_epochs=1 ", "") + FILES,
        headlines,
        loss=(2, 3.5),
        checkpoint="out/model.ckpt-*.index",
        limit=600,
    ),
    Recipe(
        NLP + "BiLSTM_CRF_ID0125_for_TensorFlow",  # options of one dash
        "run.py -data_dir={net}/text -output_dir={net}/out -bert_config_file={net}/tiny.json "
        "-vocab_file={net}/vocab.txt -init_checkpoint={net}/bert_model.ckpt -max_seq_length=24 -batch_size=4 "
        "-num_train_epochs=1",
        names,
        checkpoint="out/model.ckpt-*.index",
        limit=600,
    ),
)
