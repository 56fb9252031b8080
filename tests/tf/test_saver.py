import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim import CastFromFloat32SaverBuilder, CastingSaverBuilder
from npu_shim.loss_scale import LossScaleSaver

NUMPY = {d: d.as_numpy_dtype for d in (tf.float32, tf.float16, tf.bfloat16)}
FLOATS = list(NUMPY)
V1, V2 = 1, 2
# Every class of value: ties to even, the edges of float16, subnormals, zeros, and what is not finite.
VALUES = np.array(
    [0, -0.0, 1, -1.5, 2049, 2051, 65504, 65519.996, 65520, 70000, -1e30, 3e38, 6.1e-5, 5.96e-8, 2.98e-8, 2.99e-8,
     1e-30, np.inf, -np.inf, np.nan, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 0.1], np.float32)


@pytest.fixture(params=[False, True], ids=["reference", "resource"])
def resource(request):
    return request.param


@pytest.fixture
def prefix(tmp_path):
    return str(tmp_path / "model.ckpt")


def write(prefix, tensors, resource=False, **options):
    """Saves `tensors` (name -> array, or (array, dtype)) with the default Saver; returns the checkpoint's path."""
    with tf.Graph().as_default(), tf.Session() as session:
        for name, value in tensors.items():
            value, dtype = value if isinstance(value, tuple) else (value, None)
            value = tf.cast(value, dtype) if dtype else tf.constant(value)
            tf.get_variable(name, initializer=value, use_resource=resource)
        session.run(tf.global_variables_initializer())
        return tf.train.Saver(**options).save(session, prefix, write_meta_graph=False)


def saver(builder=None, **options):
    return tf.train.Saver(builder=builder or CastingSaverBuilder(), **options)


def zeros(name, shape, dtype, resource=False, **kwargs):
    return tf.get_variable(name, shape, dtype, tf.zeros_initializer(), use_resource=resource, **kwargs)


def bits(array):
    array = np.asarray(array)
    return array.view({2: np.uint16, 4: np.uint32}[array.dtype.itemsize])


def same(got, want):
    """Whether two arrays agree bit by bit; any NaN equals any NaN."""
    nan = np.isnan(np.asarray(want, np.float32))
    return got.dtype == want.dtype and (bits(got) == bits(want))[~nan].all() and np.isnan(
        np.asarray(got, np.float32))[nan].all()


# The behaviour matrix: our column.


