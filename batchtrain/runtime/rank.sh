#!/bin/sh
# shellcheck disable=SC2317 # the calls of some functions are put in by the launch
# rank.sh COMMAND [ARGUMENT]... runs one rank of a gang.
#
# It gives COMMAND the AZ_BATCH_* values of the node it is on (an MPI launcher brings the primary's, or none), leaves
# stdin, stdout and stderr alone, and says on stderr how COMMAND failed, if it did:
#     batchtrain: rank 3 on node tvm-2 (10.0.0.5) exited with code 7
#
# Three processes, so that a rank's end is known even where the launcher kills all it started at once (MPICH does,
# after MPI_Abort):  this one, which the launcher knows, waits;  the supervisor, in a session of its own, is COMMAND's
# parent and reports;  the guard holds a pipe to it. The guard goes when the launcher's daemon or this process goes;
# then the pipe ends, and the supervisor ends COMMAND. So no rank outlives its launcher.
#
# For sh as in dash, bash and busybox. Launchers leave COMMAND many open files and name some by number (PMI_FD), and
# dash knows numbers of one digit only: hence the named pipe. What is noted for sweep.sh, in ranks/ beside this file:
#     R.pid     the rank's process, the supervisor's (it leads the rank's process group), and NODE ADDRESS, a line each
#     R.lost    the launcher went first, or is ending its ranks
#     R.told    this script ended the rank: its end is no failure
#     R.failed  TIME RANK CODE NODE ADDRESS MEMORY: when and how it ended, as a shell reports it; the memory that was full
#               (cgroup, node); - for what is unknown
#     R.ended   the same of a rank that exited with code 0 while the launcher ran
#     R.life    the pipe
#     R.world-NAME  what world an MPI sees, as this MPI wrote it; R.alone: SIZE LIBRARY of a rank that the launcher started
#               as one of SIZE, and that is alone in the world of its own MPI
#     R.watched that the rank has run for some seconds
#     R.out, R.err  what COMMAND prints, on its way
#     R.tail    with --plain: the end of what COMMAND printed on stderr, once all of that is there; .pipe: on its way
#     R.stdout.lines, R.stderr.lines  its lines as records for stream.jsonl; .pipe of each: on their way; .ended: all written
#
# What COMMAND prints is also kept, up to 64 MiB for each stream, as rank-R.stdout.txt and rank-R.stderr.txt in ranks/
# of the task's working directory. `tee` does it in a session of its own: it ends by itself when the last writer has
# ended, and nothing waits for it but, for a moment, the report of a failure. `--plain COMMAND` keeps no such files, and
# only the end of stderr: a launcher may drop the last lines of a rank when it ends all ranks.
#
# BATCHTRAIN_METRICS names a file in ranks/ of the working directory: COMMAND may append lines of JSON to it. The guard
# of the first rank of a node starts node.sh there, which samples the node. For a task with checkpoints on a spot node
# it also starts preemption.py, which tells the ranks of the node of an announced preemption.

# The launch puts the variables of all MPIs here: the first that is set has the rank's number, and the number of ranks.
rank=
size=
# For each MPI whose rank 0 can write a file about its world: its name; its library; what the file has if the world has one
# rank, or nothing if it is written at the end; the launchers to which that says nothing; and the variables for it (% is the
# file).
each_world() { # COMMAND
  :
}

# --- the process that the launcher knows

# Sets bt_value to that of a variable when the launcher's daemon was started: by sshd, on every node but the primary.
daemon_started_with() { # NAME
  bt_value=''
  case $bt_daemon in *"$bt_newline$1="*) bt_value=${bt_daemon#*"$bt_newline$1="} bt_value=${bt_value%%"$bt_newline"*} ;; esac
}

