# Runs on the primary, when the coordination command has come back on every instance.
source "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/gang.sh" || exit 1

# Fabric: tcp over eth0, the pool's own network, and no bridge or tunnel beside it:
bt_fabric=()
if bt_on_loopback; then
  bt_fabric=(--mca btl_tcp_if_include lo)
elif [ -e /sys/class/net/eth0 ] && ! bt_emulated; then
  bt_fabric=(--mca btl_tcp_if_include eth0)
fi

# pre_execution_command, in this same shell; a file that it sources must be there:
trap 'bt_check_source "$BASH_COMMAND"' DEBUG
source /opt/activate; source /opt/mpivars.sh
{ bt_code=$?; trap - DEBUG; set +eu; } 2>/dev/null
[ "$bt_code" -eq 0 ] || bt_say "warning: pre_execution_command ended with code $bt_code"

# The hosts, this one first (rank 0 belongs where the task's files are taken from); each must answer ssh, and pass
# these checks:
bt_order_hosts 2
bt_use_ssh 23
bt_wait_for_hosts processes=1 port=23

# Ranks on each node, as the primary counts them:
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'

# With mpi4py, a rank with an exception aborts the other ranks instead of waiting for them for ever:
bt_find_mpi4py python

# Open MPI finds its daemons on the other nodes by --prefix, started from here alone, by this shell's ssh; and nothing
# of this shell's environment reaches the ranks there but what -x names:
export OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1
bt_find_prefix mpirun
bt_list_exported

# The line. bt_gang runs it, and ends the whole gang when one rank fails, with that rank's exit code:
bt_begin
{
bt_gang mpirun \
  -verbose \
  --oversubscribe -host "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" --map-by ppr:"$processes_per_node":node \
  --allow-run-as-root --bind-to none "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output
} <&0 &
bt_attend "$!"
