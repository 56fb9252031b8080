"""A script that runs the test file which its one argument names, by pytest."""

import os
import sys

import pytest

sys.exit(pytest.main(["-q", "-c", os.devnull, "--rootdir", os.getcwd(), "-p", "no:cacheprovider", sys.argv[1]]))
