#!/usr/bin/env bash
# `dingo-spmd submit slurm` on a real Slurm, set up on this machine by setup.sh:
#
#     tests/slurm/run.sh [srun|mpirun]         default: what the program chooses
#
# A run on two tasks that its time limit cuts twice ends with the history and the network of one that nobody cuts; a run that is
# cancelled ends with a checkpoint. Says SKIPPED where Slurm cannot be set up. Takes two minutes.
#
# Slurm looks at time limits every 30 seconds. With a limit of a minute and a signal 25 seconds ahead of it, the signal comes 5 to
# 35 seconds after a job's beginning. So that a fast machine has not finished by then, the ranks are made slow, by stopping them
# most of the time, until there have been two cuts.
set -euo pipefail
cd "$(dirname "$0")/../.."
launcher=${1:-}
program=$PWD/target/release/dingo-spmd
folder=$(mktemp -d)
export OMP_NUM_THREADS=1

say() { echo "slurm test: $*"; }
fail() {
    say "$*" >&2
    tail -n 15 "$folder"/*/slurm-*.out >&2 || true
    exit 1
}
clean_up() {
    if [ -n "${SLURM_CONF:-}" ]; then
        pkill -CONT -f "^$program .*--train-dir $folder/" || true
        scancel --quiet --user=root || true
        for _ in $(seq 40); do
            [ -n "$(squeue --noheader 2> /dev/null)" ] || break
            sleep 1
        done
    fi
    tests/slurm/setup.sh stop "$folder/slurm"
    rm -rf "$folder"
}
trap clean_up EXIT

status=0
setup=$(tests/slurm/setup.sh start "$folder/slurm" 2> "$folder/reason") || status=$?
if [ "$status" = 77 ]; then echo "SKIPPED: $(cat "$folder/reason")"; exit 0; fi
[ "$status" = 0 ] || { cat "$folder/reason" >&2; exit 1; }
export "${setup?}"

# The toy case, with enough epochs to be cut in.
make_train_dir() { # NAME
    mkdir "$folder/$1"
    sed -e "s|tests/cases/toy/||; s|: \(.*\)\.hdf5|: $PWD/tests/cases/toy/\1.hdf5|" \
        -e '0,/epochs: 2/s//epochs: 40/; 0,/epochs: 1$/s//epochs: 20/' \
        -e '/checkpoint_epochs:/d; /num_gpus:/d; /seed:/d' \
        -e "s/^local:/local:\n  seed: 1\n  num_gpus: 2\n  slurm: {time: '1', signal_time: 25${launcher:+, launcher: $launcher}}/" \
        tests/cases/toy/train_settings.yaml > "$folder/$1/train_settings.yaml"
}
submit() { "$program" submit slurm --train-dir "$folder/$1" --exit-command "touch $folder/$1/complete" > "$folder/$1.log" || fail "not submitted: $(cat "$folder/$1.log")"; }
jobs_of() { find "$folder/$1" -name 'slurm-*.out' | wc -l; }
trains() { grep -qs '^Train Epoch: \([2-9]\|[1-9][0-9]\)' "$folder/$1"/slurm-*.out; }
ranks_of() { pgrep -f "^$program .*--train-dir $folder/$1\$" || true; }
wait_until() { # SECONDS CONDITION
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || fail "waited too long: $*"
        sleep 0.2
    done
}
none_queued() { [ -z "$(squeue --noheader)" ]; }

say "a run that nobody cuts"
make_train_dir whole
scripts/mpirun.sh 2 "$program" "$folder/whole/train_settings.yaml" --train-dir "$folder/whole" > "$folder/whole.log" ||
    fail "$(tail "$folder/whole.log")"

say "a run that is cut twice"
make_train_dir cut
submit cut
# Of the latest job: whether it has begun to train, and has not been told to stop yet.
is_to_be_slow() {
    local log
    log=$folder/cut/slurm-$(find "$folder/cut" -name 'slurm-*.out' -printf '%f\n' | tr -dc '0-9\n' | sort -n | tail -n 1).out
    grep -qs '^Train Epoch' "$log" && ! grep -q 'received SIG' "$log"
}
send_to_ranks() { # SIGNAL
    local ranks
    mapfile -t ranks < <(ranks_of cut)
    kill "-$1" "${ranks[@]}" 2> /dev/null || true
}
begin=$SECONDS
while [ "$(jobs_of cut)" -lt 3 ]; do
    [ $((SECONDS - begin)) -lt 150 ] || fail "no two cuts in 150 seconds"
    [ ! -e "$folder/cut/complete" ] || fail "complete after $(jobs_of cut) jobs"
    if is_to_be_slow; then
        send_to_ranks STOP
        for _ in 1 2 3 4 5 6; do
            sleep 0.3
            is_to_be_slow || break
        done
        send_to_ranks CONT
    fi
    sleep 0.08
done
wait_until 150 test -e "$folder/cut/complete"
wait_until 20 none_queued
for file in history.txt model_latest.pt; do
    cmp "$folder/whole/$file" "$folder/cut/$file" || fail "$file is not that of the run that nobody cut"
done
[ "$(grep -l 'received SIGUSR1' "$folder"/cut/slurm-*.out | wc -l)" -ge 2 ] || fail "no two jobs were told to stop"
say "$(jobs_of cut) jobs, $(wc -l < "$folder/cut/history.txt") epochs: the same history and network"

say "a run that is cancelled"
make_train_dir cancelled
submit cancelled
wait_until 30 trains cancelled
before=$(stat --format='%y' "$folder/cancelled/model_latest.pt")
scancel "$(squeue --noheader --format=%i)"
wait_until 40 none_queued
grep -q 'Program terminated due to SIG\(TERM\|USR1\)' "$folder"/cancelled/slurm-*.out || fail "the program was not told to stop"
[ "$(stat --format='%y' "$folder/cancelled/model_latest.pt")" != "$before" ] || fail "it ended without a checkpoint"
[ "$(jobs_of cancelled)" = 1 ] || fail "a cancelled job was followed by another"
# The checkpoint is one to go on from.
scripts/mpirun.sh 2 "$program" --train-dir "$folder/cancelled" > "$folder/cancelled.log" || fail "$(tail "$folder/cancelled.log")"
cmp "$folder/whole/history.txt" "$folder/cancelled/history.txt" || fail "it went on to another history"
say "passed in $SECONDS seconds"