@pytest.mark.by_day(
    "resource-CastingSaverBuilder-float16-float32", "reference-CastingSaverBuilder-bfloat16-float32",
    "resource-CastingSaverBuilder-float32-float16", "reference-CastingSaverBuilder-float16-bfloat16",
    "resource-CastFromFloat32SaverBuilder-float16-float32", "reference-CastFromFloat32SaverBuilder-bfloat16-float32",
    "reference-CastFromFloat32SaverBuilder-float32-float16",
)  # fmt: skip
@pytest.mark.parametrize("stored", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("wanted", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("builder", [CastingSaverBuilder, CastFromFloat32SaverBuilder])
def test_every_float_restores_into_every_float_as_numpy_casts(prefix, resource, stored, wanted, builder):
    path = write(prefix, {"w": (VALUES, stored), "step": np.int64(7), "i": np.int32([1, 2]), "s": b"text"}, resource)
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", VALUES.shape, wanted, resource)
        others = [zeros("step", [], tf.int64, resource), zeros("i", [2], tf.int32, resource),
                  tf.get_variable("s", initializer=tf.constant(b""), use_resource=resource)]
        saver(builder()).restore(session, path)
        got, (step, i, s) = session.run(w), session.run(others)
    with np.errstate(over="ignore"):
        assert same(got, VALUES.astype(NUMPY[stored]).astype(np.float32).astype(NUMPY[wanted]))
    assert (step, i.tolist(), s) == (7, [1, 2], b"text")


@pytest.mark.parametrize("wanted", [tf.float16, tf.bfloat16], ids=lambda d: d.name)
def test_its_own_checkpoint_restores_and_so_on(prefix, resource, wanted):
    path = write(prefix, {"w": VALUES})
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", VALUES.shape, wanted, resource)
        own = saver(CastFromFloat32SaverBuilder())
        own.restore(session, path)
        first = session.run(w)
        for i in range(2):
            again = own.save(session, prefix + "-again", global_step=i)
            session.run(w.initializer)
            own.restore(session, again)
            assert same(session.run(w), first)
    assert dict(tf.train.list_variables(again)) == {"w": [len(VALUES)]}
    assert tf.train.NewCheckpointReader(again).get_variable_to_dtype_map() == {"w": wanted}


def test_the_default_saver_refuses_what_ours_restores(prefix):
    path = write(prefix, {"w": VALUES})
    with tf.Graph().as_default(), tf.Session() as session:
        zeros("w", VALUES.shape, tf.float16)
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.train.Saver().restore(session, path)


@pytest.mark.parametrize("stored", [tf.float32, tf.float16], ids=lambda d: d.name)
def test_v1_checkpoints_are_read(prefix, stored):
    path = write(prefix, {"w": (VALUES, stored)}, write_version=V1)
    assert os.path.exists(path)  # V1 is one file of that name
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", VALUES.shape, tf.float32)
        saver().restore(session, path)
        with np.errstate(over="ignore"):
            assert same(session.run(w), VALUES.astype(NUMPY[stored]).astype(np.float32))


@pytest.mark.parametrize("version", [V1, V2])
def test_the_write_version_of_the_saver_is_honored(prefix, version):
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", [2], tf.float16)
        session.run(w.initializer)
        for own in (saver(write_version=version), saver(CastingSaverBuilder(write_version=version))):
            path = own.save(session, prefix, write_meta_graph=False)
            assert os.path.exists(path) == (version == V1)
            assert os.path.exists(path + ".index") == (version == V2)
            own.restore(session, path)


@pytest.mark.parametrize("parts", [3, 2, None])
def test_partitioned_variables_restore_into_any_layout(prefix, resource, parts):
    value = np.arange(24, dtype=np.float32).reshape(12, 2) / 7

    def part(shape, dtype=None, partition_info=None):
        return tf.slice(tf.constant(value), partition_info.var_offset, shape)

    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("w", value.shape, initializer=part, use_resource=resource,
                        partitioner=tf.fixed_size_partitioner(3))
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, prefix)
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", [12, 2], tf.float16, resource, partitioner=parts and tf.fixed_size_partitioner(parts))
        saver().restore(session, path)
        assert np.array_equal(session.run(tf.convert_to_tensor(w)), value.astype(np.float16))


@pytest.mark.parametrize("wanted", [tf.float16, tf.float32], ids=lambda d: d.name)
def test_a_whole_float16_tensor_restores_into_parts(prefix, resource, wanted):
    value = np.arange(24, dtype=np.float16).reshape(12, 2) / 7
    path = write(prefix, {"w": value})
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", [12, 2], wanted, resource, partitioner=tf.fixed_size_partitioner(3))
        with pytest.raises(tf.errors.InvalidArgumentError):  # TensorFlow: "Dtype half not supported"
            tf.train.Saver().restore(session, path)
        saver().restore(session, path)
        assert np.array_equal(session.run(tf.convert_to_tensor(w)), value.astype(NUMPY[wanted]))


def test_parts_of_float16_restore_as_they_were_saved(prefix, resource):
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", [12, 2], tf.float16, resource, partitioner=tf.fixed_size_partitioner(3))
        session.run([part.initializer for part in w])
        own = saver()
        path = own.save(session, prefix)
        session.run([tf.assign(part, tf.ones_like(part)) for part in w])
        own.restore(session, path)
        assert not session.run(tf.convert_to_tensor(w)).any()


@pytest.mark.parametrize("wanted", [tf.float16, tf.float32], ids=lambda d: d.name)
@pytest.mark.parametrize("parts", [4, 2, None])
def test_parts_of_float16_restore_into_any_layout(prefix, parts, wanted):
    """TensorFlow reads a part of float16 only as it is stored."""
    value = np.arange(24, dtype=np.float16).reshape(12, 2) / 7
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", [12, 2], tf.float16, False, partitioner=tf.fixed_size_partitioner(3))
        session.run([tf.assign(part, rows) for part, rows in zip(w, np.split(value, 3))])
        path = tf.train.Saver().save(session, prefix)
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", [12, 2], wanted, False, partitioner=parts and tf.fixed_size_partitioner(parts))
        saver().restore(session, path)
        assert np.array_equal(session.run(tf.convert_to_tensor(w)), value.astype(NUMPY[wanted]))


def test_sharded_savers_of_two_devices(prefix):
    path = write(prefix, {"a": VALUES, "b": VALUES[::-1].copy()})
    config = tf.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        with tf.device("/cpu:0"):
            a = zeros("a", VALUES.shape, tf.float16)
        with tf.device("/cpu:1"):
            b = zeros("b", VALUES.shape, tf.bfloat16)
        own = saver(sharded=True)
        own.restore(session, path)
        again = own.save(session, prefix + "-sharded")
        assert os.path.exists(again + ".data-00001-of-00002")
        session.run(tf.global_variables_initializer())
        own.restore(session, again)
        got_a, got_b = session.run([a, b])
    with np.errstate(over="ignore"):
        assert same(got_a, VALUES.astype(np.float16))
    assert same(got_b, VALUES[::-1].astype(NUMPY[tf.bfloat16]))


def test_reshape_names_deferred_and_empty(prefix):
    path = write(prefix, {"w": np.arange(6, dtype=np.float32)})
    with tf.Graph().as_default(), tf.Session() as session:
        assert saver(allow_empty=True).restore(session, path) is None
        deferred = saver(defer_build=True)
        w = zeros("other", [2, 3], tf.float16)
        tf.train.Saver({"w": w}, reshape=True, builder=CastingSaverBuilder()).restore(session, path)
        assert session.run(w).tolist() == [[0, 1, 2], [3, 4, 5]]
        deferred.build()
        deferred.save(session, prefix + "-deferred")
        deferred.restore(session, prefix + "-deferred")


def test_extra_tensors_in_the_file_are_ignored(prefix):
    path = write(prefix, {"w": np.float32([1]), "extra": np.float32([2])})
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", [1], tf.float16)
        saver().restore(session, path)
        assert session.run(w) == 1


def test_missing_tensors_are_all_named_with_the_nearest(prefix):
    path = write(prefix, {"net/kernel": np.float32([1])})
    with tf.Graph().as_default(), tf.Session() as session:
        for name in ("net/kernels", "zzz"):
            zeros(name, [1], tf.float16)
        with pytest.raises(tf.errors.NotFoundError, match=r"npu_shim: .*lacks 2 [\s\S]*'net/kernel'\?\)\n  zzz$"):
            saver().restore(session, path)


def test_one_table_of_everything_that_does_not_fit(prefix):
    path = write(prefix, {"fine": VALUES, "double": np.float64([1]), "int": np.int32([1]), "shape": np.float32([1, 2])})
    with tf.Graph().as_default(), tf.Session() as session:
        fine = zeros("fine", VALUES.shape, tf.float16)
        zeros("double", [1], tf.float16)
        zeros("int", [1], tf.float32)
        zeros("shape", [3], tf.float16)
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            saver().restore(session, path)
        assert session.run(fine).any() == 0
    lines = [line.split() for line in caught.value.message.splitlines()[2:]]
    assert sorted(lines) == [
        ["double", "float64", "float16", "[1]", "[1]"],
        ["int", "int32", "float32", "[1]", "[1]"],
        ["shape", "float32", "float16", "[2]", "[3]"],
    ]


def test_stored_dtypes_restrict_what_is_cast(prefix):
    path = write(prefix, {"w": (VALUES, tf.bfloat16)})
    with tf.Graph().as_default(), tf.Session() as session:
        zeros("w", VALUES.shape, tf.float16)
        with pytest.raises(tf.errors.InvalidArgumentError, match="bfloat16"):
            saver(CastingSaverBuilder(stored_dtypes=["float32"])).restore(session, path)
        saver(CastingSaverBuilder(stored_dtypes=["float32", tf.bfloat16])).restore(session, path)
    for wrong, told in (
        ([tf.float64], "'float64'.*only float32"), (["flaot16"], "'flaot16'.*did you mean 'float16'"),
        ("float16", r"stored_dtypes is 'float16', expected a list"), (tf.float16, "expected a list"),
        (32, "expected a list"),
    ):  # fmt: skip
        with pytest.raises(npu_shim.ConfigError, match=told):
            CastingSaverBuilder(stored_dtypes=wrong)


@pytest.mark.parametrize("end", [".index", ".data-00000-of-00001", ".meta"])
def test_a_file_of_a_checkpoint_is_no_checkpoint(prefix, end):
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", VALUES.shape, tf.float16)
        session.run(w.initializer)
        path = saver().save(session, prefix)
        told = r"%s' is one file [^?]*did you mean '%s'\?" % (end, path)
        with pytest.raises(tf.errors.InvalidArgumentError, match=told):
            saver().restore(session, path + end)


def test_the_class_of_a_builder_is_no_builder():
    with tf.Graph().as_default():
        zeros("w", VALUES.shape, tf.float16)
        with pytest.raises(npu_shim.ConfigError, match=r"CastingSaverBuilder\(\), not the class"):
            tf.train.Saver(builder=CastingSaverBuilder)


@pytest.mark.parametrize("make", [saver, LossScaleSaver, lambda: LossScaleSaver(builder=CastingSaverBuilder())])
def test_a_path_may_be_bytes_as_for_any_saver(prefix, make):
    path = write(prefix, {"w": VALUES})
    dtype = tf.float32 if make is LossScaleSaver else tf.bfloat16
    with tf.Graph().as_default(), tf.Session() as session:
        w = zeros("w", VALUES.shape, dtype)
        make().restore(session, path.encode())
        assert same(session.run(w), VALUES.astype(dtype.as_numpy_dtype))


@pytest.mark.parametrize("stored", FLOATS, ids=lambda d: d.name)
def test_an_imported_meta_graph_casts_without_the_builder(prefix, stored, resource):
    path = write(prefix, {"w": (VALUES, stored)})
    with tf.Graph().as_default():
        zeros("w", VALUES.shape, tf.float16, resource)
        meta = saver().export_meta_graph(prefix + ".meta")
    with tf.Graph().as_default(), tf.Session() as session:
        imported = tf.train.import_meta_graph(meta)
        assert imported._builder is None
        imported.restore(session, path)
        (w,) = tf.global_variables()
        with np.errstate(over="ignore"):
            assert same(session.run(w), VALUES.astype(NUMPY[stored]).astype(np.float16))
        missing = write(prefix + "-missing", {"v": VALUES})
        with pytest.raises(tf.errors.NotFoundError, match="Key w not found"):
            imported.restore(session, missing)


def object_based(prefix, value):
    """An object-based checkpoint of one variable named w."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=value, use_resource=True)
        session.run(w.initializer)
        with session.as_default():
            return tf.train.Checkpoint(w=w).save(prefix, session=session)


def test_object_based_checkpoints_restore_by_name_with_casts(prefix, resource):
    path = object_based(prefix, VALUES)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        w = zeros("w", VALUES.shape, tf.float16, resource)
        own = saver()
        own.restore(session, path)
        with np.errstate(over="ignore"):
            assert same(session.run(w), VALUES.astype(np.float16))
        size = len(graph.get_operations())
        own.restore(session, path)
        assert len(graph.get_operations()) == size
    with tf.Graph().as_default() as graph, tf.Session() as session:
        zeros("w", VALUES.shape, tf.float16, resource)
        own = saver()
        graph.finalize()
        with pytest.raises(tf.errors.FailedPreconditionError, match="migrate-checkpoint"):
            own.restore(session, path)
    with tf.Graph().as_default(), tf.Session() as session:
        zeros("v", VALUES.shape, tf.float16, resource)
        with pytest.raises(tf.errors.NotFoundError, match="lacks 1 of"):
            saver().restore(session, path)


def test_values_beyond_float16_are_counted(prefix, capfd):
    path = write(prefix, {"big": np.float32([1, 70000, -1e9, np.inf]), "small": np.float32([65504])})
    with tf.Graph().as_default(), tf.Session() as session:
        zeros("big", [4], tf.float16)
        zeros("small", [1], tf.float16)
        saver().restore(session, path)
    told = capfd.readouterr().err
    assert 'npu_shim: values beyond 65504 became infinite in float16: tensors ["big"] counts [2]' in told


def test_a_known_dtype_is_read_at_once(prefix, capfd):
    path = write(prefix, {"w": np.float32([1])})
    with tf.Graph().as_default(), tf.Session() as session:
        zeros("w", [1], tf.float16)
        saver().restore(session, path)
    assert "OP_REQUIRES" not in capfd.readouterr().err


def test_missing_loss_scale_state_is_initialized_on_request(prefix, resource):
    path = write(prefix, {"w": np.float32([1]), "good_steps": np.int32(5)})

    def build():
        w = zeros("w", [1], tf.float16, resource)
        scale = tf.get_variable("loss_scale", initializer=np.float32(1024), trainable=False, use_resource=resource)
        good = tf.get_variable("good_steps", initializer=np.int64(0), trainable=False, use_resource=resource)
        return [w, scale, good]

    with tf.Graph().as_default(), tf.Session() as session:
        variables = build()
        with pytest.raises(tf.errors.NotFoundError, match="loss_scale"):
            saver().restore(session, path)
        saver(CastingSaverBuilder(init_missing_loss_scale=True)).restore(session, path)
        assert [v.item() for v in session.run(variables)] == [1, 1024, 5]


def test_a_file_that_fails_halfway_changes_nothing(prefix):
    path = write(prefix, {"a": np.float32([1]), "b": np.float64([1])})
    with tf.Graph().as_default():
        a = zeros("a", [1], tf.float16)
        zeros("b", [1], tf.float16)
        meta = saver().export_meta_graph()
    with tf.Graph().as_default(), tf.Session() as session:
        imported = tf.train.import_meta_graph(meta)  # without the builder nothing is checked before the run
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="tensor_name = b"):
            imported.restore(session, path)
        assert session.run(a.name) == 0


@pytest.mark.parametrize("target", ["variable", "name", "scope", "parts"])
def test_init_from_checkpoint_casts(prefix, resource, target):
    value = np.arange(8, dtype=np.float32) / 3
    path = write(prefix, {"net/w": value})
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("new"):
            partitioner = tf.fixed_size_partitioner(2) if target == "parts" else None
            w = zeros("w", [8], tf.float16, resource, partitioner=partitioner)
        assignment = {"variable": {"net/w": w}, "name": {"net/w": "new/w"}, "scope": {"net/": "new/"},
                      "parts": {"net/w": target == "parts" and list(w)}}[target]
        npu_shim.init_from_checkpoint(path, assignment)
        session.run(tf.global_variables_initializer())
        assert np.array_equal(session.run(tf.convert_to_tensor(w)), value.astype(np.float16))


@pytest.mark.parametrize("stored", [1, 2, 3, None])
@pytest.mark.parametrize("wanted", [2, 4, None])
def test_init_from_checkpoint_takes_parts_of_float16(prefix, resource, stored, wanted):
    value = np.arange(8, dtype=np.float16).reshape(4, 2) / 3
    divided = lambda parts: parts and tf.fixed_size_partitioner(parts)  # noqa: E731
    with tf.Graph().as_default(), tf.Session() as session:
        part = lambda shape, dtype, partition_info: tf.slice(value, partition_info.var_offset, shape)  # noqa: E731
        arguments = {"initializer": part, "shape": [4, 2]} if stored else {"initializer": value}
        tf.get_variable("w", partitioner=divided(stored), dtype=tf.float16, **arguments)
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, prefix, write_meta_graph=False)
    for dtype in (tf.float16, tf.float32):
        with tf.Graph().as_default(), tf.Session() as session:
            w = zeros("w", [4, 2], dtype, resource, partitioner=divided(wanted))
            npu_shim.init_from_checkpoint(path, {"w": list(w) if wanted else w})
            session.run(tf.global_variables_initializer())
            assert same(session.run(tf.convert_to_tensor(w)), value.astype(dtype.as_numpy_dtype))


def test_init_from_checkpoint_names_what_cannot_be_cast(prefix):
    path = write(prefix, {"w": np.int32([1])})
    with tf.Graph().as_default():
        zeros("w", [1], tf.float16)
        with pytest.raises(npu_shim.ConfigError, match=r"'w' is int32 .* float16"):
            npu_shim.init_from_checkpoint(path, {"w": "w"})


def test_warm_start_casts(prefix):
    path = write(prefix, {"w": VALUES, "b": np.float32([2])})
    with tf.Graph().as_default(), tf.Session() as session:
        w, b = zeros("w", VALUES.shape, tf.bfloat16), zeros("b", [1], tf.float32)
        npu_shim.warm_start(path, vars_to_warm_start=".*")
        session.run(tf.global_variables_initializer())
        assert same(session.run(w), VALUES.astype(NUMPY[tf.bfloat16]))
        assert session.run(b) == 2


def test_monitored_sessions_resume_in_float16_from_float32(tmp_path):
    def steps(dtype, until):
        with tf.Graph().as_default():
            w = zeros("w", [2], dtype)
            step = tf.train.get_or_create_global_step()
            train = tf.group(tf.assign_add(w, tf.ones([2], dtype)), tf.assign_add(step, 1))
            scaffold = tf.train.Scaffold(saver=tf.train.Saver(sharded=True, builder=CastingSaverBuilder()))
            with tf.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), scaffold=scaffold, save_checkpoint_steps=1, log_step_count_steps=None
            ) as session:
                while session.run(step) < until:
                    session.run(train)
                return session.run(w).tolist()

    assert steps(tf.float32, 3) == [3, 3]
    assert steps(tf.float16, 5) == [5, 5]
    assert steps(tf.float16, 6) == [6, 6]
    assert steps(tf.float32, 7) == [7, 7]


def test_estimator_resumes_and_warm_starts(tmp_path):
    estimator = pytest.importorskip("tensorflow_estimator") and tf.estimator

    def model_fn(features, labels, mode, params):
        w = zeros("w", [1], params["dtype"])
        loss = tf.cast(tf.reduce_sum(w), tf.float32) + tf.reduce_sum(features["x"])
        step = tf.train.get_or_create_global_step()
        train = tf.group(tf.assign_add(w, tf.ones([1], params["dtype"])), tf.assign_add(step, 1))
        scaffold = tf.train.Scaffold(saver=tf.train.Saver(sharded=True, builder=CastingSaverBuilder()))
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train, scaffold=scaffold)

    def inputs():
        return tf.data.Dataset.from_tensors({"x": np.float32([1])}).repeat()

    def make(folder, dtype, **options):
        return estimator.Estimator(model_fn, str(folder), params={"dtype": dtype}, **options)

    make(tmp_path / "a", tf.float32).train(inputs, max_steps=2)
    resumed = make(tmp_path / "a", tf.float16)
    resumed.train(inputs, max_steps=5)
    assert resumed.get_variable_value("w") == 5
    assert resumed.get_variable_value("w").dtype == np.float16
    warm = make(tmp_path / "b", tf.float32, warm_start_from=str(tmp_path / "a"))
    with npu_shim.casting_initializers():
        warm.train(inputs, max_steps=1)
    assert warm.get_variable_value("w") == 6


def test_saver_options_survive(prefix):
    with tf.Graph().as_default(), tf.Session() as session:
        zeros("w", [1], tf.float16)
        own = saver(max_to_keep=2)
        session.run(tf.global_variables_initializer())
        paths = [own.save(session, prefix, global_step=i) for i in range(3)]
        assert own.last_checkpoints == paths[1:]
        assert not tf.train.checkpoint_exists(paths[0])
        with pytest.raises(ValueError, match="not a valid checkpoint"):
            own.restore(session, prefix + "-nothing")
        with pytest.raises(ValueError, match="None"):
            own.restore(session, None)
