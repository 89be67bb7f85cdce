#!/bin/sh
# sweep.sh GRACE [ROOT] ends the remaining ranks of a gang on one node and prints their records: KIND TIME RANK CODE NODE
# ADDRESS MEMORY, with - for what is unknown.
#     here - 3 - tvm-2 10.0.0.5
#     noted 1700000000.123456789 3 7 tvm-2 10.0.0.5 -
#     lost 1700000000.123456789 3 7 tvm-2 10.0.0.5 -      the same of a rank that lost its launcher before
#     ended 1700000000.123456789 3 0 tvm-2 10.0.0.5 -     the same of a rank that exited with code 0 before
# sweep.sh look [ROOT] ends nothing, and prints only the ranks that have failed.
# sweep.sh printed ROOT RANK prints what a rank has printed last.
# sweep.sh alone [ROOT] prints SIZE LIBRARY for each rank that is alone in the world of its MPI.
#
# The primary runs it on every node, here and through ssh, when it ends a gang. rank.sh says what ranks/ holds.
# SIGTERM to the ranks, then, after GRACE seconds (or as soon as none is left), SIGKILL to all that belongs to them.

grace=${1:-0.5}
case $grace in .*) grace=0$grace ;; esac
here=${0%/*}
# Nodes that the emulator runs as plain processes share a file system: $2 is then the primary's root.
case ${2:+${BATCHTRAIN_EMULATED_NODE-}} in /*) here=$BATCHTRAIN_EMULATED_NODE${here#"$2"} ;; esac
# In steps of 20 ms, or of whole seconds where sleep knows no fractions.
pause() {
  sleep 0.02 2>/dev/null || { sleep 1 && steps=$((steps - 49)); }
  steps=$((steps - 1))
}

if [ "$1" = printed ]; then
  steps=50 # a process that the rank left may hold its stderr open
  while [ -p "$here/ranks/$3.tail.pipe" ] && [ ! -e "$here/ranks/$3.tail" ] && [ "$steps" -gt 0 ]; do pause; done
  [ ! -e "$here/ranks/$3.tail" ] || exec cat "$here/ranks/$3.tail"
  # shellcheck source=/dev/null
  [ ! -r "$here/environment" ] || . "$here/environment"
  cd "${AZ_BATCH_TASK_WORKING_DIR:-$here}/ranks" || exit 0
  tail -c 2048 "rank-$3.stdout.txt" && echo && tail -c 12288 "rank-$3.stderr.txt"
  exit 0
fi 2>/dev/null
cd "$here/ranks" 2>/dev/null || exit 0

print_places() {
  for record in *.pid; do
    { read -r _ && read -r _ && read -r place && echo "here - ${record%.pid} - $place"; } <"$record"
  done
}

print_failures() {
  for record in *.failed; do
    kind=noted
    [ ! -e "${record%.failed}.lost" ] || kind=lost
    read -r line <"$record" && echo "$kind $line"
  done
}

print_early_ends() {
  for record in [0-9]*.ended; do
    case $record in *.lines.ended) ;; *) read -r line <"$record" && echo "ended $line" ;; esac
  done
}

# A zombie does not count: the first process of a container may never reap it.
is_alive() {
  read -r stat <"/proc/$1/stat" || return 1
  case ${stat##*) } in Z* | X*) return 1 ;; esac
}

any_left() {
  for record in *.pid; do
    { read -r process && read -r group; } <"$record" || continue
    is_alive "$process" || is_alive "$group" || continue
    return 0
  done
  return 1
}

if [ "$grace" = alone ]; then
  cat -- *.alone 2>/dev/null
  exit 0
fi
if [ "$grace" = look ]; then
  print_failures 2>/dev/null
  exit 0
fi
sleep 0.05 2>/dev/null # the failure that caused the one we heard of may be noting itself
for record in *.pid; do
  [ -e "$record" ] || continue
  { read -r process && : >"${record%.pid}.told" && kill -s TERM "$process"; } <"$record" 2>/dev/null
done

# GRACE: 2, 0.5.
tenths=0
case $grace in *.*) tenths=${grace#*.} tenths=${tenths%"${tenths#?}"} ;; esac
steps=$((${grace%%.*} * 50 + tenths * 5))
while [ "$steps" -gt 0 ] && any_left 2>/dev/null; do pause; done

if any_left 2>/dev/null; then
  for record in *.pid; do
    read -r process <"$record" && kill -s KILL "$process"
  done 2>/dev/null
  sleep 0.05 2>/dev/null # so that its supervisor sees it
fi
{ print_places; print_failures; print_early_ends; } 2>/dev/null

# Processes that the ranks left are in the process groups of their supervisors, which should be gone by now.
for record in *.pid; do
  { read -r _ && read -r group; } <"$record" && kill -s KILL -- "-$group"
done 2>/dev/null
exit 0
