# shellcheck shell=bash
# node.sh WORD...: what both launch engines (gang.sh, and the package `launch`) read on a node; for bash 4.2 and later.
#
#     gpus          `gpu NAME` for each GPU, as CUDA_VISIBLE_DEVICES names it; `driver` first where device files are there
#     infiniband    `infiniband PORTS [KEY]` where a port is active: mlx5_ib0:1,... and the partition key
#     hosts COUNT   AZ_BATCH_HOST_LIST with the primary, which this node is, first; fails where it cannot be right

# The device files list the GPUs; nvidia-smi takes seconds on a node with eight. It runs only if GPUs are divided into
# MIG instances, which ranks must name, and if there is no device file, as on an emulated node.
gpus() {
  local line count=0 driver='' names=()
  for line in /dev/nvidia[0-9]*; do [ ! -e "$line" ] || count=$((count + 1)); done
  if [ "$count" -eq 0 ] && [ -e /dev/kfd ]; then # AMD's; processors are listed there, too
    for line in /sys/class/kfd/kfd/topology/nodes/*/gpu_id; do
      { read -r line <"$line" && [ "$line" != 0 ] && count=$((count + 1)); } 2>/dev/null
    done
  fi
  [ "$count" -eq 0 ] || driver=yes
  if [ -z "$driver" ] || compgen -G '/proc/driver/nvidia/capabilities/*/mig/gi*' >/dev/null; then
    count=0
    while read -r line; do
      case $line in
        'GPU '[0-9]*) count=$((count + 1)) ;;
        'MIG '*'UUID: '*) line=${line##*UUID: } && names+=("${line%)*}") ;;
      esac
    done < <(! type -P nvidia-smi >/dev/null || timeout 20 nvidia-smi -L 2>/dev/null)
  fi
  [ -z "$driver" ] || echo driver
  [ "${#names[@]}" -gt 0 ] || for ((line = 0; line < count; line++)); do names+=("$line"); done
  [ "${#names[@]}" -eq 0 ] || printf 'gpu %s\n' "${names[@]}"
}

# Cards of accelerated networking are listed there, too, with another link layer. The default key is omitted (0x7fff; the
# top bit only means "full member").
infiniband() {
  local port device key ports='' found=''
  for port in /sys/class/infiniband/*/ports/*; do
    grep -qs InfiniBand "$port/link_layer" || continue
    grep -qs ACTIVE "$port/state" || continue
    device=${port%/ports/*}
    ports+=${ports:+,}${device##*/}:${port##*/}
    for key in "$port"/pkeys/[01]; do
      key=$(cat "$key" 2>/dev/null)
      key=$((${key:-0} & 0x7fff))
      [ "$key" -eq 0 ] || [ "$key" -eq 32767 ] || printf -v found 0x%04x "$key"
    done
  done
  [ -z "$ports" ] || echo "infiniband $ports $found"
}

# The service guarantees no order of hosts. Rank 0 belongs on the primary, which has the files of the task.
hosts() { # COUNT
  local own=${AZ_BATCH_MASTER_NODE%:*} host listed=() rest=''
  [ -n "${AZ_BATCH_HOST_LIST-}" ] || refuse "AZ_BATCH_HOST_LIST is not set: this is no multi-instance task's primary"
  IFS=, read -r -a listed <<<"${AZ_BATCH_HOST_LIST//[[:space:]]/}"
  for host in "${listed[@]}"; do
    [ "$host" = "$own" ] || rest+=,$host
  done
  case ,${AZ_BATCH_HOST_LIST//[[:space:]]/}, in
    *",$own,"*) ;;
    *) refuse "the primary's own address ${own:-(AZ_BATCH_MASTER_NODE is not set)} is not in AZ_BATCH_HOST_LIST ($AZ_BATCH_HOST_LIST)" ;;
  esac
  [ "${#listed[@]}" -eq "$1" ] ||
    refuse "$1 instances were planned, AZ_BATCH_HOST_LIST has ${#listed[@]} hosts ($AZ_BATCH_HOST_LIST)"
  echo "$own$rest"
}

refuse() {
  echo "batchtrain: $*" >&2
  exit 1
}

for word; do
  case $word in
    gpus | infiniband) "$word" ;;
    hosts) hosts "$2" ;;
  esac
done
