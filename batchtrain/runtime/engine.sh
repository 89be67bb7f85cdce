# shellcheck shell=bash
# engine.sh: installs a Docker Engine on a node, for tasks whose containers Batch does not run. Part of the start task.

bt_docker_version=28.5.1 bt_containerd_version=1.7.28 bt_toolkit_version=1.17.8-1

# Installs missing programs, in one version on every node, and then keeps images on the temporary disk.
bt_need_engine() {
  if [ -n "${BATCHTRAIN_EMULATED_NODE-}" ] && [ -z "${BATCHTRAIN_EMULATED_DOCKER-}" ]; then
    bt_stop "the emulator's nodes have no Docker here: ${BATCHTRAIN_EMULATED_NO_DOCKER:-the pool has no metadata item batchtrain-docker=own}; start a Docker Engine, or take \`plain_docker\` away from the pool to train here"
  fi
  command -v docker >/dev/null || bt_install_engine
  if ! docker version >/dev/null 2>&1 && command -v systemctl >/dev/null; then systemctl enable --now docker || true; fi
  bt_try docker version --format 'Docker Engine {{.Server.Version}}' ||
    bt_stop "Docker is installed, and its engine does not answer (journalctl -u docker says why)"
}

bt_install_engine() {
  local source=https://download.docker.com/linux disk=${AZ_BATCH_NODE_ROOT_DIR%/batch/tasks} name
  if [ "$disk" != "$AZ_BATCH_NODE_ROOT_DIR" ] && [ ! -e /etc/docker/daemon.json ]; then
    mkdir -p /etc/docker
    printf '{"data-root": "%s/docker"}\n' "$disk" >/etc/docker/daemon.json
  fi
  if command -v apt-get >/dev/null; then
    # shellcheck source=/dev/null
    name=$(. /etc/os-release && echo "$ID $VERSION_CODENAME")
    bt_fetch "$source/${name% *}/gpg" /etc/apt/keyrings/docker.asc
    printf 'deb [signed-by=/etc/apt/keyrings/docker.asc] %s %s stable\n' "$source/${name% *}" "${name#* }" \
      >/etc/apt/sources.list.d/docker.list
    bt_install "docker-ce=5:$bt_docker_version-*" "docker-ce-cli=5:$bt_docker_version-*" \
      "containerd.io=$bt_containerd_version-*"
  else
    bt_fetch "$source/centos/docker-ce.repo" /etc/yum.repos.d/docker-ce.repo
    bt_install "docker-ce-$bt_docker_version" "docker-ce-cli-$bt_docker_version" "containerd.io-$bt_containerd_version"
  fi
}

bt_fetch() { # URL FILE
  command -v curl >/dev/null || bt_install ca-certificates curl
  mkdir -p "${2%/*}"
  bt_try curl -fsSL --retry 2 -o "$2" "$1" || bt_stop "$1 cannot be fetched; use an image that has Docker, such as ubuntu-hpc"
}

bt_need_gpus() { # COUNT SIZE
  local seen
  command -v nvidia-smi >/dev/null || bt_stop "$2 has GPUs, and this image no driver; use one with it, such as ubuntu-hpc"
  seen=$(nvidia-smi -L | grep -c '^GPU ' || true)
  [ "$seen" -ge "$1" ] || bt_stop "this node shows $seen of the $1 GPUs of $2 (nvidia-smi -L); reboot it, or let it go"
  [ -z "${BATCHTRAIN_EMULATED_NODE-}" ] || return 0
  command -v nvidia-container-runtime-hook >/dev/null || bt_install_toolkit
}

bt_install_toolkit() {
  local source=https://nvidia.github.io/libnvidia-container name packages=()
  if command -v apt-get >/dev/null; then
    bt_fetch "$source/gpgkey" /etc/apt/keyrings/nvidia.asc
    printf 'deb [signed-by=/etc/apt/keyrings/nvidia.asc] %s /\n' "$source/stable/deb/$(dpkg --print-architecture)" \
      >/etc/apt/sources.list.d/nvidia-container-toolkit.list
    for name in nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1; do
      packages+=("$name=$bt_toolkit_version")
    done
  else
    bt_fetch "$source/stable/rpm/nvidia-container-toolkit.repo" /etc/yum.repos.d/nvidia-container-toolkit.repo
    packages=("nvidia-container-toolkit-$bt_toolkit_version")
  fi
  bt_install "${packages[@]}"
  nvidia-ctk runtime configure --runtime=docker
  systemctl restart docker
  bt_try docker version --format 'Docker Engine {{.Server.Version}}, with GPUs' ||
    bt_stop "the Docker Engine does not come back with NVIDIA's container toolkit (journalctl -u docker says why)"
}

bt_need_infiniband() { # SIZE
  [ -z "${BATCHTRAIN_EMULATED_NODE-}" ] || return 0
  [ -d /dev/infiniband ] ||
    bt_stop "$1 has InfiniBand, and this image shows no /dev/infiniband; use an HPC image, or \`infiniband: false\`"
  bt_try bt_has_infiniband ||
    bt_stop "no InfiniBand link of this node is up (/sys/class/infiniband/*/ports/*/state); reboot it, or let it go"
}

# Cards of accelerated networking are listed there, too: active, and with another link layer.
bt_has_infiniband() {
  local port
  for port in /sys/class/infiniband/*/ports/*; do
    if grep -qs InfiniBand "$port/link_layer" && grep -qs ACTIVE "$port/state"; then return; fi
  done
  return 1
}

# Outside of what containers see. docker.sh looks for it there.
bt_keep_sign_ins() {
  export DOCKER_CONFIG=/var/lib/batchtrain/docker
  [ -z "${BATCHTRAIN_EMULATED_NODE-}" ] || DOCKER_CONFIG=$AZ_BATCH_NODE_STARTUP_DIR/.docker
  mkdir -p "$DOCKER_CONFIG"
  chmod 700 "$DOCKER_CONFIG"
}

# After a success, docker only warns about where it keeps the password.
bt_sign_in() { # SERVER USERNAME VARIABLE
  local said
  said=$(printf '%s' "${!3}" | docker login --username "$2" --password-stdin ${1:+"$1"} 2>&1 >/dev/null) ||
    {
      printf '%s\n' "$said" >&2
      case $said in *denied* | *unauthorized* | *'incorrect username'*) return 64 ;; esac
      return 1
    }
}
