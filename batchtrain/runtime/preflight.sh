# shellcheck shell=bash
# preflight.sh [NAME=VALUE]...: checks its node before the first rank starts; for bash 4.2 and later.
#
# Prints every fault on its own line, and then exits with 9. A fault of this node's GPUs or InfiniBand, which another node
# would not have, begins with `preflight hardware:`, and all others with `preflight:`. What may make the gang slow, but is
# no reason to stop it, begins with `preflight warning:`; with warnings alone it exits with 0. The expectations:
#     size=Standard_ND96asr_v4 gpus=8 vendor=nvidia     the GPUs that the task may use
#     imex=0                                            NVLink connects the nodes, unless NCCL_MNNVL_ENABLE is 0
#     processes=8                                       on this node: shared memory is measured by it
#     infiniband=8 rate=400 memlock=1                   active ports, Gb/s of each; memory must be lockable
#     now=1700000000                                    the primary's clock
#     own=10.0.0.5 hosts=10.0.0.4,10.0.0.5 port=22      who is to be reached from here, and where
#     emulated=1                                        a node of the emulator: no GPUs, no InfiniBand

unset TMOUT # read would take it for its time
here=${0%/*}
declare -A want=()
for pair; do want[${pair%%=*}]=${pair#*=}; done

fault() { report preflight "$*"; }
hardware_fault() { report 'preflight hardware' "$*"; }
warning() { report 'preflight warning' "$*"; }

report() { # BEGINNING MESSAGE
  if [ -z "${place-}" ]; then
    # shellcheck source=/dev/null
    [ ! -r "$here/environment" ] || . "$here/environment"
    place="node ${AZ_BATCH_NODE_ID:-$HOSTNAME} (${want[own]:-no address})"
  fi
  printf '%s: %s: %s\n' "$1" "$place" "$2"
}

check_gpus() {
  local line seen=0 said='' last='' code=0 how='nvidia-smi -L'
  if [ "${want[vendor]-}" = amd ]; then
    how=/sys/class/kfd
    for line in /sys/class/kfd/kfd/topology/nodes/*/gpu_id; do
      { read -r line <"$line" && [ "$line" != 0 ] && seen=$((seen + 1)); } 2>/dev/null
    done
  elif said=$(timeout -k 2 30 nvidia-smi -L 2>&1); code=$?; [ "$code" != 127 ]; then
    while read -r line; do
      case $line in 'GPU '[0-9]*) seen=$((seen + 1)) ;; MIG*) ;; ?*) last=$line ;; esac
    done <<<"$said"
    [ "$code" != 124 ] || last='no answer in 30 s'
  else # no tool, or none that runs in this image
    how=/dev/nvidia0.. code=0
    for line in /dev/nvidia[0-9]*; do [ ! -e "$line" ] || seen=$((seen + 1)); done
  fi
  if [ "$seen" -lt "${want[gpus]}" ]; then
    hardware_fault "$how shows $seen of the ${want[gpus]} GPUs of ${want[size]}${last:+ ($last)}: reboot the node, take" \
      "an image with the driver, or set gpus: disable"
  elif [ "$code" -eq 14 ]; then # no program reads it
    warning "the infoROM of a GPU is corrupted${last:+ ($last)}: report the node to Azure"
  elif [ "$code" -ne 0 ]; then
    hardware_fault "the driver does not answer (nvidia-smi -L ended with code $code${last:+: $last}): reboot the node"
  fi
}

# Microsoft's node tests (Azure/azurehpc-health-checks): a row of memory that could not be replaced, too many ECC errors,
# an inactive NVLink of an ND size, and an Xid of the last two hours that means a broken GPU are faults; slowed clocks are
# warnings. A query that a driver does not know, or a kernel log that the user may not read, is no fault.
check_gpu_memory() {
  local gpu pending failure
  while IFS=', ' read -r gpu pending failure; do
    case $pending,$failure in
      1,? | ?,1 | Yes,* | *,Yes)
        hardware_fault "the memory of GPU $gpu has a broken row (replacement pending: $pending, failed: $failure):" \
          "reboot the node, or remove it"
        ;;
    esac
  done < <(ask_gpus --query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure)
}

