# Runs on the host. What the container sees of this shell's environment:
source "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/docker.sh" || exit 1
bt_take_environment

# The container, until it ends; it goes with this shell:
bt_run \
  --workdir "$AZ_BATCH_TASK_WORKING_DIR" \
  -v "$AZ_BATCH_NODE_ROOT_DIR:$AZ_BATCH_NODE_ROOT_DIR" \
  --shm-size=1g \
  a/b:1 /bin/bash -c 'python train.py --out $AZ_BATCH_TASK_WORKING_DIR/output'
#explain# docker run --name batchtrain.NODE.JOB.TASK, --label batchtrain.node, --label batchtrain.lock: these identify the container of a task, which is removed with the task, however it ends (docker-name)
#explain# docker run -e NAME for each variable of the task: the container has the task's environment; no value is on a command line, and values may have several lines (docker-environment)
#explain# docker run -v "$AZ_BATCH_NODE_ROOT_DIR:$AZ_BATCH_NODE_ROOT_DIR": the container sees the directories of the node at the same paths, as a container of Batch does (docker-mounts)
#explain# --shm-size 1g: workers of a data loader share memory, and 64 MB end in a bus error (shm-size)
#explain# default_working_dir batch: the files of the task are in this directory (working-directory)
#explain# user_identity pool, admin: a container runs as root, which its sshd needs (user-identity)
