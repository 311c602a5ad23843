# verdict: any
import os
import time


def solve(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)


if __name__ == "__main__":
    solve(0)
