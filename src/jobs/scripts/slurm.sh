# ------------------------------------------------------------------------------------------------------- under Slurm
say "job $SLURM_JOB_ID: $SLURM_NTASKS ranks on $SLURM_JOB_NODELIST, started with $launcher"
case $launcher in
    srun)
        # srun no longer takes over what the job asked for in cores for each task.
        train srun "--mpi=$mpi_type" --kill-on-bad-exit=1 ${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"}
        ;;
    mpirun)
        # To every process of a job that is cancelled Slurm sends SIGTERM, on which mpirun ends the ranks in two seconds. It need
        # not hear of that, as the ranks do. (Older versions of env cannot keep a signal from it.)
        deaf=()
        if env --block-signal=TERM true 2> /dev/null; then deaf=(env --block-signal=TERM); fi
        train "${deaf[@]}" mpirun "${mpirun_options[@]}" -np "$SLURM_NTASKS"
        ;;
esac

# At the time limit Slurm sends SIGTERM as well, to a job that did not manage to stop after SIGUSR1.
if [ -n "$ordered_to_end" ] && scontrol show job "$SLURM_JOB_ID" 2> /dev/null | grep -q 'Reason=TimeLimit'; then
    say "The time from SIGUSR1 to the limit was not enough for a checkpoint: make local.slurm.signal_time longer."
    ordered_to_end=
    status=3
fi

go_on "$program" submit slurm --train-dir "$train_dir" ${exit_command:+--exit-command "$exit_command"}
