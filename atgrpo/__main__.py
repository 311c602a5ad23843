"""``python -m atgrpo``."""

import sys

from atgrpo.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
