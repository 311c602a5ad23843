"""``python -m atgrpo``."""

import os
import sys

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read when torch is first imported

from atgrpo.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
