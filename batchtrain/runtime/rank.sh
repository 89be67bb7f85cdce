#!/bin/sh
# rank.sh COMMAND [ARGUMENT]...
#
# Runs one rank of a gang. It gives COMMAND the AZ_BATCH_* values of the node it is on (an MPI launcher brings the
# primary's, or none), leaves stdin, stdout and stderr alone, and says on stderr how COMMAND failed, if it did:
#     batchtrain: rank 3 on node tvm-2 (10.0.0.5) exited with code 7
#
# Three processes, so that the last words of a rank are not lost when a launcher kills its own children at once (MPICH
# after MPI_Abort): the launcher's child waits; the supervisor lives in a session of its own and is the parent of
# COMMAND; between them a pipe, held open by a guard that ends with the launcher's daemon. When the pipe closes, the
# rank has lost its launcher and is ended.
# Works with dash, bash and busybox.

here=${0%/*}

# NAME of the launcher's daemon, as it was started (by ssh, but for the primary's own)
daemon_variable() {
  tr '\0' '\n' <"/proc/$PPID/environ" 2>/dev/null | sed -n "s/^$1=//p" | head -n 1
}

# The emulator's plain processes share one file system, in which each node has a root of its own and the path of this
# script is the primary's. The daemon that ssh started knows the root of its node.
settle_on_emulated_node() {
  [ -r "$here/environment" ] && . "$here/environment"
  primary_root=$AZ_BATCH_NODE_ROOT_DIR
  root=$(daemon_variable BATCHTRAIN_EMULATED_NODE)
  [ -n "$root" ] && [ -n "$primary_root" ] || return
  export BATCHTRAIN_EMULATED_NODE="$root"
  [ "$root" != "$primary_root" ] || return
  case $here in "$primary_root"/*) ;; *) return ;; esac
  [ -r "$root${here#"$primary_root"}/environment" ] || return
  here=$root${here#"$primary_root"}
  case $PWD in "$primary_root"/*) cd "$root${PWD#"$primary_root"}" 2>/dev/null || : ;; esac
}

if [ "$1" != --supervised ]; then
  [ -n "$BATCHTRAIN_EMULATED_NODE" ] && settle_on_emulated_node
  # shellcheck source=/dev/null
  [ -r "$here/environment" ] && . "$here/environment"
  # the primary comes first in the list on every rank, as it does in the launch
  [ -n "$BATCHTRAIN_HOST_LIST" ] && export AZ_BATCH_HOST_LIST="$BATCHTRAIN_HOST_LIST"
  exec 3<&0
  supervise='sh'
  command -v setsid >/dev/null 2>&1 && supervise='setsid sh'
  guard() {
    exec </dev/null 3<&- 2>/dev/null
    sleeper=
    trap 'kill $sleeper; exit' TERM
    while kill -0 "$PPID" && kill -0 "$$"; do
      sleep 1 >/dev/null &
      sleeper=$!
      wait "$sleeper"
    done
  }
  # shellcheck disable=SC2086
  { guard & echo "$!"; wait; } | $supervise "$0" --supervised "$here" "$PPID" "$@"
  exit
fi
