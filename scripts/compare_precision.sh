#!/bin/sh
# Trains the demo in single precision and in bf16 mixed precision, one after the other on the same ranks, and reports the last
# test loss and the time of each: scripts/compare_precision.sh [ranks]
set -eu
cd "$(dirname "$0")/.."
ranks=${1:-2}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

sed 's/^local:/local:\n  seed: 1/' settings/demo.yaml > "$folder/single.yaml"
sed 's/^    batch_size:.*/&\n    automatic_mixed_precision: true\n    amp_dtype: bf16/' "$folder/single.yaml" > "$folder/bf16.yaml"
for precision in single bf16; do
    scripts/mpirun.sh "$ranks" target/release/dingo-spmd "$folder/$precision.yaml" > "$folder/$precision.log" ||
        { tail -n 5 "$folder/$precision.log"; exit 1; }
    loss=$(tail -n 1 "$folder/$precision/history.txt" | cut -f 3)
    # The average time of a step, over each epoch, of the slowest rank.
    time=$(grep '^Train Epoch' "$folder/$precision.log" | sed 's/.*Time Network: [^(]*(\([^)]*\)).*/\1/' |
        awk '{ sum += $1 } END { printf "%.4f", sum / NR }')
    echo "$precision: test loss $loss, network time per step $time s"
done
