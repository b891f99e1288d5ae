#!/usr/bin/env bash
# Writes the dataset of settings/bench.yaml, in Dingo's format, where it is not there yet: waveforms of inspirals, SVD-compressed
# to 200 of 8,033 bins, and a noise spectrum for two detectors. Good enough for speed, not for science.
#
#     scripts/make_bench_dataset.sh [FOLDER [OPTION ...]]          default: settings/bench_data, 8,000 samples
#
# Options are those of dingo-spmd bench-dataset, such as --samples 80000.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-settings/bench_data}
[ $# -eq 0 ] || shift
if [ $# -eq 0 ] && [ -e "$folder/waveform_dataset.hdf5" ] && [ -e "$folder/asds_fiducial.hdf5" ]; then
    echo "The dataset is in $folder already."
    exit 0
fi
[ -x target/release/dingo-spmd ] || make build
exec target/release/dingo-spmd bench-dataset "$folder" "$@"
