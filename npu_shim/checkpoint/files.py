"""Checkpoint files: reads one tensor at a time, and writes so that a prefix is complete or absent.

Sources: TensorFlow 1.15.5 and 2.15.1 (SaveV2, MergeV2Checkpoints; a prefix exists when its `.index` does).
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import hashlib
import os
import re
import shutil
import socket
from typing import Any, Iterable

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.checkpoint import index
from npu_shim.checkpoint.plan import TensorInfo
from npu_shim.rewriter.errors import ConfigError

LISTING = "checkpoint"  # the file that names a folder's checkpoints
OLD = "old"  # the folder, in a working folder, of the files that are replaced
_in_use = set()  # this process's own working folders
GROUP = 32 << 20  # bytes: small tensors share a data file of about this size, each larger one has its own


def find(path: str) -> str:
    """Returns the prefix of the checkpoint that `path` names: a prefix, or a folder, of which the latest is used.

    Raises:
        ConfigError: there is no checkpoint.
    """
    path = str(path)
    if os.path.isdir(path):
        latest = tf.train.latest_checkpoint(path)
        if latest is None:
            raise ConfigError("the folder '%s' has no checkpoint" % path)
        return latest
    if os.path.basename(path) == LISTING and os.path.isfile(path):
        folder = os.path.dirname(path) or "."
        raise ConfigError("'%s' is the list of a folder's checkpoints (did you mean '%s'?)" % (path, folder))
    check_is_no_part(path)
    if tf.train.checkpoint_exists(path):
        return path
    raise ConfigError("there is no checkpoint '%s'" % path)


def check_is_no_part(path: str) -> None:
    """Raises ConfigError if `path` is one of the files of a checkpoint, whose prefix is meant."""
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if prefix != path and tf.train.checkpoint_exists(prefix):
        raise ConfigError("'%s' is one file of a checkpoint; give its prefix (did you mean '%s'?)" % (path, prefix))


class Reader:
    """The tensors of one checkpoint, V1 or V2, sharded or not; partitioned variables are read as one tensor.

    Attributes:
        prefix: str.
        slices: dict of name to the parts of a partitioned tensor, see `index.slices`.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        with _damage_as_os_error(prefix):
            self.slices = index.slices(prefix)
            self._reader = tf.train.NewCheckpointReader(prefix)
        self._since_release = 0

    def tensors(self) -> dict[str, TensorInfo]:
        """Returns dict of name to TensorInfo."""
        with _damage_as_os_error(self.prefix):
            shapes = self._reader.get_variable_to_shape_map()
            dtypes = self._reader.get_variable_to_dtype_map()
            return {name: TensorInfo(dtypes[name].name, tuple(shape)) for name, shape in shapes.items()}

    def read(self, name: str, dtype: str) -> np.ndarray:
        """Returns the tensor as a numpy array; bfloat16 as its bits, uint16; strings as an object array of bytes."""
        if self._since_release > GROUP:
            _release_freed_memory()
            self._since_release = 0
        with _damage_as_os_error(self.prefix):
            if dtype == "float16" and name in self.slices:
                return self._joined(name)
            value = self._whole(name, dtype)
        # A scalar string arrives as bytes; a numpy array of bytes would lose its trailing zeros.
        value = np.asarray(value, object if isinstance(value, bytes) else None)
        self._since_release += value.nbytes
        return value.view(np.uint16) if dtype == "bfloat16" else value

    def _joined(self, name):
        """Joins the parts of a float16 tensor; TensorFlow can only read each part as it is stored."""
        whole = np.empty(self._reader.get_variable_to_shape_map()[name], np.float16)
        for bounds in self.slices[name]:
            whole[index.region(*bounds)] = self._restored(name, np.float16, index.spec(whole.shape, bounds))
        return whole

    def _whole(self, name, dtype):
        try:
            return self._reader.get_tensor(name)
        except tf.errors.UnimplementedError:  # of a V1 checkpoint, TensorFlow's ops only read what is partitioned
            return self._restored(name, dtype)

    def _restored(self, name, dtype, part=""):
        with tf.Graph().as_default(), _session() as session:
            (value,) = session.run(tf.raw_ops.RestoreV2(
                prefix=self.prefix, tensor_names=[name], shape_and_slices=[part], dtypes=[tf.as_dtype(dtype)]))
        return value


