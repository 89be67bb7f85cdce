# shellcheck shell=bash
# docker.sh: one task's container, run by a node's own Docker Engine; for bash 4.2 and later, on the host.
#
# Batch does not know such a container and cannot end it with the task. The task's shell holds a lock on a file while it
# lives, and a guard waits for this lock: when the shell is gone, by any signal, the guard removes the container. The next
# task on the node removes containers that no guard could remove.
#
# The containers of a gang stay from the coordination command, if it succeeds, to the end of the primary. The primary
# holds an ssh connection to each other node; when it ends, that node removes its container. A container that no primary
# has asked for, and without a login, is removed after bt_lease seconds. All names start with bt_; fd 9 is the lock, 8
# holds the connections open.

unset TMOUT # read would take it for its time
bt_path=$PATH
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
bt_here=$AZ_BATCH_TASK_DIR/.batchtrain-docker
bt_node=${AZ_BATCH_POOL_ID-}/${AZ_BATCH_NODE_ID-}
bt_name=batchtrain.${AZ_BATCH_NODE_ID-}.${AZ_BATCH_JOB_ID-}.${AZ_BATCH_TASK_ID-}
bt_name=${bt_name//[!A-Za-z0-9_.-]/-}
bt_grace=${BATCHTRAIN_GRACE_SECONDS:-5}    # from SIGTERM to SIGKILL
bt_lease=${BATCHTRAIN_LEASE_SECONDS:-3600} # how long a gang's container waits for its primary

bt_say() { printf 'batchtrain: %s\n' "$*" >&2; }

bt_stop() { # CODE MESSAGE
  local code=$1
  shift
  bt_say "$@"
  exit "$code"
}

# --- the engine

bt_as_root=() bt_socket=${DOCKER_HOST:-unix:///var/run/docker.sock}
if [ "$(id -u)" != 0 ] && [ ! -w "${bt_socket#unix://}" ]; then bt_as_root=(sudo -nE); fi

bt_docker() { "${bt_as_root[@]}" docker "$@" </dev/null 8>&- 9>&-; }

bt_find_engine() {
  if [ -n "${BATCHTRAIN_EMULATED_NODE-}" ] && [ -z "${BATCHTRAIN_EMULATED_DOCKER-}" ]; then
    bt_stop 125 "the emulator's nodes have no Docker here: ${BATCHTRAIN_EMULATED_NO_DOCKER:-the pool has no metadata item batchtrain-docker=own}; start a Docker Engine, or take \`plain_docker\` away from the pool to train here"
  fi
  # Where the start task signed in to registries.
  local signed_in=/var/lib/batchtrain/docker
  [ -z "${BATCHTRAIN_EMULATED_NODE-}" ] || signed_in=$AZ_BATCH_NODE_STARTUP_DIR/.docker
  if "${bt_as_root[@]}" test -d "$signed_in"; then export DOCKER_CONFIG=$signed_in; fi
  command -v docker >/dev/null || bt_stop 127 "Docker is not on this node; the pool was made without \`plain_docker: true\`"
  bt_docker version --format '{{.Server.Version}}' >/dev/null || bt_stop 125 "no Docker Engine answers on this node"
}

# Sets bt_environment: options that give a container every variable but the host's own; names that are given are always
# included. No command line contains their values.
bt_take_environment() { # NAME...
  local name
  bt_environment=()
  for name in $(compgen -e); do
    case " $* " in
      *" PATH "*) if [ "$name" = PATH ]; then bt_environment+=(-e "PATH=$bt_path") && continue; fi ;;
    esac
    case " $* " in *" $name "*) bt_environment+=(-e "$name") && continue ;; esac
    case $name in
      BATCHTRAIN_FILES_* | BATCHTRAIN_EMULATED_* | DOCKER_* | SUDO_* | SSH_* | XDG_* | LD_* | *[!A-Za-z0-9_]*) ;;
      HOME | USER | LOGNAME | HOSTNAME | PATH | PWD | OLDPWD | SHLVL | SHELL | TERM | MAIL | TMPDIR | _) ;;
      DBUS_SESSION_BUS_ADDRESS | INVOCATION_ID | JOURNAL_STREAM) ;;
      *) bt_environment+=(-e "$name") ;;
    esac
  done
  for name; do # such as my.setting, which bash passes on and does not list
    case $name in *[!A-Za-z0-9_]* | [0-9]*) bt_environment+=(-e "$name") ;; esac
  done
  [ -z "${BATCHTRAIN_EMULATED_NODE-}" ] || bt_environment+=(-e BATCHTRAIN_EMULATED_NODE=container)
}

