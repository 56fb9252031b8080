"""tf.contrib.training's batches of segments of sequences, with a state that goes from each to the next (as of 1.15.5).

Examples are cut into segments of `num_unroll` times, each under a key of its own. A Barrier gives a batch of segments
whose parts are all there: a segment's state comes with `save_state` of the one before.
"""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.compat.names import names

# what a segment has besides its context, its part of the sequences and its states
ABOUT = {
    "length": tf.int32, "total_length": tf.int32, "next_key": tf.string, "sequence": tf.int32,
    "sequence_count": tf.int32,
}  # fmt: skip
KINDS = ("sequence", "context", "state")


class NextQueuedSequenceBatch:
    """A batch of segments; what it has are tensors, and `save_state` must run whenever they do.

    Args:
        state_saver: SequenceQueueingStateSaver.
    """

    def __init__(self, state_saver: Any) -> None:
        self._saver = state_saver
        self._taken = state_saver._take()

    total_length = property(lambda self: self._taken["total_length"], doc="int32 [batch], of the whole sequences.")
    length = property(lambda self: self._taken["length"], doc="int32 [batch], of the segments, without padding.")
    batch_size = property(lambda self: tf.shape(self.length)[0], doc="int32, smaller at the end of the inputs.")
    insertion_index = property(lambda self: self._taken["index"], doc="int64 [batch], in the order of the examples.")
    key = property(lambda self: self._taken["key"], doc="string [batch], '00000_of_00003:KEY'.")
    next_key = property(lambda self: self._taken["next_key"], doc="string [batch], 'STOP:KEY' in the end.")
    sequence = property(lambda self: self._taken["sequence"], doc="int32 [batch], which segment it is.")
    sequence_count = property(lambda self: self._taken["sequence_count"], doc="int32 [batch], of how many.")
    context = property(lambda self: self._taken["contexts"], doc="dict of name -> [batch, ...].")
    sequences = property(lambda self: self._taken["sequences"], doc="dict of name -> [batch, num_unroll, ...].")

    def state(self, state_name: str) -> tf.Tensor:
        """The state [batch, ...] of that name; KeyError if there is none."""
        return self._taken["states"][state_name]

    def save_state(self, state_name: str, value: Any, name: str | None = None) -> tf.Operation:
        """The op that keeps the state that the next segments of these sequences will have.

        Args:
            state_name: str.
            value: [batch, ...], like `state(state_name)`.
            name: of its scope.

        Raises:
            KeyError: there is no such state.
            ValueError: the shape is another.
        """
        if state_name not in self._taken["states"]:
            raise KeyError("state was not declared: %s" % state_name)
        return self._saver._save(self, state_name, value, name)