# Nodes that the emulator runs as plain processes share one file system, where each has a root of its own; our path
# and our directory are the primary's then.
move_to_emulated_node() {
  # shellcheck source=/dev/null
  [ -r "$here/environment" ] && . "$here/environment"
  daemon_started_with BATCHTRAIN_EMULATED_NODE
  theirs=$AZ_BATCH_NODE_ROOT_DIR ours=$bt_value
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

# Sets address to the one that the primary reached this node at.
find_address() {
  if [ "${AZ_BATCH_IS_CURRENT_NODE_MASTER-}" = true ]; then
    address=${AZ_BATCH_MASTER_NODE%:*}
  else
    daemon_started_with SSH_CONNECTION
    # shellcheck disable=SC2086 # its words
    set -- $bt_value
    address=${3-}
  fi
}

# Programs that were written for MPI jobs of Azure ML read these. The user's place for processes to meet wins.
tell_azure_mls_words() { # ADDRESS
  [ -n "${BATCHTRAIN_HOST_LIST-}" ] || return 0
  export AZ_BATCHAI_MPI_MASTER_NODE="${BATCHTRAIN_HOST_LIST%%,*}"
  export MASTER_ADDR="${MASTER_ADDR:-$AZ_BATCHAI_MPI_MASTER_NODE}" MASTER_PORT="${MASTER_PORT:-6105}"
  number=0 rest=$BATCHTRAIN_HOST_LIST,
  while [ -n "$rest" ]; do
    [ "${rest%%,*}" != "$1" ] || export AZUREML_CR_NODE_RANK="$number"
    number=$((number + 1)) rest=${rest#*,}
  done
}

# A rank that its MPI does not know as one of the launcher's is rank 0 of 1. Values of the user win.
note_world() { # NAME LIBRARY TEXT LAUNCHERS VARIABLE...
  case ,$4, in *",$BATCHTRAIN_LAUNCHER,"*) return ;; esac
  file=$record.world-$1
  shift 4
  for pair; do
    eval "[ -z \"\${${pair%%=*}+set}\" ]" || return 0
  done
  for pair; do
    case $pair in *=%) pair=${pair%?}$file ;; esac
    export "${pair?}"
  done
}

# Makes R.alone of such a file. Another program that the rank runs may have written it: while the rank runs, none of its
# processes may have another MPI; after its end, a file that is written at the beginning counts only for a short rank.
find_singleton() { # NAME LIBRARY TEXT
  [ -s "$record.world-$1" ] || return 0
  if grep -q -a -F -e "$3" "$record.world-$1"; then
    if [ -z "$ended" ]; then has_no_other_mpi "$2"; else [ -z "$3" ] || [ ! -e "$record.watched" ]; fi &&
      echo "$size $2" >"$record.alone"
  fi
  rm -f "$record.world-$1"
}

has_no_other_mpi() { # LIBRARY
  library=$1
  { read -r _ && read -r session; } <"$record.pid" || return
  for stat in /proc/[0-9]*/stat; do
    read -r line <"$stat" || continue
    # shellcheck disable=SC2086 # its words: state, parent, group and session come after the name
    set -- ${line##*) }
    [ "${4-}" = "$session" ] || continue
    sed -n 's|^.* \(/.*/libmpi\(ch\)\{0,1\}\.so[^ ]*\)$|\1|p' "${stat%stat}maps" |
      while read -r file; do grep -a -q -F "$library" "${stat%stat}root$file" || exit; done || return
  done
  return 0
} 2>/dev/null

# Holds the pipe open for as long as this process and the launcher's daemon live, and passes on the SIGTERM that a
# launcher sends to the rank's process group. Its descriptor reads and writes, so that the traps are set before the
# supervisor opens the pipe. What it wrote, and the end, must outlast that moment, too.
guard() {
  sampler='' watcher='' ended=''
  trap 'end_job KILL $!; end_sampler; exit' USR1 # the rank has ended; below nohup a trap of HUP does nothing
  trap 'end_job KILL $!; end_sampler; sampler=none; echo TERM' TERM
  ticks=0
  while kill -0 "$PPID" && kill -0 "$$"; do
    sleep 1 >/dev/null &
    wait $!
    [ -n "$sampler" ] || start_sampler
    each_world find_singleton
    ticks=$((ticks + 1))
    [ "$ticks" != 3 ] || : >"$record.watched"
  done
  end_sampler
  exec >/dev/null
  exec >"$record.life" # waits for the supervisor
}

# A second after the start, so that a launch is not slower for it.
start_sampler() {
  sampler=none
  mkdir "$here/ranks/sampled" || return 0
  if [ -n "${BATCHTRAIN_PREEMPTION-}" ] && [ "${AZ_BATCH_NODE_IS_DEDICATED-}" = false ]; then
    python3 -I -S "$here/preemption.py" "$BATCHTRAIN_PREEMPTION" $$ "${BATCHTRAIN_PREEMPTION_SIGNAL-}" "$here/ranks" \
      >/dev/null &
    watcher=$!
  fi
  if [ -n "$metrics" ]; then
    rm -f "$metrics/node.metrics.jsonl"
    bash "$here/node.sh" samples "$metrics/node.metrics.jsonl" $$ >/dev/null &
    sampler=$!
  fi
}

end_sampler() {
  case $sampler in [0-9]*) kill -s TERM "$sampler" ;; esac
  [ -z "$watcher" ] || kill -s KILL "$watcher"
}