check_ecc() {
  local line kind type memory limit at values kinds=() query=index
  for memory in sram dram; do
    for type in uncorrected corrected; do
      for kind in volatile aggregate; do
        kinds+=("$type $memory") query+=,ecc.errors.$type.$kind.$memory
      done
    done
  done
  while read -r line; do
    IFS=, read -r -a values <<<"${line// /}"
    for at in "${!kinds[@]}"; do
      case ${kinds[at]} in 'uncorrected sram') limit=0 ;; *sram) limit=10000 ;; *) limit=20000000 ;; esac
      exceeds "${values[at + 1]-}" "$limit" || continue
      read -r type memory <<<"${kinds[at]}"
      hardware_fault "GPU ${values[0]} has ${values[at + 1]} $type ECC errors in ${memory^^}, and the limit is $limit:" \
        "reboot the node, or remove it"
      break
    done
  done < <(ask_gpus --query-gpu="$query")
}

# The bits are those of NVML. An idle GPU (1) and one at its power limit (4) are as they should be.
check_clocks() {
  local gpu reasons bit said slow='' low='' memory memory_now graphics graphics_now
  local names=([2]='application clocks' [8]='the hardware' [16]='sync boost' [32]='the driver for heat')
  names+=([64]='the hardware for heat' [128]='the power brake' [256]='display clocks')
  while IFS=', ' read -r gpu reasons; do
    [[ $reasons =~ ^0x[0-9a-fA-F]+$ && $((reasons & ~5)) != 0 ]] || continue
    said=''
    for bit in "${!names[@]}"; do
      [ $((reasons & bit)) -eq 0 ] || said+=" and ${names[bit]}"
    done
    said=${said# and }
    slow+="; GPU $gpu by ${said:-reason $reasons}"
  done < <(
    ask_gpus --query-gpu=index,clocks_event_reasons.active ||
      ask_gpus --query-gpu=index,clocks_throttle_reasons.active # the name before driver 535
  )
  [ -z "$slow" ] || warning "GPUs are slowed down (${slow#; }): reboot the node, or remove it, if the gang is slow"
  while IFS=', ' read -r gpu memory graphics memory_now graphics_now; do
    exceeds "$memory" "$memory_now" || exceeds "$graphics" "$graphics_now" || continue
    low+="; GPU $gpu: $memory_now,$graphics_now of $memory,$graphics MHz"
  done < <(
    ask_gpus --query-gpu="index$(printf ',clocks.%s' {max,applications}.{memory,graphics})"
  )
  [ -z "$low" ] || warning "application clocks are below their maximum (${low#; }):" \
    "\`nvidia-smi -ac MEMORY,GRAPHICS\` in additional_node_prep raises them"
}

exceeds() { [[ $1 =~ ^[0-9]+$ && $2 =~ ^[0-9]+$ ]] && [ "$1" -gt "$2" ]; } # NUMBER LIMIT

ask_gpus() { timeout -k 2 30 nvidia-smi "$@" --format=csv,noheader,nounits 2>/dev/null; }

check_nvlinks() {
  local line gpu='' down=0
  while read -r line; do
    case $line in
      'GPU '[0-9]*)
        report_nvlinks
        line=${line#GPU } gpu=${line%%:*} down=0
        ;;
      *[Ii]n[Aa]ctive*) down=$((down + 1)) ;;
    esac
  done < <(timeout -k 2 30 nvidia-smi nvlink -s 2>/dev/null)
  report_nvlinks
}

report_nvlinks() {
  [ "$down" -eq 0 ] || hardware_fault "$down NVLinks of GPU $gpu are inactive: reboot the node, or remove it"
}

# NCCL fails on a node outside the domain, also by default (NVIDIA/nccl: mnnvl.cc), unless NCCL_MNNVL_ENABLE is 0.
check_imex() {
  local why how='the start task of a pool of batchtrain prepares it (journalctl -u nvidia-imex says what happened)'
  # shellcheck source=/dev/null
  [ -z "$([ ! -r "$here/environment" ] || . "$here/environment"; bash "$here/node.sh" imex "${want[hosts]-}")" ] || return
  compgen -G '/dev/nvidia-caps-imex-channels/channel*' >/dev/null && why='is not in the IMEX domain of the gang' ||
    why='has no IMEX channel (/dev/nvidia-caps-imex-channels)'
  if [ "${want[imex]}" = 0 ]; then
    warning "it $why, so NCCL uses InfiniBand between nodes, not NVLink: $how"
  else
    fault "it $why, as the primary is, and NCCL would fail: $how, or set NCCL_MNNVL_ENABLE: 0 in environment_variables"
  fi
}

