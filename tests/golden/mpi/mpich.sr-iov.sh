# Runs on the primary, when the coordination command has come back on every instance.
source "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/gang.sh" || exit 1

# Fabric: InfiniBand (SR-IOV); variables that are set already keep their value:
if [ -e /dev/infiniband ]; then
  bt_find_ports
  bt_default ${bt_ucx_ports:+"UCX_NET_DEVICES=$bt_ucx_ports"} ${bt_pkey:+"UCX_IB_PKEY=$bt_pkey"}
elif bt_emulated; then
  bt_say 'this node is emulated and has no InfiniBand (SR-IOV): the ranks talk over tcp'
else
  bt_stop 1 'InfiniBand (SR-IOV) is requested, but this node has no /dev/infiniband (an image without the drivers? set infiniband: false to use tcp)'
fi

# MPI_Abort is to end its rank by SIGABRT, and the launcher to say who it was; not where cores would be dumped:
[ "$(ulimit -c)" != 0 ] || bt_default MPIR_CVAR_COREDUMP_ON_ABORT=1

# pre_execution_command, in this same shell; a file that it sources must be there:
trap 'bt_check_source "$BASH_COMMAND"' DEBUG
source /opt/activate; source /opt/mpivars.sh
{ bt_code=$?; trap - DEBUG; set +eu; } 2>/dev/null
[ "$bt_code" -eq 0 ] || bt_say "warning: pre_execution_command ended with code $bt_code"

# If each rank is rank 0 of 1 after MPI_Init, the gang ends (`allow_singletons: true` allows it):
export BATCHTRAIN_LAUNCHER=MPICH

# Whether Python has mpi4py; the answer is read below:
bt_ask_for_mpi4py python

# The hosts, this one first (rank 0 belongs where the task's files are taken from); each must answer ssh, and pass
# these checks:
bt_order_hosts 2
bt_use_ssh 23
bt_wait_for_hosts processes=1 infiniband=1 memlock=1 container=1 port=23

# Ranks on each node, as the primary counts them:
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'

# Each rank gets an equal share of its node's cores, near its GPU; none is bound where it cannot be had:
bt_share_cores "$processes_per_node" HYDRA_BINDING
bt_binding=()
[ -z "$bt_share" ] || bt_binding=(-bind-to core:$bt_share)

# With mpi4py, a rank with an exception aborts the other ranks instead of waiting for them for ever:
bt_find_mpi4py python

# The line. bt_gang runs it, and ends the whole gang when one rank fails, with that rank's exit code:
bt_begin
{
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output
} <&0 &
bt_attend "$!"
