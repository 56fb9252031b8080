"""Runs one migration in a child process for each line of standard input, so that TensorFlow is imported once.

A line is a JSON list: the bytes of a group, then the command's arguments. It answers with the pid of the child, and
after an empty line, when the child has ended, with its status: an exit code, or minus the signal. Until then the
child's pid stays its own.
"""

import json
import os
import sys

import tensorflow.compat.v1  # noqa: F401  (before the forks; no session may exist by then)

from npu_shim.checkpoint import command, files, migrate  # noqa: F401


def main():
    for line in iter(sys.stdin.readline, ""):
        files.GROUP, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            with open(os.devnull, "w") as quiet:
                os.dup2(quiet.fileno(), 1)
                os._exit(command.main(arguments))
        print(child, flush=True)
        sys.stdin.readline()
        status = os.waitpid(child, 0)[1]
        print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)


if __name__ == "__main__":
    main()