bt_remove() { bt_docker rm --force --volumes "$@" >/dev/null 2>&1; }

# Prints the name of an image on this node: its own, or that of its copy. Pulls it if the node has neither.
bt_find_image() { # IMAGE COPY
  local name
  for name in "$@"; do
    bt_docker image inspect "$name" >/dev/null 2>&1 && printf %s "$name" && return
  done
  for name in "$@"; do
    bt_say "node ${AZ_BATCH_NODE_ID-} has no image $1: $name is pulled now"
    bt_docker pull --quiet "$name" >&2 && printf %s "$name" && return
  done
  bt_stop 125 "$1 cannot be pulled, and neither can $2; the Docker Engine's message is above"
}

# --- what must not be left

bt_take_lock() {
  mkdir -p "$bt_here"
  exec 9>"$bt_here/lock"
  flock 9
}

# Containers of ended tasks: their lock is free, or their directory is gone. Nodes with gangs run one task at a time, so
# a gang's container that exists when the next task starts has lost its own.
bt_remove_orphans() {
  local id lock
  while read -r id lock; do
    if [ -n "$lock" ] && [ -e "$lock" ] && ! flock -n "$lock" true 9>&-; then continue; fi
    bt_say "removing the container $id, which an earlier task left behind"
    bt_remove "$id"
  done < <(bt_docker ps --all --filter "label=batchtrain.node=$bt_node" \
    --format '{{.ID}} {{.Label "batchtrain.lock"}}')
}

# Outside of the task's own processes, which Batch ends all together: as a unit of systemd where that runs.
bt_outside() { # COMMAND...
  if [ -d /run/systemd/system ] && [ -z "${BATCHTRAIN_EMULATED_NODE-}" ] &&
    "${bt_as_root[@]}" systemd-run --quiet --collect --setenv="PATH=$PATH" "$@" </dev/null >/dev/null 2>&1 8>&- 9>&-; then
    return
  fi
  "${bt_as_root[@]}" setsid "$@" </dev/null >/dev/null 2>&1 8>&- 9>&- &
}

bt_guard() { bt_outside flock "$bt_here/lock" docker rm --force --volumes "$1"; }

# --- a task alone on its node

bt_run() { # ARGUMENT... of docker run: options, the image, its command
  local client
  bt_take_lock
  bt_remove "$bt_name"
  bt_remove_orphans
  bt_guard "$bt_name"
  trap 'bt_told=1; bt_docker stop --time "${bt_grace%%.*}" "$bt_name" >/dev/null 2>&1; kill -s KILL "$client" 2>/dev/null' TERM INT HUP
  "${bt_as_root[@]}" docker run --name "$bt_name" --label "batchtrain.node=$bt_node" \
    --label "batchtrain.lock=$bt_here/lock" "${bt_environment[@]}" "$@" </dev/null 8>&- 9>&- &
  client=$!
  bt_attend "$client"
  [ -z "${bt_told-}" ] || bt_code=143
  bt_is_programs_own "$bt_code" || bt_explain "$bt_code"
  bt_remove "$bt_name"
  exit "$bt_code"
}

# Waits for a process, also if signals come meanwhile. Sets bt_code.
bt_attend() { # PROCESS
  while
    wait "$1"
    bt_code=$?
    [ "$bt_code" -gt 128 ] && kill -0 "$1" 2>/dev/null
  do :; done
}

