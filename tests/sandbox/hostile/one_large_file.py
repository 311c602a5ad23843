# verdict: failed
def solve(x):
    with open("large", "wb") as file:
        for _ in range(1000):
            file.write(b"1" * 1_000_000)
    print("escaped: 1 GB written")


if __name__ == "__main__":
    solve(0)
