"""tf.contrib.image: transforms, warps, colours, matches."""
