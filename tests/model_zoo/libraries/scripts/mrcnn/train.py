"""Mask R-CNN of mrcnn 0.2 on squares of 64 by 64: heads trained, weights saved, then detected with them."""

import numpy as np
from mrcnn import model, utils
from mrcnn.config import Config


class Squares(Config):
    NAME = "squares"
    GPU_COUNT = 1
    IMAGES_PER_GPU = 1
    NUM_CLASSES = 2
    BACKBONE = "resnet50"
    IMAGE_MIN_DIM = IMAGE_MAX_DIM = 64
    RPN_ANCHOR_SCALES = (8, 16, 32, 64, 128)
    TRAIN_ROIS_PER_IMAGE = 8
    POST_NMS_ROIS_TRAINING = 32
    POST_NMS_ROIS_INFERENCE = 16
    MAX_GT_INSTANCES = 4
    DETECTION_MAX_INSTANCES = 4
    STEPS_PER_EPOCH = 3
    VALIDATION_STEPS = 1
    FPN_CLASSIF_FC_LAYERS_SIZE = 32
    TOP_DOWN_PYRAMID_SIZE = 32


class Images(utils.Dataset):
    def filled(self, count):
        self.add_class("squares", 1, "square")
        for n in range(count):
            self.add_image("squares", image_id=n, path=None, at=8 + 4 * n)
        self.prepare()
        return self

    def load_image(self, image_id):
        at = self.image_info[image_id]["at"]
        image = np.full((64, 64, 3), 40, np.uint8)
        image[at : at + 24, at : at + 24] = 200
        return image

    def load_mask(self, image_id):
        return (self.load_image(image_id)[:, :, :1] > 100), np.array([1], np.int32)


config = Squares()
images = Images().filled(4)
trained = model.MaskRCNN("training", config, "logs")
trained.train(images, images, learning_rate=1e-3, epochs=1, layers="heads")
trained.keras_model.save_weights("mask_rcnn.h5")
detecting = model.MaskRCNN("inference", config, "logs")
detecting.load_weights("mask_rcnn.h5", by_name=True)
(detections,) = detecting.detect([images.load_image(0)])
assert detections["rois"].shape[1] == 4