@contextlib.contextmanager
def _damage_as_os_error(prefix):
    """Scope in which any error of a reader on a damaged file becomes an OSError that names the checkpoint."""
    try:
        yield
    except (OSError, tf.errors.OpError):
        raise
    except Exception as error:  # any type: TensorFlow and protobuf do not check all bytes of a file
        text = str(error).split("\n")[0]
        what = "has what TensorFlow cannot read" if text.rstrip(".").endswith("not supported") else "is damaged"
        raise OSError("npu_shim: '%s' %s: %s: %s" % (prefix, what, type(error).__name__, text)) from error


def checksum(array: np.ndarray) -> str:
    """Returns the SHA-256 of an array's bytes, in hexadecimal; of strings with their lengths."""
    digest = hashlib.sha256()
    if array.dtype == object:
        for text in array.reshape(-1):
            digest.update(b"%d:" % len(text) + bytes(text))
    else:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


class Writer:
    """Writes a V2 checkpoint into a folder of its own beside the target, which `publish` then moves into place.

    Holds at most GROUP bytes of small tensors, or one large one.
    """

    def __init__(self, prefix: str) -> None:
        self.target = prefix
        self.folder = _working_folder(prefix, os.getpid())
        self.prefix = os.path.join(self.folder, os.path.basename(prefix))
        self._group, self._bytes, self._shards = [], 0, []
        os.makedirs(os.path.join(self.folder, "parts"))
        os.makedirs(os.path.join(self.folder, OLD))
        _in_use.add(self.folder)

    def add(self, name: str, array: np.ndarray, dtype: str, slices: Iterable[Any] = ()) -> None:
        """Adds one tensor.

        Args:
            name: str.
            array: as `Reader.read` returns it.
            dtype: str.
            slices: the parts to store it in, see `index.slices`; none stores it whole.
        """
        if self._group and self._bytes + array.nbytes > GROUP:
            self._flush()
        for bounds in slices:
            self._group.append((name, array[index.region(*bounds)], dtype, index.spec(array.shape, bounds)))
        if not slices:
            self._group.append((name, array, dtype, ""))
        self._bytes += array.nbytes

    def finish(self) -> None:
        """Joins the parts to one checkpoint at `self.prefix`, still in the working folder, and syncs it to disk."""
        self._flush()
        with tf.Graph().as_default(), _session() as session:
            session.run(tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=self._shards, destination_prefix=self.prefix, delete_old_dirs=True))
        for path in _files(self.prefix):
            sync(path)

    def publish(self, manifest: str) -> None:
        """Moves everything to the target, the index last; from then on the target exists.

        Args:
            manifest: str, what `<target>.manifest.json` will hold.
        """
        written = os.path.join(self.folder, "manifest")
        with open(written, "w") as file:
            file.write(manifest)
        sync(written)
        # from here to the end an overwritten target is absent, never mixed; the old index is moved first
        old = [*reversed(_files(self.target)), *glob.glob(glob.escape(self.target) + ".manifest.json")]
        moves = [(path, os.path.join(self.folder, OLD, os.path.basename(path))) for path in old]
        data = sorted(glob.glob(glob.escape(self.prefix) + ".data-*"))
        moves += [(path, self.target + path[len(self.prefix):]) for path in data]
        moves += [(written, self.target + ".manifest.json"), (self.prefix + ".index", self.target + ".index")]
        done = []
        try:
            for source, destination in moves:
                if source.endswith(".index"):
                    sync(os.path.dirname(self.target) or ".")
                os.rename(source, destination)
                done.append((source, destination))
        except BaseException:  # also after an interrupt the old files come back
            for source, destination in reversed(done):
                os.rename(destination, source)
            raise
        sync(os.path.dirname(self.target) or ".")

    def close(self) -> None:
        """Removes the working folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        _in_use.discard(self.folder)

    def _flush(self):
        if not self._group:
            return
        shard = os.path.join(self.folder, "parts", "part-%05d" % len(self._shards))
        with tf.Graph().as_default(), _session() as session:
            names, specs, tensors, feeds = [], [], [], {}
            for name, array, dtype, spec in self._group:
                fed = tf.placeholder(tf.uint16 if dtype == "bfloat16" else dtype, array.shape)
                feeds[fed] = array
                names.append(name)
                specs.append(spec)
                tensors.append(tf.bitcast(fed, tf.bfloat16) if dtype == "bfloat16" else fed)
            session.run(tf.raw_ops.SaveV2(
                prefix=shard, tensor_names=names, shape_and_slices=specs, tensors=tensors), feeds)
        self._shards.append(shard)
        self._group, self._bytes = [], 0


def remove_leftovers(prefix: str) -> None:
    """Removes the working folders that killed processes of this machine have left beside `prefix`.

    A process killed while it replaced `prefix` has the old files in its folder; they are put back.
    """
    for path in glob.glob(_working_folder(glob.escape(prefix), "*")):
        pid = path.rpartition("-")[2]
        if pid.isdigit() and not _works_on(path, int(pid)):
            if os.path.isdir(path):
                _put_back(os.path.join(path, OLD), prefix)
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.remove(path)


def _put_back(folder, prefix):
    if not os.path.exists(prefix + ".index"):
        index = os.path.join(folder, os.path.basename(prefix) + ".index")
        paths = glob.glob(os.path.join(glob.escape(folder), "*"))
        for path in sorted(paths, key=lambda path: (path == index, path)):
            os.rename(path, os.path.join(os.path.dirname(prefix), os.path.basename(path)))


def update_state(prefix: str, mode: str) -> None:
    """Names `prefix` in the `checkpoint` file beside it, atomically and with relative paths.

    Args:
        prefix: str.
        mode: "append" keeps the checkpoints that are listed, "replace" lists this one only; both make it the latest.
    """
    folder, name = os.path.split(os.path.abspath(prefix))
    old = tf.train.get_checkpoint_state(folder)
    state = tf.train.generate_checkpoint_state_proto(folder, name)
    if old is not None and mode == "append":
        stamps = dict(zip(old.all_model_checkpoint_paths, old.all_model_checkpoint_timestamps))
        paths = {os.path.relpath(path, folder): stamps.get(path) for path in old.all_model_checkpoint_paths}
        paths.pop(name, None)
        state.all_model_checkpoint_paths[:] = [*paths, name]
        if stamps:
            written = os.path.getmtime(prefix + ".index")
            state.all_model_checkpoint_timestamps[:] = [*paths.values(), written]
        state.last_preserved_timestamp = old.last_preserved_timestamp
    listing = os.path.join(folder, LISTING)
    remove_leftovers(listing)
    temporary = _working_folder(listing, os.getpid())
    try:
        with open(temporary, "w") as file:
            file.write(str(state))
        sync(temporary)
        os.rename(temporary, listing)
    except OSError:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise
    sync(folder)


def sync(path: str) -> None:
    """Waits until the file or the folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _working_folder(prefix, pid):
    folder, name = os.path.split(prefix)
    return os.path.join(folder, ".%s.migrating-%s-%s" % (name, socket.gethostname(), pid))


def is_there(prefix: str) -> bool:
    """Returns whether a checkpoint, V2 or V1, has this prefix."""
    return any(not path.startswith(prefix + ".data-") for path in _files(prefix))


def _files(prefix):
    """The files of a checkpoint, sorted: of V2 the index is the last; V1 has one named as the prefix, or shards."""
    endings = (".data-*", ".index", "-%s-of-%s" % (5 * "[0-9]", 5 * "[0-9]"))
    paths = [path for ending in endings for path in glob.glob(glob.escape(prefix) + ending)]
    return sorted([*paths, prefix] if os.path.isfile(prefix) else paths)


def _release_freed_memory():
    """Returns freed memory to the system; glibc keeps hundreds of MiB when several threads read."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _works_on(folder, pid):
    """Whether the process that a working folder is named after still uses it."""
    if pid == os.getpid():  # a restarted container has the same host name and process ids
        return folder in _in_use
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True


def _session():
    return tf.Session(config=tf.ConfigProto(device_count={"GPU": 0}))
