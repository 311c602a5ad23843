# verdict: time
def solve(x):
    while True:
        pass


if __name__ == "__main__":
    solve(0)
