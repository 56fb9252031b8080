"""Text: classification, language models, tagging."""

from data import cnews, imdb_vectors
from recipe import Recipe

NLP = "TensorFlow/built-in/nlp/"

RECIPES = (
    Recipe(
        NLP + "word2vec_ID0134_for_TensorFlow",
        "word2vec_chinese.py --dataset_dir=cnews 100000",
        lambda net, random: cnews(net / "cnews", random, lines=200, more_words=50000),
        steps=20,
        loss=(50, 600),
        checkpoint="ckpt_npu/model.ckpt.index",
    ),
    Recipe(
        NLP + "Textcnn_ID0123_For_Tensorflow",
        "run_cnn.py --num_epochs=2 --data_path=cnews --save_dir=ckpt",
        lambda net, random: cnews(net / "cnews", random, lines=1024),
        checkpoint="ckpt/best_validation.index",
        limit=600,
    ),
    Recipe(
        NLP + "LSTM_ID0111_for_TensorFlow",
        "train.py --data_path=. --steps=20 --batch_size=8 --precision_mode=allow_mix_precision",
        lambda net, random: imdb_vectors(net, random),
    ),
    Recipe(
        NLP + "CNN-MC_ID0287_for_TensorFlow",
        "main-npu.py",
        mode="allow_mix_precision",
        steps=20,
    ),
)
