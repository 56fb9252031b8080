"""Few-shot learning: gradients through gradient steps."""

import numpy as np
from data import images
from recipe import Recipe


def mini_imagenet(folder, random, classes=5, count=16):
    """84 by 84 images, a folder a class."""
    for part in ("train", "val"):
        for number in range(classes):
            images(folder / part / ("n%08d" % number), random, count, (84, 84))


def stored_imagenet(folder, random, kinds=8, samples=30):
    """84 by 84 images of `kinds` kinds in three parts, and a vector for the name of each kind."""
    folder.mkdir(parents=True)
    for part in ("train", "val", "test"):
        targets = np.repeat(np.arange(kinds), samples)
        features = random.integers(0, 256, (kinds * samples, 84, 84, 3)).astype(np.uint8)
        np.savez(str(folder / ("few-shot-%s.npz" % part)), features=features, targets=targets)
        np.savez(str(folder / ("few-shot-wordemb-%s.npz" % part)), features=random.normal(size=(kinds, 300)))


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/MAML_ID0755_for_TensorFlow",
        "main.py --datasource=miniimagenet --logdir={net}/logs --meta_batch_size=1 --num_updates=1 --num_filters=4 "
        "--metatrain_iterations=1500",
        lambda net, random: mini_imagenet(net / "data" / "miniImagenet", random),
        steps=6,
        limit=600,
    ),
    Recipe(
        "TensorFlow/built-in/cv/image_classification/AM3_ID1260_for_TensorFlow",
        "AM3_protonet++.py --data_dir={net}/mini-imagenet/ --number_of_steps=4 --num_tasks_per_batch=1 "
        "--num_shots_train=1 --num_shots_test=1 --train_batch_size=8 --mlp_dropout=0.7 --att_input=word "
        "--task_encoder=self_att_mlp --mlp_type=non-linear --mlp_weight_decay=0.001 --log_dir={net}/log_dir",
        lambda net, random: stored_imagenet(net / "mini-imagenet", random),
        limit=600,
    ),
)
