#!/usr/bin/env bash
# Kills a run again and again and lets it go on each time; what it ends with must be what the run gives that nobody
# disturbs, to the last bit.
#
#     scripts/kill_test.sh [SETTINGS [KILLS [RANKS]]]          the demo, 20 times, on 2 ranks
#
# In turn: SIGTERM and SIGUSR1 to mpirun, SIGKILL to one rank, SIGKILL to all and to mpirun, each at a random moment of what
# is left. Every checkpoint on the way must open: with torch where `python3` (or $DINGO_SPMD_PYTHON) has it, else by the
# program itself, which resumes from it. SEED=n repeats a choice of moments.
set -euo pipefail
cd "$(dirname "$0")/.."
settings=${1:-settings/demo.yaml}
kills=${2:-20}
ranks=${3:-2}
RANDOM=${SEED:-$$}
program=target/release/dingo-spmd
python=${DINGO_SPMD_PYTHON:-$([ -x .venv/bin/python3 ] && echo .venv/bin/python3 || echo python3)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() { printf 'kill test: %s\n' "$*" >&2; tail -n 30 "$folder/log" >&2; exit 1; }
say() { printf 'kill test: %s\n' "$*"; }
have_torch() { "$python" -c 'import torch' 2>/dev/null; }

# A copy with a fixed seed and matrix library, and checkpoints inside epochs: every 2 seconds.
copy=$folder/run.yaml
grep -vE '^  (seed|matrix_library|checkpoint_minutes):' "$settings" | sed 's/^local:.*/&\n  seed: 20\n  matrix_library: mkl\n  checkpoint_minutes: 0.034/' > "$copy"

start() { # TRAIN_DIR: the job in the background, its process as $job
    # In a process group of its own: mpirun, when it ends a job that is only just starting, may signal the whole group.
    setsid scripts/mpirun.sh "$ranks" "$program" "$copy" --train-dir "$folder/$1" > "$folder/log" 2>&1 &
    job=$!
}

finish() { # its status, as $status
    status=0
    wait "$job" || status=$?
}

say "the run that nobody disturbs"
milliseconds() { echo "$(($(date +%s%N) / 1000000))"; }
begin=$(milliseconds)
start whole
finish
[ "$status" = 0 ] || fail "it ended with status $status"
duration=$(($(milliseconds) - begin))
say "took $duration ms"

disturb() { # KIND
    local rank_processes
    mapfile -t rank_processes < <(pgrep -P "$job")
    case $1 in
        term) kill -TERM "$job" ;;
        usr1) kill -USR1 "$job" ;;
        one) kill -KILL "${rank_processes[RANDOM % ${#rank_processes[@]}]}" ;;
        all) kill -KILL "$job" "${rank_processes[@]}" ;;
    esac 2>/dev/null || true
}

kinds=(term usr1 one all)
for ((turn = 1; turn <= kills; turn++)); do
    kind=${kinds[(turn - 1) % 4]}
    # Some more than the run takes together, as it makes up for what SIGKILL loses; a run that is complete begins anew.
    moment=$(((RANDOM << 15 | RANDOM) % (3 * duration / kills + 1500)))
    start killed
    sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
    disturb "$kind"
    begin=$(milliseconds)
    finish 2> /dev/null
    took=$(($(milliseconds) - begin))
    [ "$took" -le 10000 ] || fail "$kind: it took $took ms to end"
    model=$folder/killed/model_latest.pt
    position="no checkpoint yet"
    if [ -e "$model" ]; then
        if have_torch; then
            position=$("$python" - "$model" <<'PYTHON'
import sys, torch
checkpoint = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
progress = checkpoint["spmd"]["progress"]
print(f"epoch {checkpoint['epoch']}, batches {progress['batches']}, steps {checkpoint['iteration']}")
PYTHON
            ) || fail "$kind after $moment ms: model_latest.pt does not open"
        else
            position="a checkpoint"
        fi
    fi
    # Before its first words the program does not listen for signals yet.
    if [ "$kind" = usr1 ] && [ -e "$model" ] && grep -q '^Training on' "$folder/log"; then
        [ "$status" = 3 ] || [ "$status" = 0 ] || fail "SIGUSR1 ended with status $status"
    fi
    say "$turn/$kills: $kind after $moment ms, status $status; $position"
    if [ "$status" = 0 ]; then
        say "it was complete; once more from the beginning"
        mv "$folder/killed" "$folder/complete_$turn"
    fi
done

start killed
finish
[ "$status" = 0 ] || fail "the run could not be completed: status $status"
for run in "$folder"/killed "$folder"/complete_*; do
    [ -d "$run" ] || continue
    for file in "$folder"/whole/history.txt "$folder"/whole/*.pt; do
        cmp -s "$file" "$run/$(basename "$file")" || fail "$(basename "$file") of $(basename "$run") differs"
    done
done
epochs=$(cut -f1 "$folder/killed/history.txt")
[ "$epochs" = "$(seq 1 "$(wc -l < "$folder/killed/history.txt")")" ] || fail "history: $epochs"
say "passed: history and all checkpoints are those of the undisturbed run, byte by byte"