class SequenceQueueingStateSaver:
    """Cuts sequences into segments, and keeps a state for each.

    Args:
        batch_size: int or scalar tensor.
        num_unroll: int, times in a segment.
        input_length: int32 scalar, times without padding.
        input_key: string scalar, another for each example that is under way.
        input_sequences: dict of name -> [time, ...]; `time` is a multiple of `num_unroll`, other sizes are known.
        input_context: dict of name -> tensor of known shape, which every segment has.
        initial_states: dict of name -> tensor of known shape, the state of an example's first segment.
        capacity: int, how many examples may be under way, any number by default.
        allow_small_batch: whether there may be fewer than `batch_size` when no more examples come.
        name: of the scope.

    Raises:
        TypeError: what should be a dict is none, a name is no str, or a dtype is another.
        ValueError: there is no state or no sequence, a shape is not known, a name has a colon.
        InvalidArgumentError: when it runs: lengths do not fit.
    """

    def __init__(
        self, batch_size: Any, num_unroll: int, input_length: Any, input_key: Any, input_sequences: Any,
        input_context: Any, initial_states: Any, capacity: int | None = None, allow_small_batch: bool = False,
        name: str | None = None,
    ) -> None:  # fmt: skip
        self.batch_size, self.num_unroll = batch_size, num_unroll
        checks = _capacity_checks(capacity, batch_size)
        # its tokens are the examples under way
        self._tokens = tf.FIFOQueue(-1 if capacity is None else capacity, [tf.int32], shapes=[[]])
        self._allow_small_batch = allow_small_batch
        with tf.device("/cpu:0"), tf.name_scope(name, "InputQueueingStateSaver") as scope:
            self.name = self._scope = scope
            self._parts = {
                kind: _tensors(kind, given)
                for kind, given in zip(KINDS, (input_sequences, input_context, initial_states))
            }
            self._key, self._length = _scalar(input_key, tf.string, "key"), _scalar(input_length, tf.int32, "length")
            self._times = tf.shape(next(iter(self._parts["sequence"].values())))[0]
            checks += _length_checks(self._parts["sequence"], self._times, self._length, num_unroll)
            with tf.control_dependencies(checks):
                self._times = tf.identity(self._times)
            types = [(label, dtype, []) for label, dtype in ABOUT.items()]
            for kind in KINDS:
                for part, tensor in self._parts[kind].items():
                    shape = tensor.shape.as_list()
                    shape = [num_unroll, *shape[1:]] if kind == "sequence" else shape
                    types.append((kind + ":" + part, tensor.dtype, shape))
            self._places = {label: place for place, (label, _, _) in enumerate(types)}
            make = names.load("tensorflow.python.ops.data_flow_ops.Barrier")
            self.barrier = make([dtype for _, dtype, _ in types], [shape for _, _, shape in types])
        self._prefetch_op: Any = None
        self._next_batch: Any = None

    @property
    def prefetch_op(self) -> tf.Operation:
        """Takes one example in; for a QueueRunner."""
        if self._prefetch_op is None:
            with tf.name_scope(None), tf.name_scope(self._scope), tf.device("/cpu:0"):
                self._prefetch_op = self._prefetch()
        return self._prefetch_op

    @property
    def next_batch(self) -> NextQueuedSequenceBatch:
        """The batch, of examples that `prefetch_op` has taken in."""
        assert self.prefetch_op is not None
        if self._next_batch is None:
            with tf.name_scope(None), tf.name_scope(self._scope), tf.device("/cpu:0"):
                self._next_batch = NextQueuedSequenceBatch(self)
        return self._next_batch

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> tf.Operation:
        """The op that says that no more examples come."""
        with tf.name_scope(name, "SQSSClose") as scope:
            closing = [part.close(cancel_pending_enqueues) for part in (self.barrier, self._tokens)]
            return tf.group(*closing, name=scope)

    def _insert(self, label: str, keys: Any, values: Any) -> tf.Operation:
        return self.barrier.insert_many(self._places[label], keys, values)

    def _prefetch(self) -> tf.Operation:
        """Puts the segments of an example into the barrier, and the state of its first."""
        count = self._times // self.num_unroll
        sequence = tf.range(count)
        keys = tf.strings.join([_five(sequence), "_of_", _five(count), ":", self._key])
        about = {
            "length": tf.clip_by_value(self._length - self.num_unroll * sequence, 0, self.num_unroll),
            "total_length": tf.fill([count], self._length),
            "next_key": tf.concat([keys[1:], [tf.strings.join(["STOP:", self._key])]], 0),
            "sequence": sequence,
            "sequence_count": tf.fill([count], count),
        }
        # the first insertion says which index an example has: it brings all keys
        first = self._insert("sequence", keys, about.pop("sequence"))
        inserts = [first, *(self._insert(label, keys, value) for label, value in about.items())]
        for part, tensor in self._parts["sequence"].items():
            sizes = tf.stack([count, self.num_unroll, *tensor.shape.as_list()[1:]])
            inserts.append(self._insert("sequence:" + part, keys, tf.reshape(tensor, sizes)))
        for part, tensor in self._parts["context"].items():
            tiled = tf.tile(tensor[None], tf.stack([count] + [1] * tensor.shape.ndims))
            inserts.append(self._insert("context:" + part, keys, tiled))
        token = self._tokens.enqueue([0])
        with tf.control_dependencies([first, token]):
            for part, tensor in self._parts["state"].items():
                inserts.append(self._insert("state:" + part, keys[:1], tensor[None]))
        return tf.group(token, *inserts, name="StateSaverPrefetchGroup")

    def _take(self) -> dict[str, Any]:
        """What a batch of segments has, by names."""
        index, key, values = self.barrier.take_many(self.batch_size, self._allow_small_batch)
        taken = {label: values[self._places[label]] for label in ABOUT}
        done = taken["sequence"] + 1 >= taken["sequence_count"]
        freed = self._tokens.dequeue_many(tf.reduce_sum(tf.cast(done, tf.int32)))
        for kind in KINDS:
            taken[kind + "s"] = {part: values[self._places[kind + ":" + part]] for part in self._parts[kind]}
        # whoever uses a state lets the examples that are done go
        with tf.control_dependencies([freed]):
            taken["states"] = {part: tf.identity(value) for part, value in taken["states"].items()}
        return {**taken, "index": index, "key": key, "done": done}

    def _save(self, batch: NextQueuedSequenceBatch, part: str, value: Any, name: str | None) -> tf.Operation:
        with tf.name_scope(name, "InputQueueingStateSaver_SaveState", [value]), tf.device("/cpu:0"):
            before = batch.state(part)
            value = tf.convert_to_tensor(value, before.dtype)
            if not value.shape.is_compatible_with(before.shape):
                raise ValueError("Shape check failed for %s: expected %s, got %s" % (part, before.shape, value.shape))
            same = tf.debugging.assert_equal(tf.shape(before), tf.shape(value), message="Shape of state " + part)
            with tf.control_dependencies([same]):
                goes_on = tf.reshape(tf.where(tf.logical_not(batch._taken["done"])), [-1])
            return self._insert("state:" + part, tf.gather(batch.next_key, goes_on), tf.gather(value, goes_on))


