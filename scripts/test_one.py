"""Runs the tests on the environment of this interpreter: what `scripts/test` does behind lint and types."""

import subprocess
import sys

import test_environment


def main(arguments):
    """Runs pytest with `arguments` in an environment of its own and returns its status."""
    avx2 = "--avx2" in arguments
    arguments = [word for word in arguments if word != "--avx2"]
    with test_environment.own_home() as home:
        env = {**home, **dict(test_environment.AVX2 if avx2 else ())}
        told = ["-q", "--durations=12", *test_environment.pytest_arguments(arguments), *arguments]
        print("pytest " + " ".join(told), flush=True)
        return subprocess.call([sys.executable, "-m", "pytest", *told], env=env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
