"""Super-resolution."""

from data import images
from recipe import Recipe


def small_and_large(net, random, scale=4, size=(64, 64)):
    """Photos in two sizes, as DIV2K names them."""
    from PIL import Image

    images(net / "large", random, 3, (scale * size[0], scale * size[1]), "png", "%04d")
    (net / "small" / ("X%d" % scale)).mkdir(parents=True)
    for path in sorted((net / "large").glob("*.png")):
        small = Image.open(str(path)).resize(size, Image.BICUBIC)
        small.save(str(net / "small" / ("X%d" % scale) / ("%sx%d.png" % (path.stem, scale))))


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/subpixel",
        "main.py --epoch=1 --batch_size=16 --data_dir={net}/bmp/",
        lambda net, random: images(net / "bmp" / "Train", random, 3, (300, 300), "bmp", "t%d"),
        cwd="subpixel_ID2093_for_TensorFlow",
        steps=6,
        loss=(0, 1),
    ),
    Recipe(
        "TensorFlow/contrib/cv/BSRN_ID1296_for_TensorFlow",
        "train.py --data_input_path={net}/small --data_truth_path={net}/large --train_path={net}/checkpoints "
        "--chip=npu --model=bsrn --dataloader=div2k_loader --batch_size=2 --input_patch_size=16 --max_steps=4 "
        "--save_freq=2 --log_freq=1 --scales=4 --sleep_ratio=0",
        small_and_large,
        options=["--set", "npu_shim_saturate=true"],  # sixteen recursions of one block leave float16's range
        env={"DEVICE_INDEX": 0},
        checkpoint="checkpoints/model.ckpt-*.index",
        limit=600,
    ),
)
