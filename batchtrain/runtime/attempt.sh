# shellcheck shell=bash
# attempt.sh: records of the attempts of a task. The service may start a task again, tells it nothing of that, and keeps
# no history. A launch text sources this file; `bash attempt.sh ended CODE` notes the end of the current attempt. For bash
# 4.2 and later.
#
#     BATCHTRAIN_ATTEMPT      the number of this attempt, from 1
#     BATCHTRAIN_ATTEMPT_DIR  its directory `attempt-N`, which outlives it: beside the checkpoints on their volume, or in the
#                             directory of the task on the primary, where only retries on this node find it
#
# It has a record in a file of its own for each event: began.json, ended.json, and preempted.NODE.json by preemption.py.
# wd/ranks/attempts.jsonl has the records of all attempts, a line each, for the client. The metrics that the ranks on the
# primary wrote before a failure are kept as well, and a later attempt brings them to wd/ranks/attempt-N.

bt_begin_attempt() {
  local store number=1
  store=${BATCHTRAIN_CHECKPOINT_DIR:+$BATCHTRAIN_CHECKPOINT_DIR.attempts/${BATCHTRAIN_RUN:-none}/${AZ_BATCH_JOB_ID//:/_}}
  store=${store:-$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/attempts}
  while [ -d "$store/attempt-$number" ]; do number=$((number + 1)); done
  export BATCHTRAIN_ATTEMPT="$number" BATCHTRAIN_ATTEMPT_DIR="$store/attempt-$number"
  mkdir -p "$BATCHTRAIN_ATTEMPT_DIR" "$AZ_BATCH_TASK_WORKING_DIR/ranks" && bt_note_attempt began "$(bt_attempts_place)"
  trap 'bt_end_attempt "$?"' EXIT
}

# What an earlier attempt printed may stand in stdout.txt and stderr.txt before it: hence their sizes.
bt_attempts_place() {
  local checkpoint='' hosts=${AZ_BATCH_HOST_LIST:+\"${AZ_BATCH_HOST_LIST//,/\", \"}\"} size file out=0 err=0
  local printed=${AZ_BATCH_TASK_DIR-}/std
  [ -z "${BATCHTRAIN_CHECKPOINT_DIR-}" ] || checkpoint=$(bt_newest_checkpoint)
  if [ -s "${printed}out.txt" ] || [ -s "${printed}err.txt" ]; then
    while read -r size file; do
      case $file in *out.txt) out=$size ;; *) err=$size ;; esac
    done < <(stat -L -c '%s %n' "$printed"{out,err}.txt 2>/dev/null)
  fi
  printf '"node": "%s", "address": "%s", "hosts": [%s], "dedicated": %s, "checkpoint": "%s", "stdout": %s, "stderr": %s' \
    "${AZ_BATCH_NODE_ID-}" "${AZ_BATCH_MASTER_NODE%:*}" "$hosts" "${AZ_BATCH_NODE_IS_DEDICATED:-null}" "${checkpoint##*/}" \
    "$out" "$err"
}

# Without Python, a checkpoint counts whose manifest is there.
bt_newest_checkpoint() {
  local path newest=''
  if python3 -m batchtrain_checkpoint newest 2>/dev/null; then return; fi
  for path in "$BATCHTRAIN_CHECKPOINT_DIR"/step-*; do
    case ${path##*/step-} in *[!0-9]*) continue ;; esac
    [ -e "$path/manifest.json" ] && [ "${path##*-}" -ge "${newest:-0}" ] && newest=${path##*-}
  done
  echo "${newest:+step-$newest}"
}

# A shell that a signal ends may have 0 here; whether the task succeeded, the service knows. The user's text may have set
# options: with -e, a failure in here would become the code of the task.
bt_end_attempt() { # CODE
  local code=${1/#0/null}
  set +eu
  [ ! -e "$BATCHTRAIN_ATTEMPT_DIR/ended.json" ] || return 0
  [ "$code" = null ] || cp "$AZ_BATCH_TASK_WORKING_DIR"/ranks/*.metrics.jsonl "$BATCHTRAIN_ATTEMPT_DIR" 2>/dev/null
  bt_note_attempt ended "\"exit_code\": $code"
}

bt_note_attempt() { # EVENT FIELDS
  local now=${EPOCHREALTIME:-$(date +%s).0} time file=$BATCHTRAIN_ATTEMPT_DIR/$1.json
  now=${now/,/.}
  TZ=UTC printf -v time '%(%Y-%m-%dT%H:%M:%S)T' "${now%.*}"
  printf '{"event": "%s", "attempt": %s, "time": "%s.%sZ", %s}\n' \
    "$1" "$BATCHTRAIN_ATTEMPT" "$time" "${now#*.}" "$2" >"$file" && bt_show_attempts
} 2>/dev/null

bt_show_attempts() {
  local folder=$AZ_BATCH_TASK_WORKING_DIR/ranks store=${BATCHTRAIN_ATTEMPT_DIR%/*} number path
  local records=() record=() shown=()
  [ -d "$folder" ] || mkdir -p "$folder" || return
  for ((number = 1; number <= BATCHTRAIN_ATTEMPT; number++)); do
    for path in "$store/attempt-$number"/{began,preempted.*,ended}.json; do
      [ ! -e "$path" ] || { mapfile -t record <"$path" && records+=("${record[@]}"); }
    done
  done
  path=$folder/attempts.jsonl # has all records that it had, whenever one looks
  [ ! -e "$path" ] || mapfile -t shown <"$path"
  if [ "${records[*]:0:${#shown[@]}}" = "${shown[*]-}" ]; then
    [ "${#records[@]}" = "${#shown[@]}" ] || printf '%s\n' "${records[@]:${#shown[@]}}" >>"$path"
  else
    printf '%s\n' "${records[@]}" >"$path.new" && mv "$path.new" "$path"
  fi
  for ((number = 1; number < BATCHTRAIN_ATTEMPT; number++)); do
    for path in "$store/attempt-$number"/*.metrics.jsonl; do
      [ ! -e "$path" ] || { mkdir -p "$folder/attempt-$number" && cp "$path" "$folder/attempt-$number"; }
    done
  done
}

case ${1-} in ended) bt_end_attempt "$2" ;; esac
