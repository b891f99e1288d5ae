#!/usr/bin/env bash
# A real Slurm on this one machine: munged, slurmctld and slurmd as processes of their own, with everything they write in one
# folder.
#
#     tests/slurm/setup.sh start FOLDER      prints what to put into the environment, SLURM_CONF
#     tests/slurm/setup.sh stop FOLDER
#
# Needs root, and Debian's packages slurmctld, slurmd, slurm-client and munge, which it installs where apt-get can. Ends with
# status 77 and a line that says why where Slurm cannot be set up.
set -euo pipefail
action=$1
folder=$2

cannot() { echo "$*" >&2; exit 77; }
have() { command -v "$1" > /dev/null 2>&1; }

install() {
    if have slurmctld && have slurmd && have sbatch && have munged; then return; fi
    have apt-get || cannot "slurmctld, slurmd, sbatch and munged are not installed"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge; } \
        > "$folder/apt.log" 2>&1 || cannot "Slurm cannot be installed: $(tail -n 1 "$folder/apt.log")"
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }

start_munge() {
    mkdir -p "$folder/munge"
    chmod 0700 "$folder/munge"
    head -c 1024 /dev/urandom > "$folder/munge/key"
    chmod 0600 "$folder/munge/key"
    # The key, the socket and the folder above belong to root alone, which munged accepts when told so.
    munged --force --key-file="$folder/munge/key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munge/seed" 2>> "$folder/munged.err" ||
        cannot "munged does not start: $(tail -n 1 "$folder/munged.err")"
}

write_configuration() {
    local host cores
    host=$(hostname -s)
    cores=$(nproc)
    cat > "$folder/slurm.conf" <<CONFIGURATION
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
# No cgroups, no pinning: this may run inside a container.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
# Seconds from SIGTERM to SIGKILL.
KillWait=30
# At least two ranks fit, whatever the machine.
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=$((cores < 2 ? 2 : cores)) State=UNKNOWN
PartitionName=short Nodes=$host Default=YES MaxTime=1 State=UP
CONFIGURATION
}

start_slurm() {
    mkdir -p "$folder/state" "$folder/spool"
    slurmctld || cannot "slurmctld does not start: $(tail -n 1 "$folder/slurmctld.log")"
    slurmd || cannot "slurmd does not start: $(tail -n 1 "$folder/slurmd.log")"
    for _ in $(seq 100); do
        [ "$(sinfo -h -o %T 2> /dev/null)" != idle ] || return 0
        sleep 0.1
    done
    cannot "the node does not come up: $(sinfo -h -N -o '%T %E' 2>&1)"
}

end_process() { # PID_FILE
    local process
    process=$(cat "$1" 2> /dev/null) || return 0
    kill "$process" 2> /dev/null || return 0
    for _ in $(seq 50); do
        kill -0 "$process" 2> /dev/null || return 0
        sleep 0.1
    done
    kill -KILL "$process" 2> /dev/null || true
}

export SLURM_CONF=$folder/slurm.conf
case $action in
    start)
        [ "$(id -u)" = 0 ] || cannot "only root can set up Slurm"
        mkdir -p "$folder"
        install
        write_configuration
        start_munge
        trap 'status=$?; [ $status = 0 ] || "$0" stop "$folder"' EXIT
        start_slurm
        echo "SLURM_CONF=$SLURM_CONF"
        ;;
    stop)
        for daemon in slurmd slurmctld munged; do end_process "$folder/$daemon.pid"; done
        ;;
    *)
        echo "usage: $0 start|stop FOLDER" >&2
        exit 2
        ;;
esac