# A directory is made, and files of an earlier attempt are deleted, without a process where there is nothing to do.
make_directory() { [ -d "$1" ] || mkdir -p "$1"; }
delete() { for file; do [ ! -e "$file" ] || rm -f "$file" || return; done; }

# A rank without a place for its metrics has none.
prepare_metrics() {
  metrics=${AZ_BATCH_TASK_WORKING_DIR:-$here}/ranks
  if make_directory "$metrics" && delete "$metrics/rank-${rank:-$$}.metrics.jsonl"; then
    export BATCHTRAIN_METRICS="$metrics/rank-${rank:-$$}.metrics.jsonl"
  else
    metrics=
  fi
} 2>/dev/null

# Each node has a file of its own, without what an earlier try left.
prepare_preemption() {
  [ -n "${BATCHTRAIN_PREEMPTION-}" ] || return 0
  export BATCHTRAIN_PREEMPTION="${AZ_BATCH_TASK_DIR-}/.batchtrain-preemption.json"
  [ -e "$here/ranks/sampled" ] || rm -f "$BATCHTRAIN_PREEMPTION"
}

# With its sitecustomize, a Python writes the stacks of its threads at a signal.
prepare_stacks() {
  case ${PYTHONPATH-} in "$here/python" | "$here/python:"*) ;; *) export PYTHONPATH="$here/python${PYTHONPATH:+:$PYTHONPATH}" ;; esac
}

# A launcher that sees a failure begins to kill, and may drop what it has not passed on: 0.3 s, or until swept.
let_report_through() {
  for _ in 1 2 3 4 5 6; do
    [ ! -e "$record.told" ] || return
    sleep 0.05
  done
}

# Waiting prevents a later message of the shell, and no process is left after this one.
end_job() { # SIGNAL PROCESS
  kill -s "$1" "$2" 2>/dev/null
  wait "$2" 2>/dev/null
}

