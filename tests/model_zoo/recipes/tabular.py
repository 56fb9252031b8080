"""Small networks over tables."""

from data import write
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


RECIPES = (
    Recipe(
        "TensorFlow/built-in/cv/image_classification/Multi-Layer_Perceptron_ID0628_for_TensorFlow",
        "mlp.py --precision_mode=allow_mix_precision --training_epochs=1000 --data_path={net}",
        irises,
        checkpoint="ckpt_gpu/model.ckpt.index",
        loss=(0, 40),
    ),
)