check_xids() {
  local line now broken=' 48 56 57 58 62 63 64 65 68 69 73 74 79 80 81 92 119 120 '
  read -r now _ </proc/uptime
  while read -r line; do
    [[ $line =~ ^\[\ *([0-9]+)\.[0-9]+\]\ NVRM:\ Xid\ \((PCI:[0-9a-fA-F:.]+)\):\ ([0-9]+) ]] || continue
    [ "$((${now%.*} - BASH_REMATCH[1]))" -lt 7200 ] || continue
    [[ $broken != *" ${BASH_REMATCH[3]} "* ]] ||
      hardware_fault "the driver reported Xid ${BASH_REMATCH[3]} of the GPU ${BASH_REMATCH[2]}: reboot the node," \
        "or remove it"
  done < <(dmesg 2>/dev/null)
}

# All ports that the size has: with seven of eight, NCCL is slow, and an MPI may choose the dead one.
check_infiniband() {
  local port layer state rate name active=0 bad=() noted=''
  for port in /sys/class/infiniband/*/ports/*; do
    { read -r layer <"$port/link_layer" && read -r state <"$port/state"; } 2>/dev/null || continue
    [ "$layer" = InfiniBand ] || continue
    name=${port#/sys/class/infiniband/} name=${name%%/*} rate=''
    { read -r rate _ <"$port/rate"; } 2>/dev/null
    if [[ $state != *ACTIVE* ]]; then
      bad+=("$name: $state")
    elif [[ ${want[rate]-} && $rate =~ ^[0-9]+ ]] && [ "${BASH_REMATCH[0]}" -lt "${want[rate]}" ]; then
      bad+=("$name: $rate of ${want[rate]} Gb/s")
    elif has_no_partition "$port"; then
      bad+=("$name: in no partition")
    else
      active=$((active + 1))
    fi
    check_link "$port" "$name"
  done
  [ -z "$noted" ] || warning "InfiniBand ports have counted errors (${noted#; }): if the gang is slow," \
    "\`batchtrain check fabric\` finds the slow node"
  [ "$active" -lt "${want[infiniband]}" ] || return 0
  printf -v bad '%s, ' "${bad[@]:-there are no others}"
  hardware_fault "$active of ${want[infiniband]} InfiniBand ports work (${bad%, } in /sys/class/infiniband): reboot the" \
    "node, take an image with the drivers, or set infiniband: false"
}

# 0x7fff is the default partition as a limited member, and 0x0000 an empty place.
has_no_partition() { # PORT
  local file key keys=0
  for file in "$1"/pkeys/*; do
    { read -r key <"$file"; } 2>/dev/null || continue
    keys=1
    case $key in 0x0000 | 0x7fff) ;; *) return 1 ;; esac
  done
  [ "$keys" = 1 ]
}

# Lost carriers of a link: five a day are the limit of Microsoft's node tests. One may belong to the start of the node. The
# counters and their limits are those that the link validation of Azure/ai-infrastructure-on-azure looks into.
check_link() { # PORT DEVICE, adds to noted
  local file changes pair count uptime said='' days
  read -r uptime _ </proc/uptime
  days=$((${uptime%.*} / 86400 + 1))
  for file in "${1%/ports/*}"/device/net/*/carrier_changes; do
    { read -r changes <"$file"; } 2>/dev/null || continue
    if [ "$((changes / 2))" -ge "$((5 * days))" ]; then
      hardware_fault "the InfiniBand link of $2 was lost $((changes / 2)) times since the node started: reboot the" \
        "node, or remove it"
    elif [ "$((changes / 2))" -gt 1 ]; then
      said+=", link lost $((changes / 2)) times"
    fi
  done
  for pair in symbol_error:0 link_error_recovery:0 link_downed:0 port_rcv_errors:100 port_xmit_discards:1000; do
    { read -r count <"$1/counters/${pair%:*}"; } 2>/dev/null && exceeds "$count" "${pair#*:}" &&
      said+=", ${pair%:*} $count"
  done
  [ -z "$said" ] || noted+="; $2: ${said#, }"
}