def batch_sequences_with_states(
    input_key: Any, input_sequences: Any, input_context: Any, input_length: Any, initial_states: Any, num_unroll: int,
    batch_size: Any, num_threads: int = 3, capacity: int | None = 1000, allow_small_batch: bool = True,
    pad: bool = True, make_keys_unique: bool = False, make_keys_unique_seed: Any = None, name: str | None = None,
) -> NextQueuedSequenceBatch:  # fmt: skip
    """The batch of a SequenceQueueingStateSaver that queue runners feed.

    Args:
        input_key: as of SequenceQueueingStateSaver, like all that is not named here; contexts and sequences may be
            sparse.
        input_sequences: see there.
        input_context: see there.
        input_length: see there; what the sequences have if None, with `pad`.
        initial_states: see there.
        num_unroll: see there.
        batch_size: see there.
        num_threads: int, of the queue runner.
        capacity: see there.
        allow_small_batch: see there.
        pad: whether sequences are filled up to a multiple of `num_unroll`.
        make_keys_unique: whether a random number is appended to the keys.
        make_keys_unique_seed: its seed.
        name: of the scope.
    """
    with tf.name_scope(name, "batch_sequences_with_states"):
        if pad:
            length, input_sequences = _padded(input_sequences, num_unroll)
            input_length = length if input_length is None else input_length
        sparse = {"sequence": _sparse(input_sequences), "context": _sparse(input_context)}
        # a row of a sparse sequence, and a sparse context, as 3 strings
        rows = {name: _rows(value) for name, value in sparse["sequence"].items()}
        whole = {name: tf.io.serialize_sparse(value) for name, value in sparse["context"].items()}
        if make_keys_unique:
            number = tf.random_uniform([], 0, 100000000, tf.int32, seed=make_keys_unique_seed)
            input_key = tf.strings.join([input_key, tf.as_string(number)])
        saver = SequenceQueueingStateSaver(
            batch_size, num_unroll, input_length, input_key, {**input_sequences, **rows}, {**input_context, **whole},
            initial_states, capacity, allow_small_batch,
        )  # fmt: skip
        ready = tf.cast(saver.barrier.ready_size(), tf.float32)
        tf.summary.scalar("queue/%s/ready_segment_batches_" % saver.barrier.name, ready)
        over = (tf.errors.OutOfRangeError, tf.errors.CancelledError)
        enqueues = [saver.prefetch_op] * num_threads
        tf.train.add_queue_runner(tf.train.QueueRunner(saver, enqueues, queue_closed_exception_types=over))
        batch = saver.next_batch
        for part, value in sparse["sequence"].items():
            flat = tf.reshape(batch.sequences[part], [-1, 3])
            restored = tf.io.deserialize_many_sparse(flat, value.dtype, value.dense_shape.shape[0])
            shape = tf.concat([[-1, num_unroll], restored.dense_shape[1:]], 0)
            batch.sequences[part] = tf.sparse.reshape(restored, shape)
        for part, value in sparse["context"].items():
            batch.context[part] = tf.io.deserialize_many_sparse(
                batch.context[part], value.dtype, value.dense_shape.shape[0]
            )
        return batch


def _five(numbers):
    return tf.as_string(numbers, width=5, fill="0")


def _scalar(given, dtype, what):
    tensor = tf.convert_to_tensor(given, name=what)
    if tensor.dtype != dtype:
        raise TypeError("%s dtype must be %s, but received: %s" % (what, dtype.name, tensor.dtype.name))
    tensor.shape.assert_has_rank(0)
    return tensor


