"""The optimizer that scales the loss, unscales the gradients in float32 and skips the steps that overflow."""

import contextlib

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale import overflow
from npu_shim.loss_scale.graph_ops import keep_dtype


class LossScaleOptimizer(tf.train.Optimizer):
    """Wraps an optimizer with loss scaling and keeps the contract of tf.train.Optimizer.

    Variables of the wrapped optimizer keep the names they have without the wrapper, so checkpoints of the plain and of
    the wrapped optimizer fit each other.

    Args:
        opt: tf.train.Optimizer, or anything with its compute_gradients and apply_gradients.
        loss_scale_manager: LossScaleManager.
        detector: function from a list of gradients (Tensor or IndexedSlices) to a bool scalar tensor that says whether
            the step may be applied; None looks at the values.
        reducer: function from this worker's bool scalar tensor to the one all workers agree on; None does not talk.
    """

    def __init__(self, opt, loss_scale_manager, detector=None, reducer=None):
        super().__init__(use_locking=getattr(opt, "_use_locking", False), name=type(self).__name__)
        self._opt = opt
        self._loss_scale_manager = loss_scale_manager
        self._detector = detector or overflow.all_finite
        self._reducer = reducer

    def __getattr__(self, name):
        if name == "_opt":  # not there yet while a copy or a pickle is being made
            raise AttributeError(name)
        return getattr(self._opt, name)

    def compute_gradients(
        self,
        loss,
        var_list=None,
        gate_gradients=tf.train.Optimizer.GATE_OP,
        aggregation_method=None,
        colocate_gradients_with_ops=False,
        grad_loss=None,
    ):
        """Returns the gradients of the unscaled loss, computed through the scaled one.

        Args:
            loss: float tensor of any float dtype and shape, or a function that returns it.
            var_list: as in tf.train.Optimizer.
            gate_gradients: as in tf.train.Optimizer.
            aggregation_method: as in tf.train.Optimizer.
            colocate_gradients_with_ops: as in tf.train.Optimizer.
            grad_loss: as in tf.train.Optimizer.

        Returns:
            list of (gradient, variable); a gradient has its variable's dtype, is None where there is none and
            IndexedSlices where it is sparse.
        """
        _prepare(self._opt)
        scale = self._loss_scale_manager.get_loss_scale()
        scaled = (lambda: scale_loss(loss(), scale)) if callable(loss) else scale_loss(loss, scale)
        pairs = self._opt.compute_gradients(
            scaled,
            var_list=var_list,
            gate_gradients=gate_gradients,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            grad_loss=grad_loss,
        )
        return unscale(pairs, scale)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Returns the op that applies the gradients when all are finite, and moves the loss scale in any case.

        Args:
            grads_and_vars: iterable of (gradient or None, variable).
            global_step: variable or None; moves on applied steps only.
            name: name of the returned op.

        Raises:
            ValueError: no variable has a gradient.
        """
        pairs = tuple(grads_and_vars)
        if not any(gradient is not None for gradient, _ in pairs):
            raise ValueError("npu_shim: no gradients provided for any variable: %s" % [str(v) for _, v in pairs])
        finite = self._finite([gradient for gradient, _ in pairs if gradient is not None])
        _prepare(self._opt)
        with _runnable_train_op() as train_ops, _outside_names() as inside, _prepared(self._opt):
            def apply():
                with inside():
                    return tf.group(self._opt.apply_gradients(pairs, global_step, name))

            applied = tf.cond(finite, apply, tf.no_op, name="apply_if_finite")
            update = self._loss_scale_manager.update_loss_scale(finite)
            train_op = tf.group(applied, update, name=name or self.get_name())
            train_ops.append(train_op)
        return train_op

    def _finite(self, gradients):
        check = getattr(self._loss_scale_manager, "get_enable_overflow_check", None)
        if check is not None and not check():
            return tf.constant(True)
        finite = self._detector(gradients)
        return finite if self._reducer is None else self._reducer(finite)

    def get_slot(self, var, name):
        """Returns the wrapped optimizer's slot of that name."""
        return self._opt.get_slot(var, name)

    def get_slot_names(self):
        """Returns the names of the wrapped optimizer's slots."""
        return self._opt.get_slot_names()

    def variables(self):
        """Returns the wrapped optimizer's variables."""
        return self._opt.variables()


