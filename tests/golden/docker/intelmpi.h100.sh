# ---- every instance: the coordination command
# Runs on the host. What the container sees of this shell's environment:
source "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/docker.sh" || exit 1
bt_take_environment

# This node's container, in which the ranks run; it stays until the primary is done:
bt_start_gang a/b:1 \
  --network host \
  --user 0 \
  -v "$AZ_BATCH_NODE_ROOT_DIR:$AZ_BATCH_NODE_ROOT_DIR" \
  --gpus=all \
  --shm-size=64g -v /home/_azbatch/.ssh:/home/_azbatch/.ssh:ro --ulimit memlock=-1:-1 --device=/dev/infiniband -v /opt/microsoft:/opt/microsoft:ro

# The coordination command, inside:
bt_coordinate "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/inside-coordinate.sh" --workdir "$AZ_BATCH_TASK_WORKING_DIR"
# ---- the primary: the application command
# Runs on the host. What the container sees of this shell's environment:
source "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/docker.sh" || exit 1
bt_take_environment

# The launch, inside the primary's container; when it has ended, the containers of all nodes go:
bt_enter_gang "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/inside-launch.sh" --workdir "$AZ_BATCH_TASK_WORKING_DIR"
#explain# infiniband true: Standard_ND96isr_H100_v5 has InfiniBand (SR-IOV) and the pool has inter-node communication (infiniband-by-size)
#explain# gpus all: Standard_ND96isr_H100_v5 has 8 H100; the run options contain its devices (gpus-by-size)
#explain# docker run --name batchtrain.NODE.JOB.TASK, --label batchtrain.node, --label batchtrain.lock: these identify the container of a task, which is removed with the task, however it ends (docker-name)
#explain# docker run -e NAME for each variable of the task: the container has the task's environment; no value is on a command line, and values may have several lines (docker-environment)
#explain# docker run --detach --entrypoint /bin/sh: a gang's container waits, and sshd and the launch are executed in it (docker-waits)
#explain# docker run --network host: the ranks are reached at the addresses of their nodes (docker-network)
#explain# docker run --user 0: the container's sshd needs root, and the image may name another user (docker-root)
#explain# docker run -v "$AZ_BATCH_NODE_ROOT_DIR:$AZ_BATCH_NODE_ROOT_DIR": the container sees the directories of the node at the same paths, as a container of Batch does (docker-mounts)
#explain# docker run --gpus=all: Standard_ND96isr_H100_v5 has 8 H100, which the engine adds only on request (docker-gpus)
#explain# --shm-size 64g: 8 of Standard_ND96isr_H100_v5's GPUs, whose processes share memory (NCCL, data loaders) (shm-size)
#explain# docker run --ulimit memlock=-1:-1 --device=/dev/infiniband: the task uses InfiniBand, which pins memory (infiniband-container)
#explain# docker run -v /opt/microsoft:/opt/microsoft:ro: a virtual machine hides which GPU of ND H100 v5 is near which card; the HPC images describe it (nccl-topology)
#explain# docker run -v /home/_azbatch/.ssh:/home/_azbatch/.ssh:ro: the containers of a gang log in to each other with the pool's own key (pool-key)
#explain# default_working_dir batch: the files of the task are in this directory (working-directory)
#explain# user_identity pool, admin: a container runs as root, which its sshd needs (user-identity)
