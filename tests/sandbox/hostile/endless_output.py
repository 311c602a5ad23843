# verdict: output
def solve(x):
    while True:
        print("y" * 1_000_000)


if __name__ == "__main__":
    solve(0)
