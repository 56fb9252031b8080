"""Scripts that train by Keras' own loop."""

from recipe import Recipe

RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/Keras-TCN_ID2665_for_TensorFlow",
        "train.py --batch_size=16 --epochs=1 --train_data_n=64 --validation_data_n=32 --seq_length=100 "
        "--tensorboard_path={net}/board",
        mode="allow_fp32_to_fp16",
        checkpoint="tcn.h5",
        limit=600,
    ),
    Recipe(
        "TensorFlow/built-in/cv/image_classification/SWA_ID0252_for_TensorFlow",
        "train-tf.keras-npu.py",
        steps=20,
        loss=(0.5, 4),
    ),
)
