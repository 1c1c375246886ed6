"""`python -m permits`: the version. The command `permits` is a program of its own."""

import sys

from . import __version__

ADVICE = "`cargo install --locked --path crates/permits-cli` in the repository installs the command `permits`"

if sys.argv[1:] in ([], ["--version"], ["-V"]):
    print(f"permits {__version__}, the Python package; {ADVICE}")
else:
    sys.exit(f"python -m permits prints the version, and runs nothing; {ADVICE}")
