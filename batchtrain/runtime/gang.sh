# shellcheck shell=bash disable=SC2034
# gang.sh: what a launch text does on the primary, as functions; for bash 4.2 and later.
#
# All names start with bt_, because the user's text runs in the same shell. The code needs no `set -e` and works with
# any options that this text has set. While the line runs, fd 9 has the events of the gang, one per line; 8 its stderr,
# which passes through bt_tap; 7 the records of the nodes; 6 the stderr of the task, wherever the line sends its own; 5
# and 4 keep lines.sh running.

bt_home=$AZ_BATCH_TASK_SHARED_DIR/.batchtrain
bt_grace=${BATCHTRAIN_GRACE_SECONDS:-0.5} # from SIGTERM to SIGKILL, when ranks are ended

bt_say() { printf 'batchtrain: %s\n' "$*" >&2; }
bt_warn() { bt_say "warning: $*" && bt_record '{"warning": %s}\n' "$(bt_json "$*")"; }

bt_stop() { # CODE MESSAGE
  local code=$1
  shift
  bt_say "$@"
  exit "$code"
}

# On a node of batchtrain's emulator: no InfiniBand, and an ssh that needs neither keys nor port. In a container of its
# own (`container`) there is no InfiniBand either, but the image's real sshd and ssh.
bt_emulated() { [ -n "${BATCHTRAIN_EMULATED_NODE-}" ]; }
bt_has_stand_in() { bt_emulated && [ "$BATCHTRAIN_EMULATED_NODE" != container ]; }
bt_on_loopback() { bt_has_stand_in && [[ ${AZ_BATCH_HOST_LIST-} == 127.* ]]; } # some have a Docker network of their own

bt_default_file() { # NAME FILE, which a node may lack
  if [ -r "$2" ]; then
    bt_default "$1=$2"
  elif [ -z "${!1+set}" ]; then
    bt_warn "this node has no $2, so $1 is not set: take an image for its size, such as ubuntu-hpc"
  fi
}

bt_default() { # NAME=VALUE... exports each variable; one that is set, or that the image sets for NCCL, keeps its value
  local pair name
  for pair; do
    name=${pair%%=*}
    ! bt_is_of_image "$name" || continue
    export "$name=${!name:-${pair#*=}}"
  done
}

# With an explicit `infiniband`, what the image says about the transport does not count.
bt_disregard_image() { # NAME...
  bt_disregarded=" $* "
  unset -v "$@"
}

bt_is_of_image() { # NAME: whether the image sets the variable for NCCL
  [ -r /etc/nccl.conf ] && [[ ${bt_disregarded-} != *" $1 "* ]] || return
  case $'\n'$(</etc/nccl.conf) in *$'\n'"$1="*) ;; *) return 1 ;; esac
}

bt_is_set() { # NAME... whether one of the variables has a value, or the image sets it for NCCL
  local name
  for name; do [ -n "${!name-}" ] || bt_is_of_image "$name" && return; done
  return 1
}

# --- every instance: coordination

# Keep this node's own AZ_BATCH_* values for its ranks, as shell text. Files of an earlier attempt are deleted.
bt_keep_environment() {
  local name value quote="'\\''"
  for name in "$bt_home/ranks" "${AZ_BATCH_TASK_WORKING_DIR:-$bt_home}/ranks/ends.jsonl"; do
    [ ! -e "$name" ] || rm -rf "$name"
  done
  mkdir -p "$bt_home/ranks"
  (
    umask 077
    bt_find_awk
    # shellcheck source=/dev/null
    BATCHTRAIN_MEMORY_KILLS=$(. "$bt_home/node.sh" memory_kills)
    for name in ${!AZ_BATCH_@} BATCHTRAIN_AWK BATCHTRAIN_MEMORY_KILLS; do
      value=${!name}
      printf "export %s='%s'\n" "$name" "${value//\'/$quote}"
    done >"$bt_home/environment"
  )
}

# Sets BATCHTRAIN_AWK to the awk that writes the lines of the ranks, or to nothing. mawk waits for blocks of its input
# otherwise; an old one does not know systime(); other awks know no such option.
bt_find_awk() {
  for BATCHTRAIN_AWK in 'awk -W interactive' awk ''; do
    # shellcheck disable=SC2086 # a command with its options
    if ${BATCHTRAIN_AWK:-true} 'BEGIN { exit systime() < 1 }' >/dev/null 2>&1 </dev/null; then return; fi
  done
}

# The ssh server of a container, on port 23 as Batch Shipyard's image contract has it (22 is the host's).
bt_start_sshd() {
  ! bt_has_stand_in || return 0
  [ -x /usr/sbin/sshd ] || bt_stop 1 "the image has no /usr/sbin/sshd; install openssh-server or set coordination_command"
  mkdir -p /run/sshd
  # One key of this type is enough and quick to create; the keys of `ssh-keygen -A` take seconds on a busy node.
  compgen -G '/etc/ssh/ssh_host_*_key' >/dev/null ||
    ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key </dev/null >/dev/null 2>&1 || ssh-keygen -A >/dev/null
  bt_take_pool_key
  /usr/sbin/sshd -p 23 || bt_stop 1 "/usr/sbin/sshd -p 23 ended with code $?"
}

