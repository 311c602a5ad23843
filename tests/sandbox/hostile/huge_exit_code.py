# verdict: failed
import sys


def solve(x):
    sys.exit(10**30)


if __name__ == "__main__":
    solve(0)
