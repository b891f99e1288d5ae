"""What dingo_ls prints of each file, one after the other."""

import sys

from dingo.gw.ls_cli import ls

for path in sys.argv[1:]:
    print("=== the next file ===", flush=True)
    sys.argv = ["dingo_ls", path]
    ls()
