# shellcheck shell=bash
# before_upload.sh: prepares the files of a detached task for the upload by the service, after the command of the task has
# ended. For bash 4.2 and later, GNU find and GNU tar.
#
#     unlink                   deletes the links to unchanged files of the source: the service would upload these files
#     collect PORT SELECTION   copies files of the other nodes of a gang to the directory .batchtrain-nodes/NODE of the
#                              primary's task: the service uploads nothing from other nodes. A file NODE.missing there
#                              says that a node did not send its files. PORT: of the ssh servers of containers, or ''
#     send SELECTION           prints the id of this node, and an archive of its files
#
# SELECTION: paths in the working directory, `!`, and patterns of paths below them that are no results.

here=${BASH_SOURCE[0]%/*}
nodes=${AZ_BATCH_TASK_DIR-}/.batchtrain-nodes

unlink_source() {
  local target path
  cd "$AZ_BATCH_TASK_WORKING_DIR" || return
  find . -type l -printf '%l\0%p\0' | while IFS= read -r -d '' target && IFS= read -r -d '' path; do
    ! is_source "$target" "$path" || printf '%s\0' "$path"
  done | xargs -0 rm -f --
}

# Whether a link leads to a file of the source that the program has not changed.
is_source() { # TARGET LINK
  [ "$1" = "$AZ_BATCH_TASK_SHARED_DIR/${2#./}" ] && [ ! "$2" -nt .batchtrain-linked ]
}

collect() { # PORT SELECTION
  local own=${AZ_BATCH_MASTER_NODE%:*} port=$1 host hosts text
  shift
  # shellcheck source=/dev/null
  source "$here/gang.sh"
  # Nodes that the emulator runs as plain processes share a file system, where each has its own root.
  printf -v text ' %q' "$@"
  # shellcheck disable=SC2016 # for the other node's shell
  printf -v text 'here=%q; case ${BATCHTRAIN_EMULATED_NODE-} in /*) here=$BATCHTRAIN_EMULATED_NODE${here#%q} ;; esac
    exec bash "$here/before_upload.sh" send %s' "$here" "${AZ_BATCH_NODE_ROOT_DIR-}" "$text"
  rm -rf "$nodes" && mkdir -p "$nodes" || return
  IFS=, read -r -a hosts <<<"${AZ_BATCH_HOST_LIST//[[:space:]]/}"
  for host in "${hosts[@]}"; do [ "$host" = "$own" ] || : >"$nodes/$host.missing"; done
  bt_use_ssh "$port"
  for host in "${hosts[@]}"; do [ "$host" = "$own" ] || receive "$host" "$text" & done
  wait
}

receive() { # HOST COMMAND
  local node
  ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o ConnectTimeout=10 -o ServerAliveInterval=5 "$1" "$2" </dev/null |
    { IFS= read -r node && mkdir -p "$nodes/$node" && tar -xf - -C "$nodes/$node"; } && rm "$nodes/$1.missing" ||
    echo "batchtrain: warning: node $1 did not send all files that the program created there" >&2
}

send() { # SELECTION
  local paths=() tests=() pattern
  # shellcheck source=/dev/null
  . "$here/environment" && cd "$AZ_BATCH_TASK_WORKING_DIR" && echo "$AZ_BATCH_NODE_ID" || return
  while [ "$1" != '!' ]; do paths+=("./$1") && shift; done
  shift
  for pattern; do tests+=(! -path "$pattern"); done
  find "${paths[@]}" "${tests[@]}" \( -type f -o -type l \) -printf '%l\0%p\0' 2>/dev/null | list_files |
    tar --null -T - -hcf -
  [ $? -le 1 ] # a file changed while it was read
}

# As the service lists the files of a node: what a link leads to, if it is on the node, or is a directory of the task.
list_files() {
  local target path node task
  node=$(readlink -f -- "$AZ_BATCH_NODE_ROOT_DIR") task=$(readlink -f -- "$AZ_BATCH_TASK_DIR")
  while IFS= read -r -d '' target && IFS= read -r -d '' path; do
    if [ -z "$target" ]; then
      printf '%s\0' "$path"
    elif ! is_source "$target" "$path"; then
      target=$(readlink -f -- "$path")
      case $target in
        "$task"/*) [ ! -d "$path" ] || find "$path/" -type f -print0 2>/dev/null ;;&
        "$node"/*) [ ! -f "$path" ] || printf '%s\0' "$path" ;;
      esac
    fi
  done
}

set -o pipefail
case $1 in
  unlink) unlink_source ;;
  collect | send) "$@" ;;
esac
