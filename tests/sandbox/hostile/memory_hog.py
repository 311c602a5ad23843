# verdict: memory
def solve(x):
    held = []
    while True:
        held.append(b"1" * 50_000_000)


if __name__ == "__main__":
    solve(0)
