#!/usr/bin/env bash
# mpirun with the options this machine needs:  scripts/mpirun.sh RANKS PROGRAM [ARGUMENT ...]
# Open MPI refuses to run as root, and to start more ranks than cores, unless told, and binds one or two ranks to a core
# each, which leaves none for their threads. Other MPIs know none of these options.
set -euo pipefail
ranks=$1
shift
options=()
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    [ "$(id -u)" != 0 ] || options+=(--allow-run-as-root)
    options+=(--oversubscribe --bind-to none)
fi
exec mpirun ${options[@]+"${options[@]}"} -np "$ranks" "$@"
