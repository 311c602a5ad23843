# verdict: time
import os
import time


def solve(x):
    os.closerange(0, 64)
    time.sleep(60)


if __name__ == "__main__":
    solve(0)
