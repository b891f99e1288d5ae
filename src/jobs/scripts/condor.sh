# ----------------------------------------------------------------------------------------------------- under HTCondor
# The log files are those of this job alone: the next one begins them anew. A copy is kept under the number of complete epochs.
copy_logs() {
    local epoch file
    epoch=$(tail -n 1 "$train_dir/history.txt" 2> /dev/null | cut -f 1)
    for file in $log_files; do
        file=$train_dir/$file
        if [ -e "$file" ]; then cp -p "$file" "${file%.*}_$(printf %03d "${epoch:-0}").${file##*.}"; fi
    done
}

if [ "$machines" = 1 ]; then
    say "$ranks_per_machine ranks on $(hostname)"
    train mpirun "${mpirun_options[@]}" -np "$ranks_per_machine"
else
    train_across_machines "$@"
fi
copy_logs
go_on "$program" submit condor --train-dir "$train_dir" ${exit_command:+--exit-command "$exit_command"}