# docker exits with 125 to 127 if a container did not start; a program may use them, too.
bt_is_programs_own() { # CODE
  [[ $1 == 12[5-7] && $(bt_docker inspect --format '{{.State.StartedAt}}' "$bt_name" 2>/dev/null) == [1-9]* ]]
}

bt_explain() { # CODE
  local killed limit
  case $1 in
    125) bt_say "the Docker Engine refused the container; its message is above" ;;
    126) bt_say "the command cannot be executed in this image" ;;
    127) bt_say "the command is not in this image, or something that the container was to have is not on this node" ;;
    137)
      read -r killed limit < <(bt_docker inspect --format '{{.State.OOMKilled}} {{.HostConfig.Memory}}' "$bt_name" 2>/dev/null)
      if [ "${killed-}" = true ]; then
        bt_say "the container was ended because it used more memory than it may"
      elif [ "${limit:-0}" -gt 0 ]; then # the engine may not have heard of it
        bt_say "the container was killed; it may use $((limit >> 20)) MiB of memory: did it need more?"
      fi
      ;;
  esac
}

# --- a gang: every instance

# The container only waits; docker exec runs the commands of the gang. The image's own entry point is not used.
bt_start_gang() { # IMAGE OPTION... of docker run
  local image=$1 id waiting='trap "exit 0" TERM; while :; do sleep 3600 & wait $!; done'
  shift
  bt_take_lock
  bt_remove "$bt_name"
  bt_remove_orphans
  rm -f "$bt_here/adopted" "$bt_here/coordinated" "$bt_here/id"
  # shellcheck disable=SC2016 # for the inner shell
  bt_outside flock "$bt_here/lock" /bin/sh -c '[ -e "$1" ] || docker rm --force --volumes "$2"' - \
    "$bt_here/coordinated" "$bt_name" # a coordination command that is killed leaves none, either
  bt_docker image inspect "$image" >/dev/null 2>&1 ||
    bt_say "node ${AZ_BATCH_NODE_ID-} has no image $image yet: it is pulled now (global_resources.docker_images brings it with the node)"
  id=$(bt_docker run --detach --name "$bt_name" --label "batchtrain.node=$bt_node" \
    --label "batchtrain.lock=$bt_here/lock" "${bt_environment[@]}" "$@" --entrypoint /bin/sh "$image" -c "$waiting") ||
    { bt_remove "$bt_name" && bt_stop 125 "the Docker Engine of node ${AZ_BATCH_NODE_ID-} does not start $image; its message is above"; }
  printf '%s\n' "$id" >"$bt_here/id"
  # shellcheck disable=SC2016 # for the inner shell
  bt_outside /bin/sh -c 'left=$3; while [ "$left" -gt 0 ]; do
    if [ -e "$1/adopted" ]; then exit; fi
    if [ "$(cat "$1/id" 2>/dev/null)" != "$2" ]; then left=-2 && break; fi # the next try has its own, or the task is gone
    sleep 2 && left=$((left - 2))
  done
  while [ "$left" -ge -1 ] && docker top "$2" -eo pid,args 2>/dev/null | grep -q "sshd.*: .*@"; do
    sleep 5 # it works for a primary whose ssh did not reach this host
  done
  docker rm --force --volumes "$2"' - "$bt_here" "$id" "$bt_lease"
}

# Background processes of the coordination (an sshd) stay with the container.
bt_coordinate() { # SCRIPT OPTION... of docker exec
  local script=$1 code
  shift
  bt_docker exec "${bt_environment[@]}" "$@" "$bt_name" /bin/bash "$script"
  code=$?
  case $code in
    0) : >"$bt_here/coordinated" && exit 0 ;;
    126 | 127)
      bt_docker exec "$bt_name" /bin/bash -c : >/dev/null 2>&1 ||
        bt_say "no /bin/bash runs in this image, and the texts of a multi-instance task are bash's; install it" ;;
    *) bt_explain "$code" ;;
  esac
  bt_remove "$bt_name"
  exit "$code"
}

# --- a gang: the primary

