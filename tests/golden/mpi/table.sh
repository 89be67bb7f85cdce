#### intelmpi, ethernet, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, ethernet, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, ethernet, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, ethernet, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, ethernet, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, ethernet, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, sr-iov, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, sr-iov, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, sr-iov, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, sr-iov, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, sr-iov, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, sr-iov, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, network-direct, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, network-direct, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, network-direct, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, network-direct, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, network-direct, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, network-direct, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, image, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, image, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, image, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, image, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, image, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi, image, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, ethernet, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, ethernet, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, ethernet, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, ethernet, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, ethernet, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, ethernet, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, sr-iov, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, sr-iov, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, sr-iov, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, sr-iov, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, sr-iov, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, sr-iov, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, network-direct, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, network-direct, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, network-direct, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, network-direct, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, network-direct, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, network-direct, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, image, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, image, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -perhost 4 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, image, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, image, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -perhost "$processes_per_node" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, image, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### intelmpi-ofa, image, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -perhost 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, ethernet, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, ethernet, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, ethernet, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, ethernet, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, ethernet, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, ethernet, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, sr-iov, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, sr-iov, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, sr-iov, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, sr-iov, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, sr-iov, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, sr-iov, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, network-direct, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, network-direct, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, network-direct, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, network-direct, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, network-direct, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, network-direct, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, image, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, image, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, image, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, image, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, image, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mpich, image, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, ethernet, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, ethernet, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, ethernet, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, ethernet, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, ethernet, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, ethernet, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, sr-iov, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, sr-iov, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, sr-iov, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, sr-iov, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, sr-iov, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, sr-iov, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, network-direct, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, network-direct, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, network-direct, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, network-direct, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, network-direct, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, network-direct, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, image, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, image, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 8 -ppn 4 "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, image, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, image, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np "$((2 * processes_per_node))" -ppn "$processes_per_node" "${bt_binding[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, image, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### mvapich, image, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  -hosts "$AZ_BATCH_HOST_LIST" -np 2 -ppn 1 \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, ethernet, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 8 --map-by ppr:4:node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, ethernet, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 8 --map-by ppr:4:node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, ethernet, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np "$((2 * processes_per_node))" --map-by ppr:"$processes_per_node":node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, ethernet, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np "$((2 * processes_per_node))" --map-by ppr:"$processes_per_node":node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, ethernet, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 2 --map-by ppr:1:node"${bt_share:+:pe=$bt_share}" --bind-to none \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, ethernet, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 2 --map-by ppr:1:node"${bt_share:+:pe=$bt_share}" --bind-to none \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, sr-iov, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 8 --map-by ppr:4:node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, sr-iov, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 8 --map-by ppr:4:node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, sr-iov, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np "$((2 * processes_per_node))" --map-by ppr:"$processes_per_node":node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, sr-iov, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np "$((2 * processes_per_node))" --map-by ppr:"$processes_per_node":node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, sr-iov, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 2 --map-by ppr:1:node"${bt_share:+:pe=$bt_share}" --bind-to none \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, sr-iov, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 2 --map-by ppr:1:node"${bt_share:+:pe=$bt_share}" --bind-to none \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, network-direct, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 8 --map-by ppr:4:node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, network-direct, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 8 --map-by ppr:4:node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, network-direct, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np "$((2 * processes_per_node))" --map-by ppr:"$processes_per_node":node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, network-direct, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np "$((2 * processes_per_node))" --map-by ppr:"$processes_per_node":node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, network-direct, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 2 --map-by ppr:1:node"${bt_share:+:pe=$bt_share}" --bind-to none \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, network-direct, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 2 --map-by ppr:1:node"${bt_share:+:pe=$bt_share}" --bind-to none \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, image, processes_per_node integer, no container
bt_use_ssh
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 8 --map-by ppr:4:node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, image, processes_per_node integer, native container
bt_use_ssh 23
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 8 --map-by ppr:4:node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, image, processes_per_node command, no container
bt_use_ssh
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np "$((2 * processes_per_node))" --map-by ppr:"$processes_per_node":node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, image, processes_per_node command, native container
bt_use_ssh 23
processes_per_node=$(nvidia-smi -L | wc -l)
bt_check_ranks 'nvidia-smi -L | wc -l'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np "$((2 * processes_per_node))" --map-by ppr:"$processes_per_node":node"${bt_share:+:pe=$bt_share}" "${bt_binding[@]}" \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, image, processes_per_node absent, no container
bt_use_ssh
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 2 --map-by ppr:1:node"${bt_share:+:pe=$bt_share}" --bind-to none \
  "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output

#### openmpi, image, processes_per_node absent, native container
bt_use_ssh 23
bt_say 'processes_per_node is not set: 1 rank on each node'
bt_gang mpirun \
  -verbose \
  "${bt_oversubscribe[@]}" -host "$bt_slots" -np 2 --map-by ppr:1:node"${bt_share:+:pe=$bt_share}" --bind-to none \
  --allow-run-as-root "${bt_prefix[@]}" "${bt_exported[@]}" \
  "${bt_fabric[@]}" \
  sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh" \
  python -u "${bt_mpi4py[@]}" train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output
