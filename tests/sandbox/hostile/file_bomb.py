# verdict: failed
def solve(x):
    for number in range(1000):
        with open(f"file{number}", "wb") as file:
            file.write(b"1" * 1_000_000)
    print("escaped: 1 GB written")


if __name__ == "__main__":
    solve(0)
