"""Reinforcement learning, on games of made-up frames."""

from data import stand_in
from recipe import Recipe

RECIPES = (
    Recipe(
        "TensorFlow/contrib/reinforcement-learning/iqn",
        "IQN_tf.py --envs_num=8 --batch_size=8 --memory_capacity=2000 --train_url={net}/out",
        lambda net, random: (stand_in("gym", net / "IQN_ID1995_for_TensorFlow"), (net / "out").mkdir()),
        cwd="IQN_ID1995_for_TensorFlow",
        steps=5,
        loss=(0, 5),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/reinforcement-learning/A3C",  # two threads train in one session
        "train_npu.py --threads_num=2 --MAX_GLOBAL_EP=2 --UPDATE_GLOBAL_ITER=50 --output_url={net}/out/ "
        "--log_url={net}/log",
        lambda net, random: stand_in("gym", net / "A3C_ID0203_for_TensorFlow"),
        mode="allow_fp32_to_fp16",
        options=("--set", "use_off_line=true"),  # False in the script, which so trains on the host, in float32
        cwd="A3C_ID0203_for_TensorFlow",
        checkpoint="out/model.ckpt.index",
        limit=600,
    ),
)
