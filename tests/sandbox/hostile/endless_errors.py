# verdict: output
import sys


def solve(x):
    while True:
        sys.stderr.write("y" * 1_000_000)


if __name__ == "__main__":
    solve(0)
