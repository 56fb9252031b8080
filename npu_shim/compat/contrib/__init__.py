"""Our own implementations of names in tf.contrib; `compat/names.json` says what each name stands for."""
