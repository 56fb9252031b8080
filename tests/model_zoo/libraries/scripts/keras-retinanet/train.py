"""RetinaNet of keras-retinanet on images of 64 by 64: trained by its losses, saved, and loaded for inference."""

import keras
import keras_retinanet.losses
import numpy as np
from keras_retinanet import models
from keras_retinanet.utils.anchors import anchor_targets_bbox, anchors_for_shape

random = np.random.RandomState(0)
backbone = models.backbone("resnet50")
model = backbone.retinanet(num_classes=2)
losses = {"regression": keras_retinanet.losses.smooth_l1(), "classification": keras_retinanet.losses.focal()}
model.compile(loss=losses, optimizer=keras.optimizers.Adam(lr=1e-4, clipnorm=0.001))

images = random.rand(2, 64, 64, 3).astype("float32")
boxes = [{"bboxes": np.array([[8.0, 8.0, 40.0, 40.0]]), "labels": np.array([n])} for n in range(2)]
regression, labels = anchor_targets_bbox(anchors_for_shape((64, 64)), list(images), boxes, 2)
for _ in range(3):
    print(model.train_on_batch(images, [regression, labels]))
model.save("retinanet.h5")
again = models.convert_model(models.load_model("retinanet.h5", backbone_name="resnet50"))
detections, scores, classes = again.predict_on_batch(images)
assert detections.shape[2] == 4
