# verdict: time
import contextlib
import signal
import time


def solve(x):
    for number in range(1, 65):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    solve(0)