# The pool's own key, where the host's /home/_azbatch/.ssh is mounted; without it, keys baked into the image serve.
bt_take_pool_key() {
  local pool=/home/_azbatch/.ssh mine=~/.ssh key
  [ -r "$pool/authorized_keys" ] || return 0
  [ ! -e "$mine/.batchtrain" ] || return 0 # taken already
  mkdir -p "$mine"
  chmod 700 "$mine"
  cat "$pool/authorized_keys" >>"$mine/authorized_keys"
  for key in "$pool"/*_rsa; do
    [ -r "$key" ] || continue
    cp "$key" "$mine/"
    printf 'IdentityFile %s\n' "$mine/${key##*/}" >>"$mine/config"
  done
  chmod 600 "$mine"/*
  : >"$mine/.batchtrain"
}

# Asks the service of the start task to put this node into the IMEX domain of the gang, through which NVLink reaches the
# other nodes. The list of nodes must be the same on all of them.
bt_join_imex() {
  local folder=$AZ_BATCH_NODE_SHARED_DIR/batchtrain/imex deadline=$((SECONDS + ${BATCHTRAIN_IMEX_SECONDS:-60}))
  ! bt_emulated && [ -d "$folder/asked" ] && [ -z "$(bash "$bt_home/node.sh" imex "$AZ_BATCH_HOST_LIST")" ] || return 0
  rm -f "$folder/asked/.nodes" # of another user
  tr , '\n' <<<"$AZ_BATCH_HOST_LIST" | sort -V >"$folder/asked/.nodes"
  mv -f "$folder/asked/.nodes" "$folder/asked/nodes"
  until [ -n "$(bash "$bt_home/node.sh" imex "$AZ_BATCH_HOST_LIST")" ] || [ "$SECONDS" -ge "$deadline" ]; do sleep 0.5; done
}

# --- the primary, before the line

# For a DEBUG trap around pre_execution_command: a missing file that it sources stops the task.
bt_check_source() { # BASH_COMMAND
  local file folder found
  [[ $1 =~ ^(source|\.)[[:space:]]+(.*)$ ]] || return 0
  case ${BASH_REMATCH[2]} in '<('*) return 0 ;; esac
  eval "set -- ${BASH_REMATCH[2]}"
  [ "$1" != -- ] || shift
  file=$1
  [ -n "$file" ] && [ ! -r "$file" ] || return 0
  case $file in
    */*) ;;
    *) # bash looks for a bare name along PATH
      local IFS=:
      for folder in $PATH; do [ ! -r "$folder/$file" ] || found=1; done
      ;;
  esac
  [ -n "${found-}" ] || bt_stop 1 "pre_execution_command: $file is not there (or not readable) on this node"
}

# Sets bt_ports (mlx5_ib0:1,...) and bt_pkey; bt_ucx_ports is empty if UCX_TLS has no transport of InfiniBand.
bt_find_ports() {
  [ -z "${bt_ports-}" ] || return 0
  read -r _ bt_ports bt_pkey < <(bash "$bt_home/node.sh" infiniband)
  [ -n "$bt_ports" ] || bt_stop 1 'no InfiniBand port of this node is active (/sys/class/infiniband)'
  case ,${UCX_TLS:-all}, in *,all,* | *,ib,* | *,rc* | *,ud* | *,dc* | ,^*) bt_ucx_ports=$bt_ports ;; *) bt_ucx_ports='' ;; esac
}

# Prints how many GPUs this node has, or 1.
bt_count_gpus() {
  local gpus
  gpus=$(bash "$bt_home/node.sh" gpus | grep -c '^gpu ')
  echo "$((gpus > 0 ? gpus : 1))"
}

# processes_per_node holds what COMMAND printed; it must be a number of ranks.
bt_check_ranks() { # COMMAND
  local printed=$processes_per_node
  if [[ $printed =~ ^[[:space:]]*0*([1-9][0-9]*)[[:space:]]*$ ]]; then
    processes_per_node=${BASH_REMATCH[1]}
    return
  fi
  printed=${printed:0:200}
  case $1 in *nvidia-smi*) set -- "$1" " (no GPU, or no driver, on this node?)" ;; esac
  bt_stop 1 "processes_per_node: \`$1\` printed '${printed//$'\n'/ }', not a number of at least 1${2-}"
}

bt_order_hosts() { # INSTANCES
  local hosts
  # shellcheck source=/dev/null # in this process: a gang waits for it
  hosts=$(set +eu && . "$bt_home/node.sh" hosts "$1") || exit 1
  export AZ_BATCH_HOST_LIST="$hosts" BATCHTRAIN_HOST_LIST="$hosts"
}

