# verdict: memory
import os
import time


def solve(x):
    for _ in range(12):
        if os.fork() == 0:
            held = b"1" * 60_000_000
            time.sleep(60)
            print(len(held))
    time.sleep(60)


if __name__ == "__main__":
    solve(0)
