"""tf.contrib.opt."""

from . import case, values


def _train(tf, make, sparse=True, dense=True, kinds=(False, True)):
    """Variables and slots after three steps of an optimizer, for reference and resource variables."""
    out = []
    for resource in kinds:
        with tf.variable_scope("resource" if resource else "reference", use_resource=resource):
            table, w = tf.get_variable("table", [6, 3]), tf.get_variable("w", [3, 2])
            loss = 0.0
            if sparse:
                loss += tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, [0, 2, 2, 5]) - 0.3))
            if dense:
                loss += tf.reduce_sum(tf.square(tf.matmul(tf.constant(values("x", 4, 3)), w)))
            optimizer = make([v for v, used in ((table, sparse), (w, dense)) if used])
            variables = [v for v, used in ((table, sparse), (w, dense)) if used]
            tf.add_to_collection("train_of_case", optimizer.minimize(loss, var_list=variables))
            slots = [optimizer.get_slot(v, name) for v in variables for name in sorted(optimizer.get_slot_names())]
            out.append(variables + slots)
    return out


def _scoped(tf, scope, make, **kwargs):
    with tf.variable_scope(scope):
        return _train(tf, make, **kwargs)


@case
def opt_adams(tf, contrib):
    return [_scoped(tf, "x", lambda v: contrib.opt.AdaMaxOptimizer(0.1)),
            _scoped(tf, "n", lambda v: contrib.opt.NadamOptimizer(0.1), sparse=False),
            _scoped(tf, "l", lambda v: contrib.opt.LazyAdamOptimizer(0.1))]  # fmt: skip


@case
def opt_rates(tf, contrib):
    def clipped(v):
        return contrib.opt.VariableClippingOptimizer(
            tf.train.GradientDescentOptimizer(0.1), {v[0]: [0, 1], v[1]: [0]}, 0.5
        )

    return [_scoped(tf, "a", lambda v: contrib.opt.LARSOptimizer(0.5, weight_decay=0.1, eeta=0.1)),
            _scoped(tf, "n", lambda v: contrib.opt.LARSOptimizer(0.5, use_nesterov=True)),
            _scoped(tf, "s", lambda v: contrib.opt.LARSOptimizer(0.01, skip_list=["w"]), sparse=False),
            _scoped(tf, "add", lambda v: contrib.opt.AddSignOptimizer(0.1, alpha=0.5), sparse=False),
            _scoped(tf, "power", lambda v: contrib.opt.PowerSignOptimizer(0.1, base=2.0), sparse=False),
            _scoped(tf, "clip", clipped)]  # fmt: skip


@case
def opt_average(tf, contrib):
    optimizer = contrib.opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(0.1), 0.5)
    w = tf.get_variable("w", [3, 2])
    tf.add_to_collection("train_of_case", optimizer.minimize(tf.reduce_sum(tf.square(w))))
    saver = optimizer.swapping_saver().as_saver_def()
    # what is saved under the variable's name is its average
    saved = tf.get_default_graph().get_operation_by_name("swapping_saver/SaveV2")
    return w, optimizer._ema.average(w), saved.inputs[1], list(saved.inputs)[3:], tf.constant(saver.version)


@case
def opt_clip_global(tf, contrib):
    w, z = tf.get_variable("w", [3, 2]), tf.get_variable("z", [2])
    pairs = tf.train.GradientDescentOptimizer(0.1).compute_gradients(
        tf.reduce_sum(tf.square(w)) + 0.0 * tf.reduce_sum(z)
    )
    clipped, norm = contrib.opt.clip_gradients_by_global_norm(pairs, 0.7)
    return [g for g, _ in clipped], norm


@case
def opt_variants(tf, contrib):
    step = tf.Variable(3, dtype=tf.int64, trainable=False, name="step")

    return [_scoped(tf, "g", lambda v: contrib.opt.AdamGSOptimizer(step, 0.1)),
            _scoped(tf, "l", lambda v: contrib.opt.LazyAdamGSOptimizer(step, 0.1)),
            _scoped(tf, "r", lambda v: contrib.opt.RegAdagradOptimizer(0.1))]  # fmt: skip


@case
def opt_shampoo(tf, contrib):
    make, out = contrib.opt.ShampooOptimizer, []
    # roots by iteration are only as exact as their stop: test_contrib compares them with those by SVD
    for name, kwargs in {
        "plain": {"epsilon": 0.1},
        "decayed": {"epsilon": 0.1, "gbar_decay": 0.5, "gbar_weight": lambda t: 0.5, "mat_gbar_decay": 0.9},
        "late": {"epsilon": 0.1, "svd_interval": 2, "precond_update_interval": lambda t: 3},
        "diagonal": {"max_matrix_size": 2, "mat_gbar_weight": 0.5},
    }.items():
        # 1.15.5 never writes the diagonal of a resource variable's rows, which then do not train
        kinds = (False,) if name == "diagonal" else (False, True)
        out.append(_scoped(tf, name, lambda v, kw=kwargs: make(tf.Variable(0, trainable=False), **kw), kinds=kinds))
    return out


@case
def opt_ggt(tf, contrib):
    # without a window of full rank, what is orthogonal to it is all rounding: svd_eps keeps it small
    return [_scoped(tf, "a", lambda v: contrib.opt.GGTOptimizer(0.1, svd_eps=0.1), sparse=False, kinds=(False,)),
            _scoped(tf, "b", lambda v: contrib.opt.GGTOptimizer(0.1, window=2, eps=10.0, sigma_eps=0.1), sparse=False,
                    kinds=(True,))]  # fmt: skip