# Put batchtrain's ssh before the node's: .batchtrain/bin/ssh says why.
bt_use_ssh() { # [PORT]
  ! bt_has_stand_in || return 0
  [ -z "${1-}" ] || bt_take_pool_key # Batch may run this in another container than the coordination command
  BATCHTRAIN_SSH=$(PATH=${PATH//"$bt_home/bin:"/} type -P ssh) ||
    bt_stop 1 "there is no ssh on PATH ($PATH): the ranks of other nodes are started through it"
  export BATCHTRAIN_SSH BATCHTRAIN_SSH_PORT="${1-}" PATH="$bt_home/bin:$PATH"
}

# Ask every other host for a sign of life, all at once, until each has answered or BATCHTRAIN_BARRIER_SECONDS are over.
# With expectations (see preflight.sh), each node is checked as well, this one too; all faults are reported before
# anything starts.
bt_wait_for_hosts() { # [EXPECTATION]...
  local -A missing=() unfit=()
  local seconds=${BATCHTRAIN_BARRIER_SECONDS:-120} host hosts answer left found=0 index
  local deadline=$((SECONDS + seconds))
  IFS=, read -r -a hosts <<<"$AZ_BATCH_HOST_LIST"
  for host in "${hosts[@]:$(($# == 0))}"; do missing[$host]='no answer'; done
  [ "${#missing[@]}" -gt 0 ] || return 0
  [ -n "${missing[${hosts[0]}]-}" ] || bt_joined 0 "${#hosts[@]}"
  exec 7< <(for host in "${!missing[@]}"; do bt_knock "$host" "$deadline" "$@" & done)
  while left=$((deadline + 2 - SECONDS)) && [ "${#missing[@]}" -gt 0 ] && [ "$left" -gt 0 ]; do
    read -r -t "$left" -u 7 host answer || break
    case $answer in
      'preflight warning:'*) bt_warn "${answer#*: }" ;;
      'preflight hardware:'*) bt_say "preflight:${answer#*:}" && found=$((found + 1)) unfit[$host]=1 ;;
      preflight:*) bt_say "$answer" && found=$((found + 1)) ;;
      ?*) missing[$host]=$answer ;;
      *)
        unset "missing[$host]"
        for index in "${!hosts[@]}"; do [ "${hosts[index]}" != "$host" ] || bt_joined "$index" "${#hosts[@]}"; done
        ;;
    esac
  done
  exec 7<&-
  if [ "${#missing[@]}" -gt 0 ]; then
    for host in "${!missing[@]}"; do bt_say "$host: ${missing[$host]}"; done
    bt_stop 1 "$(bt_names "${!missing[@]}") of ${#hosts[@]} $(bt_silence "$seconds" "${missing[@]}")"
  fi
  [ "$found" -ne 0 ] || return 0
  [ "${#unfit[@]}" -eq 0 ] || bt_hold "${!unfit[*]}" "$@"
  bt_stop 1 "$bt_unfit"
}

# Waits for a client that removes the nodes with broken hardware: the service then starts the task again, on other nodes.
bt_hold() { # ADDRESSES [EXPECTATION]...
  local host pair hosts seconds=0
  for pair in "${@:2}"; do case $pair in replace=*) seconds=${pair#*=} ;; esac done
  [ "$seconds" -gt 0 ] || return 0
  read -r -a hosts <<<"$1"
  for host in "${hosts[@]}"; do bt_record '{"unfit": "%s"}\n' "$host"; done
  bt_say "waits $seconds s for a client that replaces $(bt_names "${hosts[@]}")"
  sleep "$seconds"
}

bt_unfit="nothing was started: the nodes have faults (\`preflight: false\` in multi_instance skips this check)"

# Tells a client that follows stream.jsonl that a node has joined the gang.
bt_joined() { # INDEX COUNT
  bt_record '{"node": "n%s", "nodes": %s}\n' "$1" "$2"
}

bt_record() { # FORMAT WORD..., in stream.jsonl
  local folder=${AZ_BATCH_TASK_WORKING_DIR:-$bt_home}/ranks
  # shellcheck disable=SC2059 # the format is an argument
  { bt_make_directories "$folder" && printf "$@" >>"$folder/stream.jsonl"; } 2>/dev/null || :
}

bt_make_directories() { # DIRECTORY..., without a process for those that are there
  local directory
  for directory; do [ -d "$directory" ] || mkdir -p "$directory" || return; done
}

bt_silence() { # SECONDS REASON...
  local reason seconds=$1
  shift
  for reason; do
    case $reason in *'Permission denied'*) ;; *) echo "did not answer ssh in $seconds s" && return ;; esac
  done
  echo "accepted no ssh connection in $seconds s; what its image lacks, \`batchtrain images check\` says"
}

# Prints the faults and warnings of a host, a line each after its name, and then the name alone if it answered, or the name
# and the reason of the last failure.
bt_knock() { # HOST DEADLINE [EXPECTATION]...
  local host=$1 deadline=$2 said left code
  shift 2
  while left=$((deadline - SECONDS)) && [ "$left" -gt 0 ]; do
    [ "$left" -lt 5 ] || left=5
    said=$(bt_ask "$host" "$left" "$@" 2>&1 </dev/null)
    code=$?
    case $code in
      0 | 9)
        [[ $said != *preflight* ]] || sed -n "s/^preflight[a-z ]*: /$host &/p" <<<"$said"
        echo "$host" && return
        ;;
    esac
    sleep 0.5 2>/dev/null || sleep 1
  done
  echo "$host ${said##*$'\n'}"
}

# Runs on the host itself, or through ssh. Nodes that the emulator runs as plain processes share a file system, where
# each has its own root, and have no port for ssh.
bt_ask() { # HOST SECONDS [EXPECTATION]...
  local host=$1 seconds=$2 text=true root=${AZ_BATCH_NODE_ROOT_DIR-} now
  shift 2
  if [ "$#" -gt 0 ]; then
    printf -v now '%(%s)T' -1
    set -- "$@" "own=$host" "hosts=$AZ_BATCH_HOST_LIST" "now=$now"
    if bt_emulated; then set -- "$@" emulated=1; fi
    if bt_has_stand_in; then set -- "$@" port=; fi
    printf -v text ' %q' "$@"
    # shellcheck disable=SC2016 # for the other node's shell
    printf -v text 'here=%q; case ${BATCHTRAIN_EMULATED_NODE-} in /*) here=$BATCHTRAIN_EMULATED_NODE${here#%q} ;; esac
      exec bash "$here/preflight.sh" %s' "$bt_home" "$root" "$text"
    if [ "$host" = "${AZ_BATCH_HOST_LIST%%,*}" ]; then
      bash -c "$text"
      return
    fi
  fi
  ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o ConnectTimeout="$seconds" -o ServerAliveInterval=5 "$host" "$text"
}

