#!/usr/bin/env bash
# Measures training steps on 1, 2, 4, … ranks at several batch sizes, and draws time per epoch over batch size.
#
#     scripts/scaling.sh SETTINGS [RANKS [OPTION ...]]             RANKS: "1 2" by default
#
# Options are those of dingo-spmd bench; by default --sweep-batch 64,128,256,512. Writes scaling.csv and scaling.svg into the
# present folder (SCALING=name: name.csv and name.svg); rows are appended to a table that is there. The cores of the machine are
# shared out over the ranks.
set -euo pipefail
settings=${1:?settings file}
ranks=${2:-1 2}
shift
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- --sweep-batch 64,128,256,512
root=$(cd "$(dirname "$0")/.." && pwd)
name=${SCALING:-scaling}
for number in $ranks; do
    "$root/scripts/mpirun.sh" "$number" "$root/target/release/dingo-spmd" bench "$settings" --csv "$name.csv" "$@"
done
"$root/target/release/dingo-spmd" bench-plot "$name.csv" --output "$name.svg"