class NPULossScaleOptimizer(LossScaleOptimizer):
    """npu_bridge's name of the loss-scale optimizer.

    Args:
        opt: optimizer.
        loss_scale_manager: LossScaleManager.
        is_distributed: bool; True lets all workers skip a step when one of them overflows.
    """

    def __init__(self, opt, loss_scale_manager, is_distributed=False):
        super().__init__(opt, loss_scale_manager, reducer=overflow.agreed if is_distributed else None)


def scale_loss(loss, scale):
    """Returns loss * scale, in float32 when the loss is narrower (2**32 is infinity in float16)."""
    with keep_dtype(), tf.name_scope("scale_loss"):
        loss = tf.convert_to_tensor(loss)
        wide = tf.float64 if loss.dtype.base_dtype == tf.float64 else tf.float32
        return tf.cast(loss, wide) * tf.cast(scale, wide)


def unscale(grads_and_vars, scale):
    """Returns the pairs with every gradient multiplied by 1 / scale, in float32 or wider, in its own dtype again."""
    with keep_dtype(), tf.name_scope("unscale"):
        down = tf.reciprocal(tf.cast(scale, tf.float32))
        return [(None if g is None else _times(g, down), v) for g, v in grads_and_vars]


def _times(gradient, factor):
    if isinstance(gradient, tf.IndexedSlices):
        values = _times(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    dtype = gradient.dtype.base_dtype
    if dtype == tf.float32:
        return gradient * factor
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    return tf.cast(tf.cast(gradient, wide) * tf.cast(factor, wide), dtype)


def _chain(opt):
    """Returns the optimizer and what it wraps, outermost first."""
    chain = []
    while opt is not None and opt not in chain:
        chain.append(opt)
        opt = opt.__dict__.get("_opt") or opt.__dict__.get("_optimizer")
    return chain


def _prepare(opt):
    """Makes the hyperparameter tensors (`_lr_t`) here, where they can be fetched, and not in the conditional."""
    for each in _chain(opt):
        if isinstance(each, tf.train.Optimizer):
            each._prepare()


@contextlib.contextmanager
def _prepared(opt):
    """Keeps the tensors of `_prepare` while the optimizer applies."""
    chain = [each for each in _chain(opt) if isinstance(each, tf.train.Optimizer)]
    for each in chain:
        each._prepare = lambda: None
    try:
        yield
    finally:
        for each in chain:
            del each._prepare


@contextlib.contextmanager
def _outside_names():
    """Gives variables that are made in a branch the names they would have outside of it."""
    outer = tf.get_default_graph().get_name_scope()
    branch = []

    def creator(next_creator, **kwargs):
        scope = tf.get_default_graph().get_name_scope()
        if not branch or not scope.startswith(branch[-1]):
            return next_creator(**kwargs)
        plain = "/".join(part for part in (outer, scope[len(branch[-1]):].strip("/")) if part)
        with tf.name_scope(plain + "/" if plain else None):
            return next_creator(**kwargs)

    @contextlib.contextmanager
    def inside():
        branch.append(tf.get_default_graph().get_name_scope())
        yield
        branch.pop()

    with tf.variable_creator_scope(creator):
        yield inside


@contextlib.contextmanager
def _runnable_train_op():
    """Leaves in the TRAIN_OP collection what it held and what is appended here, not the op inside the conditional."""
    collection = tf.get_collection_ref(tf.GraphKeys.TRAIN_OP)
    before, own = list(collection), []
    yield own
    collection[:] = before + own
