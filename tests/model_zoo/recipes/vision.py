"""Vision: classification of images."""

import numpy as np
from data import folders, images, mnist, tfrecords, write
from recipe import Recipe

CV = "TensorFlow/contrib/cv/"


def cifar_records(path, random, count=64):
    """32 by 32 images as raw bytes with a fine and a coarse label."""
    tfrecords(path, [
        {
            "image": random.integers(0, 256, 3072).astype(np.uint8).tobytes(),
            "fine_label": np.array([n % 100]),
            "coarse_label": np.array([n % 20]),
        }
        for n in range(count)
    ])  # fmt: skip


def rides(folder, random, count=8, size=(128, 416)):
    """Three views side by side of a drive, and the camera's matrix of each, in the list of their names."""
    height, width = size
    images(folder / "drive", random, count, (height, 3 * width))
    for number in range(count):
        write(folder / "drive" / ("%d_cam.txt" % number), "241.7,0,204.2,0,246.3,59.0,0,0,1\n")
    write(folder / "train.txt", "".join("drive %d\n" % number for number in range(count)))


def flights(folder, random, count=4, size=(128, 128)):
    """Three views side by side, the depth of some pixels, where it is known, the camera's matrix; and their lists."""
    from PIL import Image

    height, width = size
    images(folder / "views", random, count, (height, 3 * width), "png")
    lists = {"views": "png", "depths": "png", "known": "png", "cameras": "npy"}
    for name, ending in lists.items():
        (folder / name).mkdir(exist_ok=True)
        names = [str(folder / name / ("%d.%s" % (number, ending))) for number in range(count)]
        write(folder / (name + ".txt"), "\n".join(names) + "\n")
    for number in range(count):
        known = random.random(size) < 0.1
        depths = random.integers(256, 1500, size)
        Image.fromarray(depths.astype(np.int32)).save(str(folder / "depths" / ("%d.png" % number)))
        Image.fromarray((known * 256).astype(np.int32)).save(str(folder / "known" / ("%d.png" % number)))
        np.save(str(folder / "cameras" / ("%d.npy" % number)), np.array([[100, 0, 64], [0, 100, 64], [0, 0, 1.0]]))


def motions(folder, random, actions=("Walking",), frames=64):
    """Where 32 joints are in each frame, of seven people, two files an action; and the cameras that saw them."""
    import cdflib.cdfwrite

    kind = {"Variable": "Pose", "Data_Type": 45, "Num_Elements": 1, "Rec_Vary": True, "Dim_Sizes": [96]}
    for person in (1, 5, 6, 7, 8, 9, 11):
        place = folder / ("S%d" % person) / "MyPoseFeatures" / "D3_Positions"
        place.mkdir(parents=True)
        for name in [action + again for action in actions for again in ("", " 1")]:
            with cdflib.cdfwrite.CDF(str(place / (name + ".cdf"))) as f:
                f.write_var(kind, var_data=random.normal(size=(frames, 96)) * 500)
    write(folder / "metadata.xml", "<a><w0>[%s]</w0></a>" % " ".join("%.4f" % n for n in random.random(300) + 1))


RECIPES = (
    Recipe(
        "TensorFlow/built-in/nlp/LeNet_ID0127_for_TensorFlow",
        "LeNet.py --steps=20 --precision_mode=allow_mix_precision",
        lambda net, random: (mnist(net / "MNIST", random), folders(net, "test", "output/ckpt_npu")),
        checkpoint="output/ckpt_npu/mode.ckpt.index",
        loss=(2, 4),
    ),
    Recipe(
        CV + "wideresnet",
        "run_wideresnet.py --model_path=None --data_path={net}/records --output_path={net}/out --do_train=True "
        "--image_num=32 --batch_size=8 --epoch=1 --depths=10 --ks=1",
        lambda net, random: cifar_records(net / "records" / "train.tfrecords", random),
        mode="allow_fp32_to_fp16",
        cwd="wideresnet_ID0175_for_TensorFlow",
        checkpoint="out/wideresnet.ckpt-0.index",
        loss=(3, 7),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/DeepMatchVO_ID2363_for_TensorFlow",
        "train.py --dataset_dir={net}/rides --checkpoint_dir={net}/out --max_steps=3 --summary_freq=1 --batch_size=2 "
        "--learning_rate=0.001 --steps_per_epoch=3 --save_freq=2",
        lambda net, random: rides(net / "rides", random),
        mode="allow_fp32_to_fp16",
        checkpoint="out/model*.index",
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/UDCVO_ID2359_for_TensorFlow",
        "src/train_voiced.py --train_image_path={net}/flights/views.txt "
        "--train_intrinsics_path={net}/flights/cameras.txt --train_interp_depth_path={net}/flights/depths.txt "
        "--train_validity_map_path={net}/flights/known.txt "
        "--n_epoch=2 --n_batch=2 --n_height=128 --n_width=128 --n_channel=3 --learning_rates=0.5e-4,0.25e-4,0.12e-4 "
        "--learning_bounds=12,16 --net_type=vggnet08 --checkpoint_path={net}/out --n_checkpoint=2 --n_thread=2",
        lambda net, random: flights(net / "flights", random),
        mode="force_fp32",  # products of float16 into float32
        checkpoint="out/model.ckpt-*.index",
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/3D-POSE-BASELINE_ID0795_for_TensorFlow",
        "predict_3dpose.py --data_dir={net}/moves --cameras_path={net}/moves/metadata.xml --camera_frame --residual "
        "--batch_norm --dropout=0.5 --max_norm --evaluateActionWise --epochs=1 --action=Walking --linear_size=64",
        lambda net, random: motions(net / "moves", random),
        cwd="src",
        loss=(0.3, 5),
        limit=600,
    ),
)
