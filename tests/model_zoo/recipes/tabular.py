"""Small networks over tables."""

from data import folders, write
from recipe import Recipe

FLOWERS = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")


def irises(folder, random, rows=60):
    """Four lengths and a flower's name a line."""
    for part in ("train", "test"):
        lines = []
        for number in range(rows):
            lengths = random.normal(size=4) * 0.3 + 2 + number % 3
            lines.append(",".join([*("%.1f" % length for length in lengths), FLOWERS[number % 3]]))
        write(folder / ("iris." + part), "\n".join(lines) + "\n")


def thyroids(folder, random, rows=400, columns=21):
    """Measurements of patients, few of whom are ill, a patient a line."""
    folders(folder, "model", "results")
    lines = [",".join(["f%d" % n for n in range(columns)] + ["class"])]
    for number in range(rows):
        ill = number % 8 == 0
        lines.append(",".join(["%.4f" % value for value in random.random(columns) + ill] + [str(int(ill))]))
    write(folder / "dataset" / "annthyroid_21feat_normalised.csv", "\n".join(lines) + "\n")


RECIPES = (
    Recipe(
        "TensorFlow/built-in/cv/image_classification/Multi-Layer_Perceptron_ID0628_for_TensorFlow",
        "mlp.py --precision_mode=allow_mix_precision --training_epochs=1000 --data_path={net}",
        irises,
        checkpoint="ckpt_gpu/model.ckpt.index",
        loss=(0, 40),
    ),
    Recipe(
        "TensorFlow/contrib/cv/DevNet",
        "train.py --epochs=2 --runs=1 --nb_batch=5 --batch_size=64",
        lambda net, random: thyroids(net / "DevNet_ID0223_for_TensorFlow", random),
        cwd="DevNet_ID0223_for_TensorFlow",
        options=("--precision-mode", "allow_mix_precision"),  # the script itself trains on the host (use_npu=False)
        checkpoint="DevNet_ID0223_for_TensorFlow/model/*.index",
        loss=(0.5, 5),
    ),
)