wait_for_supervisor() {
  here=${0%/*}
  # what the launcher's daemon has in its environment, a line each
  bt_newline='
'
  bt_daemon=$bt_newline$(tr '\0' '\n' <"/proc/$PPID/environ" 2>/dev/null)$bt_newline
  [ -z "${BATCHTRAIN_EMULATED_NODE-}" ] || move_to_emulated_node
  restore_environment
  record=$here/ranks/${rank:-$$}
  make_directory "$here/ranks" 2>/dev/null
  delete "$record".*
  prepare_metrics
  prepare_preemption
  prepare_stacks
  mkfifo "$record.life" 2>/dev/null || exec "$@" # nowhere to note anything: an unknown image's user, perhaps
  [ -z "${BATCHTRAIN_LAUNCHER-}" ] || [ "${size:-1}" = 1 ] || each_world note_world
  find_address
  tell_azure_mls_words "$address"
  new_session=setsid
  command -v setsid >/dev/null 2>&1 || new_session=
  trap '' TERM # the guard must not die before it has its trap
  guard 1<>"$record.life" </dev/null 2>/dev/null &
  trap : TERM # the guard passes it on
  $new_session sh "$0" --supervise "$record" "$address" "$@"
  code=$?
  end_job USR1 $!
  [ ! -e "$record.failed" ] || let_report_through
  exit "$code"
}

# --- the copies

start_copies() { # sets copies to their processes; none where they cannot be
  copies='' folder=${AZ_BATCH_TASK_WORKING_DIR:-$PWD}/ranks
  [ -n "$rank" ] && command -v tee >/dev/null || return 0
  if [ "${BATCHTRAIN_RANK_LOGS-}" = false ]; then
    mkfifo "$record.err" "$record.tail.pipe" 2>/dev/null || return 0
    copy_end <"$record.err" >&2 &
    copies=$!
    return
  fi
  set -- "$record.out" "$record.err"
  [ -z "${BATCHTRAIN_AWK-}" ] || set -- "$@" "$record.stdout.lines.pipe" "$record.stderr.lines.pipe"
  # mawk knows lines alone: it would keep a bar that is drawn again until the bar is done
  case ${BATCHTRAIN_AWK-} in
    *interactive) ! command -v stdbuf >/dev/null || set -- "$@" "$record.stdout.bars.pipe" "$record.stderr.bars.pipe" ;;
  esac
  make_directory "$folder" 2>/dev/null && mkfifo "$@" 2>/dev/null || return 0
  copy stdout <"$record.out" &
  copies=$!
  copy stderr <"$record.err" >&2 &
  copies="$copies $!"
}

# A file at its limit, or an awk that is gone, is an error that tee ignores, when the signal is ignored.
copy() { # STREAM
  trap '' XFSZ TERM PIPE
  stream=$1 pipe=$record.$1.lines.pipe
  set --
  if [ -p "$pipe" ]; then
    write_lines 2>/dev/null &
    set -- "$pipe"
  fi
  ulimit -f 131072 2>/dev/null
  exec $new_session tee "$folder/rank-$rank.$stream.txt" "$@" 2>/dev/null
}

# As much as sweep.sh reads of the file of a rank.
copy_end() {
  trap '' TERM PIPE
  # shellcheck disable=SC2016 # for the inner shell
  $new_session sh -c 'tail -c 12288 <"$0.pipe" >"$0.new" && mv "$0.new" "$0"' "$record.tail" >/dev/null 2>&1 &
  exec $new_session tee "$record.tail.pipe" 2>/dev/null
}

# An awk keeps a line until its end comes, and for one of many MB it takes minutes while the rank waits. The limit ends it
# after seconds; then the rank prints on, and has no further lines here.
write_lines() {
  first=''
  # shellcheck disable=SC3045 # a shell without it says so, and the line takes its minutes
  ulimit -d 8192 2>/dev/null
  [ "$stream" != stdout ] || first=$rank
  export LC_ALL=C
  bars=${pipe%.lines.pipe}.bars.pipe printed=$pipe
  if [ -p "$bars" ]; then
    $new_session stdbuf -oL tr '\r' '\n' <"$pipe" >"$bars" &
    printed=$bars
  fi
  # shellcheck disable=SC2086 # a command with its options
  exec $new_session $BATCHTRAIN_AWK -v rank="$first" -v head="\"rank\": $rank, \"file\": \"$stream\"" \
    -v ended="${pipe%.pipe}.ended" -f "${record%/ranks/*}/lines.awk" >"${pipe%.pipe}" <"$printed"
}

# The last output of the rank comes before the message about it. A process that it left may write on: wait 0.3 s.
let_copies_end() {
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    open=''
    for copy in $copies; do
      state=Z
      read -r _ _ state _ <"/proc/$copy/stat"
      [ "$state" = Z ] || open=1
    done
    [ -n "$open" ] || return
    sleep 0.02
  done 2>/dev/null
}

# --- the supervisor

# Ends the rank when the pipe ends, or with the signal that the guard passes on. But a rank that is just then ending by
# itself is let end, for the launcher may be killing on account of it (MPI_Abort).
end_with_launcher() {
  signal='' rank_process=''
  unset TMOUT # bash's read would take it for its time
  read -r signal
  : >"$record.lost"
  while [ ! -s "$record.pid" ] && kill -0 "$$"; do sleep 0.05; done # the rank may be about to start
  read -r rank_process <"$record.pid"
  for _ in 1 2 3 4 5; do
    kill -0 "$rank_process" || return
    sleep 0.05
  done
  : >"$record.told"
  trap 'end_job KILL $!; exit' TERM # the rank has ended
  kill -s "${signal:-TERM}" "$rank_process"
  sleep "${BATCHTRAIN_GRACE_SECONDS:-1}" &
  wait $!
  kill -s KILL "$rank_process"
}

# The shell's own remark ("Killed") goes nowhere, if there is a descriptor to spare for COMMAND's stderr.
# COMMAND stays in the foreground: in the background it would ignore SIGINT and lack stdin.
run() {
  for spare in 3 4 5 6 7 8 9 2; do
    [ -e "/proc/self/fd/$spare" ] || break
  done
  [ "$spare" = 2 ] || eval "exec $spare>&2 2>/dev/null"
  # shellcheck disable=SC2016 # for the inner shell
  note_and_run='printf "%s\n" "$$" "$PPID" "$1" >"$0.pid"; shift; exec "$@"'
  [ "$spare" = 2 ] || note_and_run="$note_and_run 2>&$spare $spare>&-"
  sh -c "$note_and_run" "$record" "$node ${address:--}" "$@"
  code=$?
  [ "$spare" = 2 ] || eval "exec 2>&$spare $spare>&-"
}

# Nothing to say of a rank that succeeded or was ended; but one that ended while its launcher was killing may be why
# (MPI_Abort under Intel MPI can even come back, and end with 0): that is noted.
report() {
  ending="exited with code $code"
  [ "$code" -le 128 ] || [ "$code" -gt 192 ] || ending="was killed by signal $((code - 128))"
  memory=-
  [ "$code" -ne 137 ] || find_full_memory
  note_end failed
  # SIGABRT may be the end of MPI_Abort: gang.sh says how the rank ended, and knows it.
  [ "$code" -ne 0 ] && [ "$code" -ne 134 ] || return 0
  let_copies_end
  trap '' PIPE # the launcher may be gone
  printf 'batchtrain: %s\n' "rank ${rank:-unknown} on node $node (${address:-no address}) $ending" >&2
}

note_end() { echo "$(date +%s.%N) ${rank:--} $code $node ${address:--} ${memory:--}" >"$record.$1"; } # KIND

# By what the kernel has counted since the coordination command.
find_full_memory() {
  # shellcheck disable=SC2046,SC2086 # numbers
  set -- ${BATCHTRAIN_MEMORY_KILLS:-0 0} $(bash "${record%/ranks/*}/node.sh" memory_kills 2>/dev/null)
  [ -n "${BATCHTRAIN_MEMORY_KILLS-}" ] && [ "$#" = 4 ] || return 0
  if [ "$3" -gt "$1" ]; then memory=cgroup; elif [ "$4" -gt "$2" ]; then memory=node; fi
}

supervise() {
  record=$1 node=${AZ_BATCH_NODE_ID:-$(uname -n)} address=$2
  shift 2
  end_with_launcher <"$record.life" >/dev/null 2>&1 &
  watcher=$!
  new_session=setsid
  command -v setsid >/dev/null 2>&1 || new_session=
  start_copies
  if [ -p "$record.out" ]; then
    run "$@" >"$record.out" 2>"$record.err"
  elif [ -n "$copies" ]; then
    run "$@" 2>"$record.err"
  else
    run "$@"
  fi
  ended=1
  each_world find_singleton
  if [ -e "$record.told" ]; then end_job TERM "$watcher"; else end_job KILL "$watcher"; fi
  if [ -e "$record.told" ]; then
    code=0 # no second failure for the launcher to remark on
  elif [ "$code" -ne 0 ] || [ -e "$record.lost" ]; then
    report
  else
    note_end ended
    rm -f "$record.pid" "$record.life" "$record.out" "$record.err" "$record.watched"
  fi
  exit "$code"
}

case $1 in
  --supervise) shift; supervise "$@" ;;
  --plain) shift; export BATCHTRAIN_RANK_LOGS=false; wait_for_supervisor "$@" ;;
  *) wait_for_supervisor "$@" ;;
esac