bt_names() { # "node a", "nodes a and b", "nodes a, b and c"
  local sorted list
  mapfile -t sorted < <(printf '%s\n' "$@" | sort -V)
  [ "$#" -gt 1 ] || { echo "node $1" && return; }
  printf -v list ', %s' "${sorted[@]:0:$#-1}"
  echo "nodes ${list:2} and ${sorted[$# - 1]}"
}

# A rank that ends by an exception waits in MPI_Finalize for the others, and they for it; `-m mpi4py` aborts instead. Python
# needs some time for the answer, and the hosts are asked meanwhile.
bt_ask_for_mpi4py() { # INTERPRETER
  exec {bt_mpi4py_answer}< <(! "$@" -c 'import mpi4py.run' >/dev/null 2>&1 </dev/null || echo yes)
}

bt_find_mpi4py() { # INTERPRETER
  bt_mpi4py=()
  if read -r -t 1000000000 -u "$bt_mpi4py_answer" _; then # without a time of its own it would take TMOUT's
    bt_mpi4py=(-m mpi4py)
  else
    bt_say "$* has no mpi4py: a rank with an exception may leave the others waiting for ever"
  fi
  exec {bt_mpi4py_answer}<&-
}

# Intel MPI removed DAPL and OFA in 2019: newer ones warn, fall back to tcp silently, and exit 0.
bt_need_old_intelmpi() { # WHAT EXECUTABLE
  local what=$1 version
  shift
  version=$("$@" -V 2>&1 </dev/null)
  case $version in
    *'Version 20'[0-9][0-9]*) version=${version#*Version } ;;
    *) version= ;;
  esac
  version=${version%%[!0-9.]*}
  [ "${version%%.*}" ] && [ "${version%%.*}" -ge 2019 ] || return 0
  if bt_emulated; then
    bt_say "Intel MPI $version has no $what: on a real node this stops the task; it continues over tcp here"
  else
    bt_stop 1 "Intel MPI $version has no $what (removed in 2019), which this InfiniBand needs; use Intel MPI 2018 or a current VM size"
  fi
}

# Sets bt_share to the cores of each of several ranks on its node, or bt_unbound where no rank is to be bound: emulated nodes
# share the cores of one machine. Sets neither if a variable whose name fits a pattern binds the ranks.
bt_share_cores() { # RANKS PATTERN...
  local pattern ranks=$1
  bt_share='' bt_unbound=''
  shift
  for pattern; do ! compgen -e -X "!$pattern" >/dev/null || return 0; done
  bt_emulated || [ "$ranks" -eq 1 ] || bt_share=$(bash "$bt_home/node.sh" share "$ranks")
  [ -n "$bt_share" ] || bt_unbound=1
}

# Whether the ranks of a node are more than the CPUs that a process may use. Sets bt_processors to their number.
bt_is_crowded() { # RANKS
  local name list range ranges
  while read -r name list; do [ "$name" != Cpus_allowed_list: ] || break; done </proc/self/status
  IFS=, read -r -a ranges <<<"$list"
  bt_processors=0
  for range in "${ranges[@]}"; do bt_processors=$((bt_processors + ${range#*-} - ${range%-*} + 1)); done
  [ "$1" -gt "$bt_processors" ] || return
  bt_say "$1 ranks share the $bt_processors processors of a node: those that wait yield"
}

# Sets bt_slots to the hosts with the slots of each: one for each rank. With more ranks than processors, it is one for each
# processor, and bt_oversubscribe has the option without which Open MPI refuses that.
bt_state_slots() { # RANKS
  local slots=$1
  bt_oversubscribe=()
  ! bt_is_crowded "$1" || { slots=$bt_processors && bt_oversubscribe=(--oversubscribe); }
  bt_slots=${AZ_BATCH_HOST_LIST//,/:$slots,}:$slots
}

# Open MPI sends only its own variables and those of -x to other nodes.
bt_list_exported() {
  local name
  bt_exported=()
  for name in $(compgen -e); do
    case $name in
      AZ_BATCH_* | OMPI_* | PMIX_* | PRTE_* | SSH_* | BATCHTRAIN_EMULATED_NODE) ;;
      HOME | USER | LOGNAME | HOSTNAME | PWD | OLDPWD | SHLVL | TERM | _) ;;
      *[!A-Za-z0-9_]*) ;;
      *) bt_exported+=(-x "$name") ;;
    esac
  done
}

