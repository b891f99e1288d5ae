# ---------------------------------------------------------------------------------------------------- the training
say() { echo "[$(date '+%F %T')] $*"; }
give_up() { say "$*" >&2; exit 1; }

cd "$work_dir" || give_up "$work_dir cannot be entered on $(hostname)"
latest=$train_dir/model_latest.pt

# The settings file is needed to begin; a run that goes on has its settings in the checkpoint.
arguments=(--train-dir "$train_dir")
if [ -e "$train_dir/train_settings.yaml" ]; then arguments=("$train_dir/train_settings.yaml" "${arguments[@]}"); fi
# A checkpoint that was asked for is where to begin, until a job has gone on from it: this file is as old as the submission.
if [ -n "$checkpoint" ] && ! [ "$latest" -nt "$train_dir/$script" ]; then arguments+=(--checkpoint "$checkpoint"); fi

# Open MPI refuses to run as root or with more ranks than cores unless told, and binds ranks to single cores. (It has an option
# that gives ranks more than two seconds after SIGTERM, but with that it takes as long to return from a training that was stopped.)
mpirun_options=()
if mpirun --version 2> /dev/null | grep -q 'Open MPI'; then
    mpirun_options=(--bind-to none --oversubscribe)
    if [ "$(id -u)" = 0 ]; then mpirun_options+=(--allow-run-as-root); fi
fi

# Whoever wants the job to end tells this script. It hands SIGUSR1 on, whatever it got: mpirun and srun pass that one to the
# ranks, which write a checkpoint and end with status 3.
training=
signals=0
told_to_stop=
ordered_to_end=
stop() {
    signals=$((signals + 1))
    told_to_stop=yes
    say "received $1"
    if [ -n "$training" ]; then kill -USR1 "$training" 2> /dev/null; fi
}
trap 'stop SIGUSR1' USR1
trap 'ordered_to_end=yes; stop SIGTERM' TERM

# Every checkpoint is a new file.
version_of_latest() { stat --format='%i %y' "$latest" 2> /dev/null; }

train() { # COMMAND that starts the ranks: leaves the status of the training in $status
    local as_found before
    as_found=$(version_of_latest)
    status=3
    advanced=
    if [ -n "$told_to_stop" ]; then return; fi
    "$@" "$program" "${arguments[@]}" &
    training=$!
    while :; do
        before=$signals
        wait "$training"
        status=$?
        # A signal ends the waiting, but not yet the training.
        if [ "$signals" = "$before" ]; then break; fi
    done
    training=
    if [ "$(version_of_latest)" != "$as_found" ]; then advanced=yes; fi
}

# After the training: the exit command when it is complete, the next job when it was stopped at a limit. A job that has not
# even begun to train would be followed by others like it without end.
go_on() { # COMMAND that submits the next job
    if [ "$status" = 0 ]; then
        say "The training is complete."
        if [ -n "$exit_command" ]; then
            say "Executing exit command: $exit_command"
            sh -c "$exit_command"
        fi
    elif [ "$status" != 3 ]; then
        say "The training failed with status $status; there will be no further job."
    elif [ -n "$ordered_to_end" ]; then
        say "The job was ordered to end. To go on, submit again, unless the scheduler queues this one again itself."
    elif [ -z "$advanced" ]; then
        say "The job was over before it trained; there will be no further job. It needs more time, or fewer preparations."
        status=1
    else
        say "Stopped, to go on in another job."
        "$@" || give_up "The next job could not be submitted."
        status=0
    fi
    exit "$status"
}
