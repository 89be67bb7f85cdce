# shellcheck shell=bash
# node.sh WORD...: what both launch engines (gang.sh, and the package `launch`) read on a node; for bash 4.2 and later.
#
#     gpus          `gpu NAME` for each GPU, as CUDA_VISIBLE_DEVICES names it; `driver` first where device files are there
#     infiniband    `infiniband PORTS [KEY]` where a port is active: mlx5_ib0:1,... and the partition key
#     memory_kills  CGROUP NODE: how many processes the kernel has killed because memory was full
#     samples FILE PID   writes a line of JSON every 10 s: processors, memory, network, GPUs; until process PID has ended
#     hosts COUNT   AZ_BATCH_HOST_LIST with the primary, which this node is, first; fails where it cannot be right
#     imex HOSTS    `imex` where this node is in the IMEX domain of these hosts, as the service of its start task says
#     share RANKS   the number of cores of each of RANKS ranks; nothing where the launcher of an MPI cannot bind them so

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

imex() { # HOSTS
  ! compgen -G '/dev/nvidia-caps-imex-channels/channel*' >/dev/null ||
    [ "$(tr , '\n' <<<"$1" | sort -V)" != "$(cat "${AZ_BATCH_NODE_SHARED_DIR-}/batchtrain/imex/ready" 2>/dev/null)" ] ||
    echo imex
}

