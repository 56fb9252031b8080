"""The files of TensorFlow 1.15's source tree, out of a git directory, in a folder where they can run."""

import pathlib
import subprocess

ROOT = "org_tensorflow"  # what the files call the tree
# what the files read, and helpers beside them that no wheel has; none of these is a test
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
    """The tree at HEAD of a git directory; files are written to `folder` when they are first asked for."""

    def __init__(self, git, folder):
        self._git = git
        self.folder = pathlib.Path(folder).resolve() / ROOT
        self.commit = self._output("rev-parse", "HEAD").decode().strip()

    def blobs(self, paths):
        """{path: the hash of its content} of files of the tree."""
        listed = self._output("ls-tree", "-r", "HEAD", *paths).decode().splitlines()
        return {path: about.split()[2] for about, _, path in (line.partition("\t") for line in listed)}

    def write(self, paths):
        """Writes the files, and what they read; raises CalledProcessError where the tree has one of them not."""
        wanted = [path for path in (*paths, *DATA, *HELPERS) if not (self.folder / path).exists()]
        if wanted:
            self.folder.mkdir(parents=True, exist_ok=True)
            packed = self._output("archive", "HEAD", *wanted)
            subprocess.run(["tar", "x", "-C", str(self.folder)], input=packed, check=True)

    def _output(self, *words):
        return subprocess.run(["git", "--git-dir", self._git, *words], capture_output=True, check=True).stdout
