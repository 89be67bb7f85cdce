#!/bin/bash
# lines.sh NODE ATTEMPT [ROOT] prints what the ranks of this node print and measure, as records of stream.jsonl, until
# its stdin ends. The primary runs it on every node, n0, n1, …, and its own also passes on what comes from the others.
#
# It reads, once a second, the new lines of these files, whose last line may be incomplete:
#     ranks/R.STREAM.lines beside this file     what lines.awk wrote of rank R
#     ranks/NODE.node beside this file          what another node sent
#     ranks/rank-R.metrics.jsonl                what rank R appended to $BATCHTRAIN_METRICS, in the working directory
# A node whose ranks keep no lines (no awk, or `rank_logs: false`) prints nothing.
#
# The primary's has the stdout and stderr of the task as fd 7 and 8. If they are files, it says how far they had been
# written before what came in the last second.

node=$1 attempt=$2
here=${0%/*}
# Nodes that the emulator runs as plain processes share a file system: $3 is then the primary's root.
case ${3:+${BATCHTRAIN_EMULATED_NODE-}} in /*) here=$BATCHTRAIN_EMULATED_NODE${here#"$3"} ;; esac
# shellcheck source=/dev/null
[ ! -r "$here/environment" ] || . "$here/environment"
measured=${AZ_BATCH_TASK_WORKING_DIR:-$here}/ranks
beat=10 # seconds between two signs of life
declare -A files=() parts=() positions=()
shopt -s nullglob
unset TMOUT

# Sets lines to the whole lines that came in a file since the last look; fails without any.
new_lines() { # FILE
  local file last
  if [ -z "${files[$1]-}" ]; then
    exec {file}<"$1" || return
    files[$1]=$file
  fi
  mapfile -u "${files[$1]}" lines
  [ "${#lines[@]}" -gt 0 ] || return
  lines[0]=${parts[$1]-}${lines[0]}
  parts[$1]=''
  last=$((${#lines[@]} - 1))
  case ${lines[last]} in
    *$'\n') ;;
    *) parts[$1]=${lines[last]} && unset "lines[$last]" ;;
  esac
  [ "${#lines[@]}" -gt 0 ]
}

pass_on() {
  local file rank
  for file in "$here"/ranks/*.lines; do
    kept=1
    ! new_lines "$file" || printf '%s' "${lines[@]/#\{/$head}"
  done
  for file in "$here"/ranks/*.node; do
    ! new_lines "$file" || printf '%s' "${lines[@]}"
  done
  [ -n "$kept" ] || return 0
  look_at_output 7 stdout
  look_at_output 8 stderr
  for file in "$measured"/rank-*.metrics.jsonl; do
    rank=${file##*/rank-}
    rank=${rank%%.*}
    case $rank in *[!0-9]*) continue ;; esac
    [ -e "$here/ranks/$rank.stdout.lines" ] || continue # of an attempt before
    ! new_lines "$file" || printf '%s' "${lines[@]}" |
      LC_ALL=C awk -v head="${head#\{}\"rank\": $rank, \"file\": \"metrics\"" -v all=1 -f "$here/lines.awk"
  done
  if [ "$((turn % beat))" = 0 ]; then printf '{"node": "%s", "time": %(%s)T}\n' "$node" -1; fi
}

# The kernel knows the position of an open file. All that write to it share this one. It begins at 0 also behind the
# output of an earlier attempt.
look_at_output() { # FD STREAM
  local position before=${positions[$1]-}
  if [ ! -f "/proc/self/fd/$1" ] || ! read -r _ position <"/proc/self/fdinfo/$1"; then return 0; fi
  [ "$attempt" -gt 1 ] || before=${before:-0}
  [ "${before:-$position}" -ge "$position" ] ||
    printf '%s"file": "%s", "time": %(%s)T, "at": %s}\n' "$head" "$2" -1 "$before"
  [ "$position" -le 0 ] || positions[$1]=$position
} 2>/dev/null

# Until what the ranks printed is written: a second, as a process that a rank left may hold its stdout open.
settle() {
  local pipe turns=0
  for pipe in "$here"/ranks/*.lines.pipe; do
    until [ -e "${pipe%.pipe}.ended" ] || [ "$((turns += 1))" -gt 500 ]; do read -r -t 0.002 <> <(:); done
  done
}

head="{\"node\": \"$node\", \"attempt\": $attempt, "
turn=0 kept=''
while
  pass_on
  turn=$((turn + 1))
  read -r -t 1
  [ "$?" -gt 128 ]
do :; done
settle
turn=1
pass_on
