#!/bin/sh
# rank.sh COMMAND [ARGUMENT]... runs one rank of a gang.
#
# It gives COMMAND the AZ_BATCH_* values of the node it is on (an MPI launcher brings the primary's, or none), leaves
# stdin, stdout and stderr alone, and says on stderr how COMMAND failed, if it did:
#     batchtrain: rank 3 on node tvm-2 (10.0.0.5) exited with code 7
#
# Three processes, so that a rank's end is known even where the launcher kills all it started at once (MPICH does,
# after MPI_Abort):  this one, which the launcher knows, waits;  the supervisor, in a session of its own, is COMMAND's
# parent and reports;  the guard holds a pipe between the two. The guard goes when the launcher's daemon or this
# process goes; then the pipe ends, and the supervisor ends COMMAND. So no rank outlives its launcher.
#
# For sh as in dash, bash and busybox. What it notes for sweep.sh stands in ranks/ beside this file:
#     R.pid     two lines: the rank's process, the supervisor's (leader of the rank's process group)
#     R.told    somebody ended the rank: its end is no failure
#     R.failed  the line above

rank=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${MV2_COMM_WORLD_RANK:-${MPIRUN_RANK:-}}}}}

# --- the process that the launcher knows

# The value that a variable had when the launcher's daemon was started: by sshd, on every node but the primary.
daemon_started_with() {
  tr '\0' '\n' <"/proc/$PPID/environ" 2>/dev/null | sed -n "s/^$1=//p"
}

# Nodes that the emulator runs as plain processes share one file system, where each has a root of its own; our path
# and our directory are the primary's then.
move_to_emulated_node() {
  # shellcheck source=/dev/null
  [ -r "$here/environment" ] && . "$here/environment"
  theirs=$AZ_BATCH_NODE_ROOT_DIR ours=$(daemon_started_with BATCHTRAIN_EMULATED_NODE)
  [ -n "$theirs" ] && [ -n "$ours" ] && [ "$theirs" != "$ours" ] || return 0
  export BATCHTRAIN_EMULATED_NODE="$ours"
  case $here in "$theirs"/*) ;; *) return 0 ;; esac
  [ -r "$ours${here#"$theirs"}/environment" ] || return 0
  here=$ours${here#"$theirs"}
  case $PWD in "$theirs"/*) cd "$ours${PWD#"$theirs"}" 2>/dev/null || : ;; esac
}

restore_environment() {
  # shellcheck source=/dev/null
  [ -r "$here/environment" ] && . "$here/environment"
  # The whole gang shares one order of hosts: the primary first, as in the launch.
  [ -z "${BATCHTRAIN_HOST_LIST-}" ] || export AZ_BATCH_HOST_LIST="$BATCHTRAIN_HOST_LIST"
}

# The address that the primary reached this node at.
own_address() {
  if [ "${AZ_BATCH_IS_CURRENT_NODE_MASTER-}" = true ]; then
    echo "${AZ_BATCH_MASTER_NODE%:*}"
  else
    daemon_started_with SSH_CONNECTION | cut -d ' ' -f 3
  fi
}

# Holds stdout, the pipe to the supervisor, open for as long as this process and the launcher's daemon live, and
# passes on a signal that the launcher sends to the rank's process group.
guard() {
  eval "exec $input<&- $errors>&- </dev/null"
  read -r self _ </proc/self/stat
  echo "$self"
  sleeper=
  trap 'echo TERM; kill $sleeper; exit' TERM
  trap 'echo INT; kill $sleeper; exit' INT
  trap 'kill $sleeper; exit' HUP # from the supervisor: the rank has ended
  while kill -0 "$PPID" && kill -0 "$$"; do
    sleep 1 >/dev/null &
    sleeper=$!
    wait "$sleeper"
  done
}

# Three descriptors that are not in use: a rank may have inherited any (PMI_FD), and dash knows only one digit.
choose_descriptors() {
  set --
  for number in 3 4 5 6 7 8 9; do
    [ -e "/proc/self/fd/$number" ] || set -- "$@" "$number"
  done
  input=$1 errors=$2 pipe=$3
}

wait_for_supervisor() {
  here=${0%/*}
  [ -z "${BATCHTRAIN_EMULATED_NODE-}" ] || move_to_emulated_node
  restore_environment
  choose_descriptors
  new_session=setsid
  command -v setsid >/dev/null 2>&1 || new_session=
  # COMMAND's own stdin and stderr; 2 is closed to the shells' remarks ("Killed").
  eval "exec $input<&0 $errors>&2 2>/dev/null"
  trap : TERM INT # the guard has them too, and passes them on
  # shellcheck disable=SC2086 # no word when there is no setsid
  guard | $new_session sh "$0" --supervise "$input" "$errors" "$pipe" "$here/ranks/${rank:-$$}" "$(own_address)" "$@"
}

# --- the supervisor

# Ends the rank when the pipe ends, or with the signal that the guard passes on.
# Without one the launcher has been killing: a rank that is just ending by itself (MPI_Abort) is let end, to see why.
end_with_launcher() {
  eval "exec <&$pipe $pipe<&- $input<&- $errors>&- >/dev/null"
  read -r signal
  rank_process=
  read -r rank_process <"$record.pid"
  if [ -z "$signal" ]; then
    for _ in 1 2 3 4 5; do
      kill -0 "$rank_process" || return
      sleep 0.05
    done
  fi
  : >"$record.told"
  kill -s "${signal:-TERM}" "$rank_process"
  sleep "${BATCHTRAIN_GRACE_SECONDS:-1}"
  kill -s KILL "$rank_process"
}

report() {
  ending="exited with code $code"
  [ "$code" -le 128 ] || ending="was killed by signal $((code - 128))"
  line="batchtrain: rank ${rank:-unknown} on node ${AZ_BATCH_NODE_ID:-$(uname -n)} (${address:-no address}) $ending"
  echo "$line" >"$record.failed"
  trap '' PIPE # the launcher may be gone
  printf '%s\n' "$line" >&"$errors"
}

supervise() {
  input=$1 errors=$2 pipe=$3 record=$4 address=$5
  shift 5
  mkdir -p "${record%/*}"
  rm -f "$record".*
  read -r guard_process
  eval "exec $pipe<&0 </dev/null"
  end_with_launcher &
  watcher=$!
  # COMMAND stays in the foreground: in the background it would ignore SIGINT.
  note_and_run='printf "%s\n" "$$" "$PPID" >"$0.pid"; exec "$@" 2>&'"$errors $errors>&-"
  eval 'sh -c "$note_and_run" "$record" "$@"' "<&$input $input<&- $pipe<&-"
  code=$?
  kill "$watcher"
  kill -s HUP "$guard_process"
  if [ "$code" -eq 0 ]; then
    rm -f "$record.pid"
  elif [ ! -e "$record.told" ]; then
    report
  fi
  exit "$code"
}

case $1 in
  --supervise) shift; supervise "$@" ;;
  *) wait_for_supervisor "$@" ;;
esac
