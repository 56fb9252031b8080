"""The files of a source tree, TensorFlow 1.15's or a library's, out of a git directory, where they can run."""

import pathlib
import subprocess

# what TensorFlow's files read, and helpers beside them that no wheel has; none of these is a test
DATA = (
    "tensorflow/cc/saved_model/testdata",
    "tensorflow/contrib/image/python/kernel_tests/test_data",
    "tensorflow/contrib/predictor/test_export_dir",
    "tensorflow/core/lib/bmp/testdata",
    "tensorflow/core/lib/gif/testdata",
    "tensorflow/core/lib/jpeg/testdata",
    "tensorflow/core/lib/png/testdata",
    "tensorflow/core/lib/psnr/testdata",
    "tensorflow/core/lib/ssim/testdata",
    "tensorflow/python/feature_column/testdata",
)
HELPERS = (
    "tensorflow/contrib/graph_editor/tests/match.py",
    "tensorflow/contrib/predictor/testing_common.py",
    "tensorflow/contrib/slim/python/slim/data/test_utils.py",
    "tensorflow/contrib/testing/python/framework/fake_summary_writer.py",
    "tensorflow/contrib/testing/python/framework/util_test.py",
    "tensorflow/python/ops/image_grad_test_base.py",
    "tensorflow/python/ops/matmul_benchmark.py",
)


class Tree:
    """The tree of a suite in a git directory; files are written to `folder` when they are first asked for."""

    def __init__(self, git, folder, suite):
        self._git, self._suite = git, suite
        self.folder = pathlib.Path(folder).resolve() / suite.root

    def blobs(self, paths):
        """{path: the hash of its content} of files of the tree."""
        listed = self._output("ls-tree", "-r", self._suite.at, *paths).decode().splitlines()
        return {path: about.split()[2] for about, _, path in (line.partition("\t") for line in listed)}

    def write(self, paths):
        """Writes the files, and what they read; raises CalledProcessError where the tree has one of them not."""
        wanted = [path for path in (*paths, *self._suite.data) if not (self.folder / path).exists()]
        if wanted:
            self.folder.mkdir(parents=True, exist_ok=True)
            packed = self._output("archive", self._suite.at, *wanted)
            subprocess.run(["tar", "x", "-C", str(self.folder)], input=packed, check=True)

    def _output(self, *words):
        return subprocess.run(["git", "--git-dir", self._git, *words], capture_output=True, check=True).stdout
