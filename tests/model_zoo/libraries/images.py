"""Libraries of vision, of adversaries and of privacy."""

from libraries.text import KERAS
from recipe import Recipe

RECIPES = (
    Recipe("mrcnn", "train.py", install=KERAS + "mrcnn==0.2", checkpoint="mask_rcnn.h5", limit=600, apart=1.0),
    Recipe(
        "keras-retinanet",
        "train.py",
        install=KERAS + "keras-retinanet==0.5.1 keras-resnet==0.2.0",
        checkpoint="retinanet.h5",
        limit=600,
    ),
    Recipe("cleverhans", "train.py", install="cleverhans==3.0.1 mnist", checkpoint="model.ckpt.index"),
    Recipe("foolbox", "train.py", install="foolbox==2.4.0 GitPython gitdb smmap", checkpoint="model.ckpt.index"),
    Recipe(
        "adversarial-robustness-toolbox",
        "train.py",
        install="adversarial-robustness-toolbox==1.2.0",
        checkpoint="saved/model/saved_model.pb",
    ),
    Recipe(
        "tensorflow-privacy",
        "train.py",
        install="tensorflow-privacy==0.1.0",
        checkpoint="model/model.ckpt-6.index",
        apart=1.0,  # noise is what it is about
    ),
    Recipe("tensorflow-gan", "train.py", install="tensorflow-gan==2.0.0", checkpoint="log/model.ckpt-6.index"),
)