bt_enter_gang() { # SCRIPT OPTION... of docker exec
  local script=$1 client
  shift
  bt_take_lock
  : >"$bt_here/adopted"
  bt_own=$(cat "$bt_here/id" 2>/dev/null || printf %s "$bt_name") # by its id: the next try has one of this name
  bt_guard "$bt_own"
  bt_hold_others
  trap bt_tell_gang TERM INT HUP
  # shellcheck disable=SC2016 # for the inner shell
  "${bt_as_root[@]}" docker exec "${bt_environment[@]}" "$@" "$bt_name" /bin/bash -c \
    'echo $$ >"$1/pid"; exec /bin/bash "$2"' - "$bt_here" "$script" </dev/null 8>&- 9>&- &
  client=$!
  bt_attend "$client"
  case $bt_code in 125 | 126 | 127) ;; *) bt_explain "$bt_code" ;; esac # those are the launch's own, which has said why
  bt_remove "$bt_name"
  bt_let_others_go
  exit "$bt_code"
}

# docker exec passes no signal on, so signal the launch inside; its grace period contains the one of gang.sh.
bt_tell_gang() {
  # shellcheck disable=SC2016 # for the inner shell
  bt_docker exec "$bt_own" /bin/sh -c 'read -r process <"$1/pid" && kill -s TERM "$process"' - "$bt_here" 2>/dev/null
  { sleep $((5 + ${bt_grace%%.*})) && bt_docker kill "$bt_own"; } >/dev/null 2>&1 8>&- 9>&- &
}

# The host's own ssh, with the pool's key: as root the key is another's.
bt_host_ssh() { # HOST COMMAND
  local key options=(-o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=no)
  options+=(-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ServerAliveInterval=15)
  if [ -z "${BATCHTRAIN_EMULATED_NODE-}" ] && [ "$(id -u)" = 0 ]; then
    for key in /home/_azbatch/.ssh/*_rsa; do
      [ ! -r "$key" ] || options+=(-l _azbatch -i "$key")
    done
  fi
  # shellcheck disable=SC2029 # expanded here, on purpose
  ssh "${options[@]}" "$@"
}

# One ssh to each other node. When its stdin is closed, by us or by our end, the node removes its container.
bt_hold_others() {
  local own=${AZ_BATCH_MASTER_NODE%:*} host hosts text
  # shellcheck disable=SC2016 # for the other node's shell
  printf -v text 'here=%q root=%q; %s' "$bt_here" "${AZ_BATCH_NODE_ROOT_DIR-}" '
case ${BATCHTRAIN_EMULATED_NODE-} in /*) here=$BATCHTRAIN_EMULATED_NODE${here#"$root"} ;; esac
sudo= socket=${DOCKER_HOST:-unix:///var/run/docker.sock}
[ "$(id -u)" = 0 ] || [ -w "${socket#unix://}" ] || sudo="sudo -n"
[ ! -e "$here" ] || $sudo touch "$here/adopted"
id=$(cat "$here/id" 2>/dev/null) # the next try may be there when this ends
cat >/dev/null
[ -z "$id" ] || $sudo docker rm --force --volumes "$id" >/dev/null 2>&1
exit 0'
  rm -f "$bt_here/hold"
  mkfifo "$bt_here/hold"
  exec 8<>"$bt_here/hold"
  bt_held=()
  IFS=, read -r -a hosts <<<"${AZ_BATCH_HOST_LIST//[[:space:]]/}"
  for host in "${hosts[@]}"; do
    [ "$host" != "$own" ] || continue
    { bt_host_ssh "$host" "$text" <"$bt_here/hold" || bt_say "the host $host does not take the end of this task's container: ssh ended with code $?"; } 8>&- 9>&- &
    bt_held+=("$!")
  done
}

bt_let_others_go() {
  local waited process
  exec 8>&-
  for ((waited = 0; waited < 200; waited++)); do
    for process in "${bt_held[@]}"; do
      kill -0 "$process" 2>/dev/null && sleep 0.05 && continue 2
    done
    return
  done
  bt_say "some nodes have not said within 10 s that this task's container is gone; it goes when their next task starts"
}

bt_find_engine
