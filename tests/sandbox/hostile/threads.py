# verdict: time
import threading
import time


def wait():
    while True:
        time.sleep(1)


def solve(x):
    for _ in range(200):
        try:
            threading.Thread(target=wait).start()
        except RuntimeError:
            break
    else:
        print("escaped: 200 threads")
    wait()


if __name__ == "__main__":
    solve(0)