# Where Open MPI's daemon is found on the other nodes: beside the launcher, on the same path.
bt_find_prefix() { # EXECUTABLE
  local path
  bt_prefix=()
  path=$(type -P "$1") || return 0
  case $path in /*/bin/*) bt_prefix=(--prefix "${path%/bin/*}") ;; esac
}

# --- the primary: the line

# Before the line: job control gives each background job a process group, which can be ended as a whole.
bt_begin() {
  set +euET -m -o pipefail
  [ ! -t 0 ] || exec </dev/null # a background job that reads a terminal is stopped
  exec 6>&2 9<> <(:)
}

# Runs the launcher (the arguments) to its end, while stream.jsonl gets what all ranks print and measure.
bt_gang() {
  local code remote=() local=''
  bt_run_gang "$@"
  code=$?
  bt_end_stream
  return "$code"
}

# Starts lines.sh on every node. All end when fd 5 is closed, and then the primary's, which also passes on what the
# others sent, when fd 4 is.
bt_begin_stream() { # sets remote and local to the processes
  local host hosts number=0 attempt=${BATCHTRAIN_ATTEMPT:-1} folder=${AZ_BATCH_TASK_WORKING_DIR:-$bt_home}/ranks command
  local pipe=$bt_home/ranks/stream.pipe
  { [ -r "$bt_home/environment" ] && [[ $(<"$bt_home/environment") == *"BATCHTRAIN_AWK='a"* ]] &&
    bt_make_directories "$folder" "$bt_home/ranks" && { [ -p "$pipe" ] || mkfifo "$pipe"; }; } || return 0
  IFS=, read -r -a hosts <<<"$AZ_BATCH_HOST_LIST"
  for host in "${hosts[@]:1}"; do
    number=$((number + 1))
    printf -v command '%q ' bash "$bt_home/lines.sh" "n$number" "$attempt" "${AZ_BATCH_NODE_ROOT_DIR-}"
    ssh -o BatchMode=yes -o ConnectTimeout=10 -o StrictHostKeyChecking=no -o ServerAliveInterval=5 "$host" "$command" \
      <"$pipe" >"$bt_home/ranks/n$number.node" 2>/dev/null 6>&- 9>&- &
    remote+=("$!")
  done
  exec 4> >(exec bash "$bt_home/lines.sh" n0 "$attempt" 7>&1 8>&2 >>"$folder/stream.jsonl" 2>/dev/null 6>&- 9>&-)
  local=$!
  [ "${#remote[@]}" -eq 0 ] || exec 5>"$pipe"
}

bt_end_stream() {
  [ -n "$local" ] || return 0
  bt_end_remote_streams
  local deadline=$((SECONDS + 3))
  bt_wait_until "$deadline" "${remote[@]}"
  exec 4>&-
  bt_wait_until "$((deadline + 1))" "$local"
}

bt_end_remote_streams() { [ "${#remote[@]}" -eq 0 ] || exec 5>&-; }

# Waits for processes to end, and kills those that do not. The gang has ended: its events are over.
bt_wait_until() { # DEADLINE [PROCESS]...
  local deadline=$1 process
  shift
  for process; do
    while kill -0 "$process" 2>/dev/null && [ "$SECONDS" -lt "$deadline" ]; do read -r -t 0.002 -u 9 _; done
    bt_end_process "$process"
  done
}

# The launcher. When a rank fails, ends the gang at once, names the rank and returns
# its code: Intel MPI alone would give 255, and MPICH 5 would never end. A message of ours on the launcher's stderr is
# only the hint to look whether a rank has failed; how it failed is what the nodes have noted.
bt_run_gang() {
  local event='' hint='' abort='' code='' told='' gone='' alone='' swept=() record launcher watch
  set -m
  exec 8> >(bt_tap)
  {
    trap : TERM INT
    "$@" 2>&8 6>&- 8>&- 9>&-
    echo "ended $?" >&9
  } <&0 &
  launcher=$!
  set +m
  exec 8>&-
  bt_begin_stream # beside the launcher, which takes longer to start
  bt_watch_launch &
  watch=$!
  bt_await_end
  bt_end_process "$watch"
  [ "$event" != told ] || told=143
  if [ -n "$code" ]; then
    [ "$code$hint$abort$gone" != 0 ] || bt_end_remote_streams # while the rest of its stderr comes
    bt_drain 2
    [ "$code$abort$gone" != 0 ] || bt_find_singletons || { [ -n "$hint" ] && bt_any_failed; } || return 0
    [ -n "$hint$abort$alone" ] || sleep 0.3 # the ranks are still noting how they ended
    exec 7< <(bt_sweep "$bt_grace")
  else
    exec 7< <(bt_sweep "$bt_grace")
    bt_end_launcher "$launcher"
  fi
  [ -z "$gone" ] || code=$((code > 0 ? code : 1)) # Open MPI 5 ends with 0 then
  while read -r -t $((5 + ${bt_grace%%.*})) -u 7 record; do swept+=("$record"); done
  exec 7<&-
  if [ -z "$told" ] && bt_find_singletons; then
    bt_tell_singletons "$1"
    return 1
  fi
  bt_find_cause || bt_say "$(bt_why_not "$1")" 2>&6
  return "${told:-$code}"
}

# Until the launcher has ended, the task is to end, a rank has failed, or every rank is alone. After a hint without a
# failure, which a program may have printed, the nodes are asked again after 1, 2, 4 and 8 s, as an ssh may have failed.
bt_await_end() {
  local again=0
  while :; do
    if [ "$again" = 0 ]; then bt_next_event; else bt_next_event "$again" || event=late; fi
    case $event in
      "$bt_tag") again=1 ;;
      late) again=$((again * 2 % 16)) ;;
      alone) if bt_find_singletons; then return; else continue; fi ;;
      *) return ;;
    esac
    ! bt_any_failed || { hint=1 && return; }
    hint=''
  done
}

bt_why_not() { # EXECUTABLE, which ended with $code
  if [ -n "$gone" ]; then
    echo "$1 lost a node: its daemon there is gone, with the node or its container; this is a failure, with code $code"
  elif [ "$code" = 213 ] && bt_on_loopback && ! grep -qvE '^(Iface|vir)' /proc/net/route 2>/dev/null; then
    echo "$1 ended with code 213: Open MPI's daemons do not use the loopback interface, and this machine has no other now; connect it to a network, or take MPICH or Intel MPI here"
  elif [ "$code" = 127 ] && ! type -P "$1" >/dev/null; then
    echo "there is no $1 on PATH (${PATH//"$bt_home/bin:"/}); put it there in pre_execution_command, name it in mpi.executable_path, or install the MPI"
  else
    echo "$1 ended with code $code, and no rank reported a failure"
  fi
}

# Sets alone to the number of ranks and their MPI, if each of them is alone in the world of this MPI: another one's launcher
# started it, and it would train all the data by itself. A node with such ranks is the hint to ask the others.
bt_find_singletons() {
  local size mpi count=0
  [ -z "$alone" ] || return 0
  compgen -G "$bt_home/ranks/*.alone" >/dev/null || return
  while read -r -t 5 size mpi; do alone="$size $mpi" count=$((count + 1)); done < <(bt_sweep alone)
  [ "$count" != "${alone%% *}" ] || return 0
  alone=''
  return 1
}

bt_tell_singletons() { # EXECUTABLE
  local folder=${AZ_BATCH_TASK_WORKING_DIR:-$bt_home}/ranks time mpi=${alone#* } launcher=$BATCHTRAIN_LAUNCHER text
  [ "$mpi" != "$launcher" ] || launcher="another $mpi"
  text="each of the ${alone%% *} ranks is rank 0 of 1: the program uses $mpi, and $1 is the launcher of $launcher"
  TZ=UTC printf -v time '%(%Y-%m-%dT%H:%M:%S)T' -1
  mkdir -p "$folder" &&
    printf '{"rank": null, "process": "", "exit_code": 1, "time": "%sZ", "attempt": %s, "ending": %s, "cause": "%s"}\n' \
      "$time" "${BATCHTRAIN_ATTEMPT:-1}" "$(bt_json "$text")" singletons >"$folder/ends.jsonl"
  bt_say "$text" 2>&6
}

# Sets event from fd 9, and with it code (the launcher's), hint (a message of ours), abort (that of MPI_Abort) or gone (Open
# MPI has lost a node); fails when none comes in time. `read -t` drops what it has read when its time ends just then, so that the time
# is an event as well.
bt_next_event() { # [SECONDS]
  local clock=''
  if [ -n "${1-}" ]; then
    bt_clock "$1" &
    clock=$!
  fi
  while read -r -t 1000000000 event <&9; do # without a time of its own it would take TMOUT's
    case $event in
      fallback*) bt_warn "a rank does not use the network that was planned: ${event#* }" 2>&6 ;;
      "late $clock" | [!l]*) break ;; # not the end of an earlier time
    esac
  done
  [ -z "$clock" ] || bt_end_process "$clock"
  case $event in
    late*) return 1 ;;
    ended*) code=${event#ended } ;;
    "$bt_tag") hint=1 ;;
    Abort*) abort=${abort:-$event} ;;
    ?RTE*) gone=1 ;;
  esac
}

bt_clock() { # SECONDS
  bt_be_quiet
  read -r -t "$1"
  echo "late $BASHPID" >&9
}

# The launch itself may be killed without any event. NCCL notes its network in a file when it starts. A rank that is alone
# makes no event either; other ranks may be alone later: after the first one, all nodes are asked again after 1, 2, 4, … s.
bt_watch_launch() {
  local pause=1 left=1 line=''
  bt_be_quiet
  while kill -0 "$$"; do
    read -r -t 1
    if compgen -G "$bt_home/ranks/*.alone" && [ "$((left -= 1))" -le 0 ]; then
      echo alone >&9
      pause=$((pause * 2)) left=$pause
    fi
    if [ -n "$line" ] || ! compgen -G "$bt_home/ranks/nccl.*"; then continue; fi
    line=$(grep -ahm 1 -e 'network Socket' -e NET/Socket/ -e 'Init COMPLETE' "$bt_home"/ranks/nccl.*)
    case $line in *Socket*) echo "fallback ${line%%$'\n'*}" >&9 ;; esac
  done
  echo told >&9
}

# stdin stays empty, and the gang's streams are not held open.
bt_be_quiet() { exec 4>&- 5>&- 6>&- 8>&- <> <(:) >/dev/null 2>&1; }

bt_end_process() { # PROCESS, of whose end the shell says nothing
  kill -s KILL "$1" 2>/dev/null
  wait "$1" 2>/dev/null
}

# Until all of the gang's stderr has been passed on; an orphan that holds it open does not stop us for long.
bt_drain() { # SECONDS
  while bt_next_event "$1"; do
    [ "$event" != drained ] || return 0
  done
}

# The launcher may end by itself when its ranks do; else SIGTERM, else SIGKILL.
bt_end_launcher() { # PROCESS-GROUP
  local signal patience=0.15
  [ -z "$told" ] || patience=$bt_grace # its ranks may have something to save
  for signal in TERM KILL; do
    while [ -z "$code" ] && bt_next_event "$patience"; do :; done
    [ -z "$code" ] || break
    kill -s "$signal" -- "-$1" 2>/dev/null || break
    patience=0.5
  done
  wait "$1" 2>/dev/null # the shell would remark on it later
  code=${code:-${gone:-$?}} # it was killed before it could say
  bt_drain 0.2
}

# The earliest failure that the nodes have noted is the cause. But
# - the MPI's own message names the rank that called MPI_Abort: its later end is random;
# - an MPI that lost its peer exits with its own error class (13 to 17): it is the cause only if there is no other;
# - a rank that ended by itself while its launcher was killing (its message was lost) has the launcher's code.
# Sets code, writes all failures to ends.jsonl, and prints the cause if the task's stderr lacks it. Fails without one.
bt_find_cause() {
  local -A place=()
  local first='' victim='' by='' ends=() lost=() early=() printed=() record end kind when rank status node address memory
  for record in "${swept[@]}"; do
    read -r kind when rank status node address memory <<<"$record"
    case $kind in
      here) place[$rank]="$node $address" ;;
      noted) ends+=("$when $rank $status $node $address ${memory:--}") ;;
      lost) lost+=("$when $rank $status $node $address ${memory:--}") ;;
      ended) early+=("$when $rank $status $node $address - ended-early") ;;
    esac
  done
  [ -z "$told" ] || return 0
  mapfile -t ends < <([ "${#ends[@]}" = 0 ] || printf '%s\n' "${ends[@]}" | LC_ALL=C sort)
  for end in "${ends[@]}"; do
    read -r _ _ status _ <<<"$end"
    case $status in 1[3-7]) victim=${victim:-$end} ;; *) first=${first:-$end} ;; esac
  done
  read -r when rank status node address memory <<<"${first:-$victim}"
  if [[ $abort =~ ^Abort\(([0-9]+)\)\ on\ node\ ([0-9]+) ]] && [[ -z $first || $rank = "${BASH_REMATCH[2]}" ]]; then
    [ "$rank" = "${BASH_REMATCH[2]}" ] || printf -v when '%(%s)T.0' -1
    rank=${BASH_REMATCH[2]} status=$((BASH_REMATCH[1] & 255 ? BASH_REMATCH[1] & 255 : 1))
    read -r node address <<<"${place[$rank]:-- -}"
    by=' through MPI_Abort' # its process may have said that a signal killed it
  elif [ -z "$rank$abort$gone" ] && [ "${#lost[@]}" -eq 1 ]; then
    read -r when rank status node address memory <<<"${lost[0]}"
    [ -n "$hint" ] || status=$code
  fi
  [ -n "$rank" ] || return 1
  code=$status
  mapfile -t printed < <(bt_last_lines "$rank" "$address")
  mapfile -t early < <([ "${#early[@]}" = 0 ] || printf '%s\n' "${early[@]}" | LC_ALL=C sort)
  bt_write_ends "$when $rank $code $node $address ${memory:--}" "${ends[@]}" "${early[@]}"
  [ -n "$hint" ] && [ -z "$by" ] && [ "$code" != 134 ] && [ /dev/fd/2 -ef /dev/fd/6 ] ||
    printf 'batchtrain: %s\n' "rank ${rank/#-/unknown} on $(bt_place "$node" "$address") $(bt_ending "$code")$by" >&6
}

bt_place() { # NODE ADDRESS
  [ "$1" != - ] || { echo "an unknown node" && return; }
  echo "node $1 (${2/#-/no address})"
}

bt_ending() { # CODE
  if bt_is_signal "$1"; then echo "was killed by signal $(($1 - 128))"; else echo "exited with code $1"; fi
}

bt_is_signal() { [ "$1" -gt 128 ] && [ "$1" -lt 193 ]; } # CODE

# What a rank has printed last, from its files on its own node; nothing without such files.
bt_last_lines() { # RANK ADDRESS
  local command
  printf -v command '%q ' sh "$bt_home/sweep.sh" printed "${AZ_BATCH_NODE_ROOT_DIR-}" "$1"
  case $2 in
    -) ;;
    "${AZ_BATCH_HOST_LIST%%,*}") eval "$command" ;;
    *) ssh -o BatchMode=yes -o ConnectTimeout=3 -o StrictHostKeyChecking=no "$2" "$command" ;;
  esac </dev/null 2>/dev/null 6>&- 9>&-
}

# The ends of ranks as the client reads them, a line of JSON each: that of the cause first, with its lines.
bt_write_ends() { # CAUSE [END]..., each as "TIME RANK CODE NODE ADDRESS MEMORY [NAME]"
  local folder=${AZ_BATCH_TASK_WORKING_DIR:-$bt_home}/ranks cause=$1 names=() end
  shift
  mkdir -p "$folder" && {
    # shellcheck disable=SC2086 # its fields
    bt_print_end $cause
    by='' printed=()
    for end; do
      # shellcheck disable=SC2086
      case $end in "${cause% * * * *} "*) ;; *) bt_print_end $end ;; esac
    done
  } >"$folder/ends.jsonl.new" && mv "$folder/ends.jsonl.new" "$folder/ends.jsonl"
}

bt_print_end() { # TIME RANK CODE NODE ADDRESS MEMORY [NAME of what happened], with by, printed and names (of signals) of its caller
  local rank=${2/#-/null} time fraction=${1#*.} number=$(($3 - 128)) ends memory=${6/#-/} line lines='' by=${7:+ before the others}${by-}
  TZ=UTC printf -v time '%(%Y-%m-%dT%H:%M:%S)T' "${1%.*}"
  case $fraction in *[!0-9]*) ;; *) time+=.${fraction:0:6} ;; esac
  if bt_is_signal "$3"; then
    [ -n "${names[number]-}" ] || names[number]=$(kill -l "$number" 2>/dev/null)
    ends="\"signal\": $number, \"signal_name\": \"SIG${names[number]}\""
  else
    ends="\"exit_code\": $3"
  fi
  for line in "${printed[@]}"; do [ -z "$line" ] || lines+=", $(bt_json "$line")"; done
  printf '{"rank": %s, "process": "rank %s", "node": %s, "address": %s, %s, "time": "%sZ", "attempt": %s%s%s%s%s}\n' \
    "$rank" "${2/#-/unknown}" "$(bt_json "$4")" "$(bt_json "$5")" "$ends" "$time" "${BATCHTRAIN_ATTEMPT:-1}" \
    "${by:+, \"ending\": $(bt_json "$(bt_ending "$3")$by")}" "${memory:+, \"full_memory\": \"$memory\"}" \
    "${7:+, \"cause\": \"$7\"}" "${lines:+, \"lines\": [${lines#, }]}"
}

bt_json() { # TEXT, or - for none
  local text=$1
  [ "$1" != - ] || text=''
  text=${text//[[:cntrl:]]/ }
  text=${text//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}

# Whether a rank has noted a failure: on this node, or on another one, which an ssh asks.
bt_any_failed() { compgen -G "$bt_home/ranks/*.failed" >/dev/null || read -r -t 5 _ < <(bt_sweep look); }

# Runs sweep.sh on every node at once and prints the records of the ranks. The wait for a silent node is short.
bt_sweep() { # GRACE, or look
  local host hosts command
  exec 4>&- 5>&- 6>&- 9>&- </dev/null 2>/dev/null
  printf -v command '%q ' sh "$bt_home/sweep.sh" "$1" "${AZ_BATCH_NODE_ROOT_DIR-}"
  IFS=, read -r -a hosts <<<"$AZ_BATCH_HOST_LIST"
  for host in "${hosts[@]:1}"; do
    ssh -o BatchMode=yes -o ConnectTimeout=3 -o StrictHostKeyChecking=no "$host" "date +'clock %s'; $command" |
      bt_by_our_clock &
  done
  sh "$bt_home/sweep.sh" "$1" &
  wait
}

# The records of a node with the times of this node's clock, if the other one is more than a second off.
bt_by_our_clock() {
  local kind when fields now skew=0
  while read -r kind when fields; do
    case $kind in
      clock) printf -v now '%(%s)T' -1 && skew=$((when - now)) && [ "${skew#-}" -gt 1 ] || skew=0 ;;
      noted | lost | ended) echo "$kind $((${when%%.*} - skew)).${when#*.} $fields" ;;
      *) echo "$kind $when $fields" ;;
    esac
  done
}

# Passes on stdin, byte for byte and at once, to stderr; what may tell of a failure goes to the events as well. A program
# that prints our tag again and again is not heard for ever.
bt_tap() {
  local line fallback=("${bt_fallback[@]}")
  trap '' TERM INT
  tee >(
    for _ in {1..100}; do
      line=$(LC_ALL=C grep -a -o -m 1 -e "$bt_tag " -e 'Abort([0-9]*) on node [0-9]*[ :]' -e "$bt_gone" "${fallback[@]}") || break
      case $line in "$bt_tag"* | Abort* | ?RTE*) ;; *) line="fallback ${line:0:300}" fallback=() ;; esac
      echo "$line" >&9
    done
    cat >/dev/null
    echo drained >&9
  ) >&2 6>&- 9>&-
}

bt_gone='[OP]RTE has lost communication with a remote daemon'
bt_tag='batchtrain:' # our messages begin with it

# What a library says when it uses another network: Intel MPI (a fabric of before 2019), UCX (ucp_context.c), and Open MPI
# (help-mpi-btl-tcp.txt, help-mpi-btl-openib.txt).
bt_fallback=(
  -e '.*:\(ofa\|dapl\) fabric is unknown or has been removed.*'
  -e ".*network device '.*' is not available.*"
  -e '.*An invalid value was given for btl_tcp_if_.*'
  -e '.*error initializing an OpenFabrics device.*'
)

# After the line: reads from NCCL's notes in ranks/ of every node which network it used. Returns CODE.
bt_judge_nccl() { # CODE
  local host hosts python processes=() text root=${AZ_BATCH_NODE_ROOT_DIR-}
  compgen -G "$bt_home/ranks/nccl.*" >/dev/null || return "$1"
  for python in python3 python ''; do
    ! "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 6))' >/dev/null 2>&1 || break
  done
  [ -n "$python" ] ||
    { bt_say "which network NCCL took stands in .batchtrain/ranks/nccl.* (no python3 here to read it)" 2>&6 && return "$1"; }
  IFS=, read -r -a hosts <<<"$AZ_BATCH_HOST_LIST"
  for host in "${hosts[@]}"; do
    # shellcheck disable=SC2016 # for the other node's shell
    printf -v text 'here=%q; case ${BATCHTRAIN_EMULATED_NODE-} in /*) here=$BATCHTRAIN_EMULATED_NODE${here#%q} ;; esac
      . "$here/environment"; cd "$here/ranks" && echo "node ${AZ_BATCH_NODE_ID:-$(uname -n)} (%s)"
      grep -aHm 5000 -E "NET/|network|NET plugin|libibverbs|GPU Direct|Init COMPLETE|NCCL WARN" nccl.*' "$bt_home" "$root" "$host"
    if [ "$host" = "${hosts[0]}" ]; then
      bash -c "$text"
    else
      timeout 10 ssh -o BatchMode=yes -o ConnectTimeout=3 -o StrictHostKeyChecking=no "$host" "$text"
    fi >"$bt_home/ranks/heard.$host" 2>/dev/null </dev/null 6>&- 9>&- &
    processes+=("$!")
  done
  wait "${processes[@]}"
  "$python" -I -S "$bt_home/verdict.py" "${AZ_BATCH_TASK_WORKING_DIR:-$bt_home}/ranks/stream.jsonl" \
    "${hosts[@]/#/$bt_home/ranks/heard.}" 2>&6
  return "$1"
}

# Wait for the line, and pass on the signal that ends the task. Exits with the line's code.
bt_attend() { # PROCESS
  bt_line=$1 bt_last_resort=
  trap bt_tell TERM INT HUP
  while
    wait "$bt_line"
    bt_code=$?
    [ "$bt_code" -gt 128 ] && kill -0 "$bt_line" 2>/dev/null
  do :; done
  [ -z "$bt_last_resort" ] || kill -s KILL -- "-$bt_last_resort"
  exit "$bt_code"
}

bt_tell() {
  echo told >&9
  [ -z "$bt_last_resort" ] || return 0
  { sleep $((5 + ${bt_grace%%.*})) && kill -s KILL -- "-$bt_line"; } >/dev/null 2>&1 9>&- & # for what is no gang, or comes after it
  bt_last_resort=$!
}