def _tensors(kind: str, given: Any) -> dict[str, tf.Tensor]:
    """Tensors of known shapes by sorted names; of sequences, the time may be open."""
    if not isinstance(given, dict):
        raise TypeError(
            "%s must be a dict of names and tensors, not %r"
            % ({"state": "initial_states"}.get(kind, "input_" + kind), given)
        )
    if not given and kind != "context":
        raise ValueError("there must be at least one %s" % kind)
    for name in given:
        if not isinstance(name, str):
            raise TypeError("%s name must be a string: %s" % (kind, name))
        if ":" in name:
            raise ValueError("%s name may not have a colon: '%s'" % (kind, name))
    tensors = {name: tf.convert_to_tensor(given[name], name="%s_%s" % (kind, name)) for name in sorted(given)}
    for name, tensor in tensors.items():
        if not tensor.shape[1 if kind == "sequence" else 0 :].is_fully_defined():
            raise ValueError("Shape for %s %s is not fully defined: %s" % (kind, name, tensor.shape))
    return tensors


def _capacity_checks(capacity, batch_size):
    if capacity is None:
        return []
    if isinstance(batch_size, tf.Tensor):
        return [
            tf.debugging.assert_greater_equal(capacity, tf.cast(batch_size, tf.int32), message="capacity < batch_size")
        ]
    if capacity < batch_size:
        raise ValueError("capacity %d needs to be >= batch_size %d" % (capacity, batch_size))
    return []


def _length_checks(sequences: Mapping[str, tf.Tensor], times: Any, length: Any, num_unroll: int) -> list[Any]:
    same = [
        tf.debugging.assert_equal(
            tf.shape(tensor)[0], times, message="Dimension 0 of tensor labeled sorted_sequences_%s" % name
        )
        for name, tensor in sequences.items()
    ]
    whole = tf.logical_and(tf.equal(times % num_unroll, 0), tf.not_equal(times, 0))
    problem = "should be a multiple of: %d, but saw value:" % num_unroll
    return [
        *same,
        tf.debugging.Assert(whole, [problem, times, "Consider setting pad=True."]),
        tf.debugging.assert_less_equal(length, times, message="Input length should be <= than length from sequences:"),
    ]


def _sparse(given: Any) -> dict[str, Any]:
    """The sparse tensors of a dict."""
    return {name: value for name, value in given.items() if isinstance(value, tf.SparseTensor)}


def _rows(value):
    """A sparse tensor [time, ...] as strings [time, 3]."""
    rows = tf.io.serialize_many_sparse(value)
    rows.set_shape([None, 3])
    return rows


def _padded(sequences: Any, num_unroll: int) -> tuple[Any, dict[str, Any]]:
    """(The times that there are, the sequences with zeros or "" up to a multiple of `num_unroll`)."""
    if not isinstance(num_unroll, int):
        raise ValueError("num_unroll must be an int, not %r" % (num_unroll,))
    if not isinstance(sequences, dict):
        raise TypeError("input_sequences must be a dict of names and tensors, not %r" % (sequences,))
    for name in sequences:
        if not isinstance(name, str):
            raise TypeError("input_sequences: a name must be a string, not %r" % (name,))
    if not sequences:
        return 0, {}
    sparse = _sparse(sequences)
    dense = {name: tf.convert_to_tensor(sequences[name]) for name in sorted(sequences) if name not in sparse}
    lengths = [tf.shape(value)[0] for value in dense.values()]
    if lengths:
        with tf.control_dependencies([_equal(other, lengths[0]) for other in lengths[1:]]):
            length = tf.identity(lengths[0])
    else:
        length = tf.reduce_max([tf.cast(value.dense_shape[0], tf.int32) for value in sparse.values()])
    total = -(-length // num_unroll) * num_unroll
    padded = {name: _filled(value, total) for name, value in dense.items()}
    for name, value in sparse.items():
        shape = tf.concat([[tf.cast(total, tf.int64)], value.dense_shape[1:]], 0)
        padded[name] = tf.SparseTensor(value.indices, value.values, shape)
    return length, padded


def _equal(length, other):
    return tf.debugging.assert_equal(length, other, message="All sequence lengths must match, but received lengths:")


def _filled(value, total):
    more = tf.concat([[total - tf.shape(value)[0]], tf.shape(value)[1:]], 0)
    return tf.concat([value, tf.fill(more, tf.constant("" if value.dtype == tf.string else 0, value.dtype))], 0)
