# verdict: harmless
import os
import sys


def solve(x):
    folders = [
        "/",
        "/etc",
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/dev",
        "/dev/shm",
        "/var/tmp",
        "..",
        os.path.dirname(os.__file__),
    ]
    for folder in [*folders, os.path.dirname(os.__file__), sys.prefix, sys.prefix + "/lib"]:
        try:
            with open(f"{folder}/hostile", "w") as file:
                file.write("1")
            print("escaped: wrote into", folder)
        except OSError:
            pass


if __name__ == "__main__":
    solve(0)
