# shellcheck shell=bash
# inside.sh DIRECTORY COMMAND: runs a shell command in the working directory of a running task, with the environment and as
# the user of its first process; in its container, if it has one. DIRECTORY is relative to the root of the node, as Batch
# reports it. For bash 4.2 and later. Travels as the text of `bash -c`.

bt_wanted=$1 bt_command=$2

bt_find() { # sets bt_pid and bt_directory to those of the first process of the task that this user may read
  for bt_pid in $(printf '%s\n' /proc/[0-9]* | tr -d '/a-z' | sort -n); do
    bt_directory=$(bt_task_directory "$bt_pid")
    [[ $bt_directory != */"$bt_wanted" ]] || return 0
  done
  return 1
}

bt_task_directory() { # PID
  { tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^AZ_BATCH_TASK_DIR=//p' | head -n 1; } 2>/dev/null
}

bt_container() { # PID: prints the id of its container
  grep -oE '[0-9a-f]{64}' "/proc/$1/cgroup" | head -n 1
}

if ! bt_find; then
  # the login of a node may not read the processes of tasks, but it may use sudo
  if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then
    exec sudo -n bash -c "$BASH_EXECUTION_STRING" "$0" "$@"
  fi
  echo "batchtrain: no process of the task is visible on this node ($bt_wanted); has it just ended?" >&2
  exit 3
fi

bt_id=$(bt_container "$bt_pid")
if [ -n "$bt_id" ] && [ "$bt_id" != "$(bt_container self)" ]; then
  bt_terminal=-i
  [ ! -t 0 ] || bt_terminal=-it
  exec docker exec "$bt_terminal" --workdir "$bt_directory/wd" "$bt_id" /bin/sh -c "$bt_command"
fi

bt_variables=()
while IFS= read -r -d '' bt_variable; do bt_variables+=("$bt_variable"); done <"/proc/$bt_pid/environ"
bt_user=$(stat -c %u "/proc/$bt_pid")
cd "$bt_directory/wd" || exit 3
set -- env -i "${bt_variables[@]}" /bin/sh -c "$bt_command"
[ "$bt_user" = "$(id -u)" ] || set -- sudo -n -u "#$bt_user" -- "$@"
exec "$@"