# NCCL and MPIs lock some hundred MiB per process; the usual limit is 8 MiB. CAP_IPC_LOCK removes the limit.
check_memlock() {
  local limit name value need=1048576
  limit=$(ulimit -l)
  [ "$limit" != unlimited ] && [ "$limit" -lt "$need" ] || return 0
  while read -r name value; do
    [ "$name" != CapEff: ] || [ $((16#$value >> 14 & 1)) = 0 ] || return 0
  done </proc/self/status
  fault "a process may lock $limit KiB of memory (ulimit -l), and InfiniBand needs $need: $(raise_memlock)"
}

# Each kind of process has its limit from elsewhere.
raise_memlock() {
  if [ -n "${want[container]-}" ]; then
    echo 'add --ulimit memlock=-1:-1 to additional_docker_run_options'
  elif [ -n "${SSH_CONNECTION-}" ]; then
    echo 'memlock in /etc/security/limits.conf raises it for ssh sessions; take an image for InfiniBand, such as ubuntu-hpc'
  else
    echo "a task has the limit of Batch's agent, which the start task raises in pools that this version makes: create the" \
      'pool again (batchtrain pool del, pool add)'
  fi
}

# An engine gives 64 MiB in all, in which several processes may end by a bus error. 256 are the least that the rule
# shm-small asks for; three MPIs run eight ranks in less.
check_space() {
  local block total free need=$((want[processes] < 4 ? want[processes] * 64 : 256))
  if [ -z "${want[emulated]-}" ] && read -r block total _ < <(stat -f -c '%S %b %a' /dev/shm 2>/dev/null); then
    total=$((block * total / 1048576))
    [ "$total" -eq 0 ] || [ "$total" -ge "$need" ] ||
      fault "/dev/shm has $total MiB, and ${want[processes]} processes need $need: set shm_size, or mount it larger"
  fi
  read -r block _ free < <(stat -f -c '%S %b %a' "$here" 2>/dev/null) || return 0
  free=$((block * free / 1048576))
  [ "$free" -ge 256 ] ||
    fault "$free MiB are free on the disk of the task's directory, and 256 are the least: remove what earlier tasks" \
      "left (retention_time), or take a larger size"
}

check_clock() {
  local own ahead
  printf -v own '%(%s)T' -1
  ahead=$((own - want[now]))
  [ "${ahead#-}" -gt 30 ] || return 0
  [ "$ahead" -gt 0 ] && ahead="$ahead s ahead of" || ahead="${ahead#-} s behind"
  fault "its clock is $ahead the primary's; the limit is 30 s: check chronyc tracking, or reboot the node"
}

# All others at once, starting with the next one. A connection is enough, and no load for the ssh server.
check_ways() {
  local host hosts at own=0 why ways=()
  local -A silent=() closed=()
  timeout 1 bash -c : >/dev/null 2>&1 || return 0 # none, or an old one with words of its own
  IFS=, read -r -a hosts <<<"${want[hosts]}"
  for at in "${!hosts[@]}"; do
    if [ "${hosts[at]}" = "${want[own]-}" ]; then own=$at; else silent[${hosts[at]}]='no answer in 3 s'; fi
  done
  while read -r -t 4 host why; do # busybox's timeout leaves those that still wait
    case $why in '' | *'o such file'*) unset "silent[$host]" ;; *) silent[$host]=$why ;; esac # a bash without /dev/tcp
  done < <(
    # shellcheck disable=SC2016 # for the inner shell
    timeout 3 bash -c 'for host; do
      { why=$( { : <>"/dev/tcp/$host/$0"; } 2>&1) && echo "$host" || echo "$host ${why##*: }"; } &
    done; wait' "${want[port]}" "${hosts[@]:own+1}" "${hosts[@]:0:own}" 2>/dev/null
  )
  for host in "${!silent[@]}"; do closed[${silent[$host]}]+=" $host"; done
  for why in "${!closed[@]}"; do
    mapfile -t ways < <(tr ' ' '\n' <<<"${closed[$why]# }" | sort -V)
    fault "it does not reach ${#ways[@]} of the other nodes on port ${want[port]} (${ways[*]:0:8}: $why): are they in one" \
      "subnet, does its security group let them through, is an sshd there?"
  done
}

check_all_of_gpus() {
  check_gpus &
  if [ "${want[vendor]-}" = nvidia ] && type -P nvidia-smi >/dev/null; then
    check_gpu_memory &
    check_ecc &
    check_clocks &
    case ${want[size]-} in Standard_ND*) check_nvlinks & ;; esac
    check_xids &
  fi
  wait
}

look() {
  if [ -z "${want[emulated]-}" ]; then
    if [ "${want[gpus]:-0}" != 0 ]; then check_all_of_gpus; fi
    [ -z "${want[imex]-}" ] || check_imex
    [ -z "${want[infiniband]-}" ] || check_infiniband
    [ -z "${want[memlock]-}" ] || check_memlock
  fi
  check_space
  [ -z "${want[now]-}" ] || check_clock
  [ -z "${want[port]-}" ] || check_ways
}

want[processes]=${want[processes]:-1}
said=$(look)
[ -n "$said" ] || exit 0
printf '%s\n' "$said"
while read -r line; do
  case $line in 'preflight warning:'*) ;; *) exit 9 ;; esac
done <<<"$said"
