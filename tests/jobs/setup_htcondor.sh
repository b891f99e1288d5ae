#!/usr/bin/env bash
# A python with HTCondor's own parser of submission files:  HTCONDOR_PYTHON=$(tests/jobs/setup_htcondor.sh FOLDER)
# Of its bindings this is the last series that also makes jobs of a file, as condor_submit does, without a pool.
set -euo pipefail
folder=$1
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
"$folder/bin/python" -c 'import htcondor' 2> /dev/null ||
    "$folder/bin/python" -m pip install -q --disable-pip-version-check 'htcondor==24.0.*' >&2
echo "$folder/bin/python"
