# verdict: any
import sys

sys.setrecursionlimit(10**9)


def solve(x):
    return repr(nested(None))


def nested(inner):
    for _ in range(100_000):
        inner = [inner]
    return inner


if __name__ == "__main__":
    solve(0)
