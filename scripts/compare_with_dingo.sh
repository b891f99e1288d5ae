#!/usr/bin/env bash
# Trains the same settings with Dingo and with dingo-spmd, in turn on the same cores, and compares samples per second:
#
#     scripts/compare_with_dingo.sh [SETTINGS] [--epochs N] [--repeats N] [--cores N] [--only NAME,…]
#
# By default settings/bench.yaml, whose dataset is made where it is not there; the first stage alone is trained. The last line is
# `ratio R`: dingo-spmd over Dingo as shipped, first layer frozen, single precision. A comparison needs the machine to itself.
#
# Dingo 0.10.3 is installed into a folder of the user's cache (some 6 GB). DINGO_PYTHON=/path/to/python uses another
# environment, with dingo-gw==0.10.3 and torch==2.11.0.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf 'compare: %s\n' "$*" >&2; }

settings=settings/bench.yaml
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    settings=$1
    shift
fi
[ -e "$settings" ] || { say "there is no $settings"; exit 2; }
if [ ! -x target/release/dingo-spmd ]; then
    make build >&2
fi
if [ "$settings" = settings/bench.yaml ]; then
    scripts/make_bench_dataset.sh >&2
fi

python=${DINGO_PYTHON:-}
if [ -z "$python" ]; then
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/dingo-spmd/dingo-0.10.3
    python=$folder/bin/python3
    if [ ! -e "$folder/complete" ]; then
        say "installing dingo-gw 0.10.3 and torch 2.11.0 into $folder"
        python3 -m venv --clear "$folder"
        "$python" -m pip install -q --disable-pip-version-check "dingo-gw==0.10.3" "torch==2.11.0" torchvision >&2
        touch "$folder/complete"
    fi
fi
exec "$python" scripts/compare_with_dingo.py "$settings" "$@"
