# ----------------------------------------------------------------------------------------------- MPI across machines
# HTCondor starts this script on each machine of the job, numbered from 0, and leaves the rest to it. The machines meet in a
# folder of the file system that all of them see. Each writes its name there. Machine 0 waits for all names and runs mpirun,
# which believes to start its daemons through something like ssh; in truth that leaves the daemon's command in the folder, and
# the machine that it is meant for finds it and carries it out. So no machine need let another one in.

# Of this job, and of this start of it: one that was preempted may have left its own behind.
meeting_folder() { # CLUSTER
    local start
    start=$(sed -n 's/^NumShadowStarts *= *//p' "${_CONDOR_JOB_AD:-/dev/null}" 2> /dev/null)
    echo "$train_dir/.machines_$1_${start:-0}"
}

# Machine 0. What mpirun takes for ssh is called with the name of a machine and the command for it.
lead() {
    local count=$_CONDOR_NPROCS waited=0
    cat > "$meeting/like_ssh" << 'SCRIPT'
#!/bin/sh
meeting=$(dirname "$0")
machine=$1
shift
echo "$*" > "$meeting/.command.$machine" && mv "$meeting/.command.$machine" "$meeting/command.$machine"
until [ -e "$meeting/status.$machine" ]; do
    [ -d "$meeting" ] || exit 1
    sleep 1
done
exit "$(cat "$meeting/status.$machine")"
SCRIPT
    chmod +x "$meeting/like_ssh"
    until [ "$(ls "$meeting" | grep -c '^machine\.')" = "$count" ]; do
        if [ -n "$told_to_stop" ]; then give_up "stopped while waiting for the other machines"; fi
        if [ "$waited" -ge 600 ]; then give_up "of $count machines these came to $meeting in 10 minutes: $(cat "$meeting"/machine.*)"; fi
        sleep 1
        waited=$((waited + 1))
    done
    sort "$meeting"/machine.* | sed "s/\$/ slots=$ranks_per_machine/" > "$meeting/hosts"
    if [ "$(uniq "$meeting/hosts" | wc -l)" != "$count" ]; then
        give_up "a machine takes part twice, which is not possible; ask for whole machines: $(tr '\n' ' ' < "$meeting/hosts")"
    fi
    say "$((count * ranks_per_machine)) ranks on $(sed 's/ .*//' "$meeting/hosts" | tr '\n' ' ')"
    # Under the names of Open MPI 4 and of later ones. Every daemon is started from here, and stays in the foreground.
    export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent=$meeting/like_ssh OMPI_MCA_plm_rsh_no_tree_spawn=1
    export PRTE_MCA_plm=ssh PRTE_MCA_plm_ssh_agent=$meeting/like_ssh PRTE_MCA_plm_ssh_no_tree_spawn=1
    train mpirun "${mpirun_options[@]}" --leave-session-attached --hostfile "$meeting/hosts" \
        -np "$((count * ranks_per_machine))"
}

# The other machines, as long as machine 0 keeps the folder.
follow() {
    local command=$meeting/command.$(hostname) daemon daemon_status
    # Machine 0 tells the ranks when it is told to stop.
    trap : USR1 TERM
    until [ -e "$command" ]; do
        if ! [ -d "$meeting" ]; then exit 0; fi
        sleep 1
    done
    sh -c "$(cat "$command")" &
    daemon=$!
    while :; do
        wait "$daemon"
        daemon_status=$?
        if ! kill -0 "$daemon" 2> /dev/null; then break; fi
    done
    if [ -d "$meeting" ]; then echo "$daemon_status" > "$meeting/status.$(hostname)"; fi
    exit "$daemon_status"
}

train_across_machines() { # CLUSTER
    if [ ${#mpirun_options[@]} = 0 ]; then give_up "training on several machines of HTCondor needs Open MPI's mpirun"; fi
    meeting=$(meeting_folder "$1")
    mkdir -p "$meeting" || give_up "$meeting cannot be made on $(hostname)"
    if [ "$_CONDOR_PROCNO" = 0 ]; then trap 'rm -rf "$meeting"' EXIT; fi
    hostname > "$meeting/.machine.$_CONDOR_PROCNO" &&
        mv "$meeting/.machine.$_CONDOR_PROCNO" "$meeting/machine.$_CONDOR_PROCNO"
    if [ "$_CONDOR_PROCNO" = 0 ]; then lead; else follow; fi
}
