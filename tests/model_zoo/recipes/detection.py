"""Detection of objects in images."""

import numpy as np
from data import images, write
from recipe import Recipe


def boxes(net, random, count=16):
    """Images and two lists of them, a line an image: its path, then left,top,right,bottom,class of each object."""
    images(net / "photos", random, count, (240, 320))
    lines = []
    for number in range(count):
        left, top = random.integers(0, 100, 2)
        right, bottom = left + random.integers(60, 200), top + random.integers(60, 130)
        objects = "%d,%d,%d,%d,%d %d,%d,%d,%d,%d" % (left, top, right, bottom, number % 20, 5, 5, 80, 90, 3)
        lines.append("%s %s" % (net / "photos" / ("%d.jpg" % number), objects))
    for part in ("train", "val"):
        write(net / ("2007_%s.txt" % part), "\n".join(lines) + "\n")


def boxes_and_weights(net, random):
    """The same four, and a file of Keras's weights to begin with, which has none of any layer."""
    import h5py

    boxes(net, random, count=4)
    with h5py.File(str(net / "ckpt.h5"), "w") as f:
        f.attrs["layer_names"] = []


def text_lines(net, random, count=6, size=(208, 304)):
    """Photos with boxes around their text, 16 pixels wide, and a checkpoint with one weight to begin with."""
    import tensorflow.compat.v1 as tf

    images(net / "lines" / "image", random, count, size)
    for number in range(count):
        boxes = ["%d,48,%d,80" % (left, left + 15) for left in range(16, 240, 16)]
        write(net / "lines" / "label" / ("%d.txt" % number), "\n".join(boxes) + "\n")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("vgg_16/conv1/conv1_1/biases", initializer=np.zeros(64, np.float32), use_resource=False)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(net / "vgg_16.ckpt"))


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/YOLOV5_ID0378_for_TensorFlow",
        "train.py --epochs=1 --steps=2 --freeze_flag=0",
        boxes,
        steps=2,
        limit=1200,
    ),
    Recipe(
        "TensorFlow/contrib/cv/YAD2K_ID2086_for_TensorFlow",
        "train.py --dataset={net} --result={net}/out --epochs=1 --batch_size=2",
        boxes_and_weights,
        limit=900,
    ),
    Recipe(
        "TensorFlow/built-in/cv/detection/CTPN_ID0054_for_TensorFlow",
        "main/train_npu.py --pretrained_model_path={net}/vgg_16.ckpt --dataset_dir={net}/lines/ --num_readers=1 "
        "--max_steps=4 --save_checkpoint_steps=2 --precision_mode=allow_mix_precision --inputs_height=208 "
        "--inputs_width=304",
        text_lines,
        checkpoint="checkpoints_mlt/ctpn_4.ckpt.index",
        limit=600,
    ),
)