# Launchers bind ranks in this order: package by package, in a package NUMA node by NUMA node. Open MPI 5 ends where a rank
# would be on two packages (PRRTE: rmaps_base_binding.c, bind_multiple). As `share_cpus` of the package `launch` has it,
# the cores of a rank are in the NUMA node of its GPU if all GPUs have one: no binding where that needs another order.
share() { # RANKS
  local cores=() homes=() size rank at=0 core
  mapfile -t cores < <(list_cores | sort -k 1,1n -k 2,2n -k 3,3n)
  size=$((${#cores[@]} / $1))
  [ "$size" -gt 0 ] || return 0
  find_gpu_homes "$1"
  for ((rank = 0; rank < $1; rank++)); do
    while [ $((at + size)) -le "${#cores[@]}" ] && [ "${cores[at]%% *}" != "${cores[at + size - 1]%% *}" ]; do
      [ "${#homes[@]}" -eq 0 ] || return 0 # Open MPI 4 would take cores of both packages
      at=$((at + 1))
    done
    [ $((at + size)) -le "${#cores[@]}" ] || return 0
    for core in "${cores[@]:at:size}"; do
      [ "${#homes[@]}" -eq 0 ] || [[ $core == *" ${homes[rank]} "* ]] || return 0
    done
    at=$((at + size))
  done
  echo "$size"
}

# `PACKAGE NUMA-NODE CPU` for the first CPU of each core that this process may use; nothing where the kernel has no packages.
list_cores() {
  local path name list cpu package siblings numbers
  local -A node=() seen=()
  for path in /sys/devices/system/node/node[0-9]*; do
    { read -r list <"$path/cpulist"; } 2>/dev/null || continue
    expand_cpus "$list"
    for cpu in "${numbers[@]}"; do node[$cpu]=${path##*/node}; done
  done
  while read -r name list; do [ "$name" != Cpus_allowed_list: ] || break; done </proc/self/status
  expand_cpus "$list"
  for cpu in "${numbers[@]}"; do
    path=/sys/devices/system/cpu/cpu$cpu/topology
    { read -r package <"$path/physical_package_id" && read -r siblings <"$path/thread_siblings_list"; } 2>/dev/null &&
      [ "$package" -ge 0 ] || return
    [ -n "${seen[$siblings]-}" ] || echo "$package ${node[$cpu]-0} $cpu"
    seen[$siblings]=1
  done
}

expand_cpus() { # LIST of the kernel, such as 0-2,8; sets numbers
  local part ranges
  numbers=()
  IFS=, read -r -a ranges <<<"$1"
  for part in "${ranges[@]}"; do
    for ((cpu = ${part%-*}; cpu <= ${part#*-}; cpu++)); do numbers+=("$cpu"); done
  done
}

# Sets homes to the NUMA node of the GPU of each rank: that with its number, of those that CUDA_VISIBLE_DEVICES names. To
# nothing if one is unknown.
find_gpu_homes() { # RANKS
  local path gpus=() visible=() numa
  for path in /proc/driver/nvidia/gpus/*; do
    path=${path##*/} numa=-1
    { read -r numa <"/sys/bus/pci/devices/${path,,}/numa_node"; } 2>/dev/null
    gpus+=("$numa")
  done
  IFS=, read -r -a visible <<<"${CUDA_VISIBLE_DEVICES-$(seq -s , 0 $((${#gpus[@]} - 1)))}"
  for path in "${visible[@]:0:$1}"; do
    case $path in *[!0-9]*) numa=-1 ;; *) numa=${gpus[path]--1} ;; esac
    [ "$numa" -ge 0 ] || break
    homes+=("$numa")
  done
  [ "${#homes[@]}" -eq "$1" ] || homes=()
}

# Of our cgroup and of those above it, in version 1 or 2, which are limits of a container; and of the whole node. An
# emulated node that is no container has the cgroups of the user's session, and their limit is the memory of the node.
memory_kills() {
  local controllers path folder line lines kills cgroup=0 groups=/proc/self/cgroup
  case ${BATCHTRAIN_EMULATED_NODE:-container} in container) ;; *) groups=/dev/null ;; esac
  while IFS=: read -r _ controllers path; do
    case ,$controllers, in
      ,,) folder=/sys/fs/cgroup/memory.events ;;
      *,memory,*) folder=/sys/fs/cgroup/memory/memory.oom_control ;;
      *) continue ;;
    esac
    path=${path%/}
    while
      count_kills "${folder%/*}$path/${folder##*/}"
      cgroup=$((cgroup + kills))
      [ -n "$path" ]
    do path=${path%/*}; done
  done <"$groups"
  count_kills /proc/vmstat
  echo "$cgroup $kills"
} 2>/dev/null

count_kills() { # FILE, sets kills
  kills=0 lines=()
  [ ! -r "$1" ] || mapfile -t lines <"$1"
  for line in "${lines[@]}"; do case $line in 'oom_kill '*) kills=${line#* } ;; esac done
}

# Counters of the kernel become rates between two looks. BATCHTRAIN_SAMPLE_SECONDS changes the interval; 0: no samples.
samples() { # FILE PID
  local seconds=${BATCHTRAIN_SAMPLE_SECONDS:-10} line before now
  [ "$seconds" -gt 0 ] 2>/dev/null || return 0
  unset TMOUT
  exec 9<> <(:)
  mapfile -t before < <(counters)
  while read -r -t "$seconds" -u 9 line; [ -d "/proc/$2" ]; do
    mapfile -t now < <(counters)
    line=$(sample $((now[0] > before[0] ? now[0] - before[0] : 1)) && gpu_sample) || return 0
    printf '{"t": %s, "node": "%s", %s}\n' "${now[0]}" "${AZ_BATCH_NODE_ID:-$(uname -n)}" "${line//$'\n'/}" >>"$1" ||
      return 0
    before=("${now[@]}")
  done
}

# Seconds, busy and all processor time, bytes received and sent, memory in use: a line each.
counters() {
  local name total='' free='' rest user nice system idle wait irq soft steal received=0 sent=0 fields
  printf '%(%s)T\n' -1
  read -r name user nice system idle wait irq soft steal rest </proc/stat
  rest=$((user + nice + system + irq + soft + ${steal:-0}))
  printf '%s\n' "$rest" "$((rest + idle + wait))"
  while read -r name rest; do
    case $name in
      lo:* | *\|*) ;;
      *:*)
        read -r -a fields <<<"${name#*:} $rest"
        received=$((received + fields[0])) sent=$((sent + fields[8]))
        ;;
    esac
  done </proc/net/dev
  printf '%s\n' "$received" "$sent"
  while read -r name rest _; do
    case $name in MemTotal:) total=$rest ;; MemAvailable:) free=$rest ;; esac
  done </proc/meminfo
  echo "$((total - ${free:-0}))"
}

sample() { # SECONDS
  local all=$((now[2] - before[2]))
  printf '"cpu_percent": %s' "$(hundredths $((all > 0 ? 10000 * (now[1] - before[1]) / all : 0)))"
  printf ', "memory_gib": %s' "$(hundredths $((now[5] * 100 / 1048576)))"
  printf ', "network_in_mb": %s' "$(hundredths $(((now[3] - before[3]) / 10000 / $1)))"
  printf ', "network_out_mb": %s' "$(hundredths $(((now[4] - before[4]) / 10000 / $1)))"
}

# A sum over network interfaces falls if one of them goes away; that counts as 0.
hundredths() { printf '%d.%02d' $(($1 < 0 ? 0 : $1 / 100)) $(($1 < 0 ? 0 : $1 % 100)); }

# The mean use of the GPUs and the memory that is used on all of them.
gpu_sample() {
  local use memory count=0 uses=0 memories=0
  type -P nvidia-smi >/dev/null || return 0
  while IFS=', ' read -r use memory; do
    case $use$memory in '' | *[!0-9]*) continue ;; esac
    count=$((count + 1)) uses=$((uses + use)) memories=$((memories + memory))
  done < <(timeout 5 nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits 2>/dev/null)
  [ "$count" -gt 0 ] || return 0
  printf ', "gpu_percent": %s' "$(hundredths $((uses * 100 / count)))"
  printf ', "gpu_memory_gib": %s' "$(hundredths $((memories * 100 / 1024)))"
}

refuse() {
  echo "batchtrain: $*" >&2
  exit 1
}

for word; do
  case $word in
    gpus | infiniband | memory_kills) "$word" ;;
    hosts | samples | share | imex) "$word" "$2" "${3-}" && exit ;;
  esac
done
