#!/bin/sh
# nvidia-smi of an emulated node: as many GPUs as the node's VM size has, and no driver behind them.
gpus=@GPUS@
name="Emulated GPU of "@VM_SIZE@

uuid() {
    printf 'GPU-%08x-0000-4000-8000-%012d' "$(printf %s "$(uname -n)$BATCHTRAIN_EMULATED_NODE" | cksum | cut -d' ' -f1)" "$1"
}

field() {
    case $1 in
        index) printf %s "$2" ;;
        count) printf %s "$gpus" ;;
        name | gpu_name) printf %s "$name" ;;
        uuid | gpu_uuid) uuid "$2" ;;
        *) printf '[N/A]' ;;
    esac
}

query() {
    [ "$header" = no ] || echo "$fields" | sed 's/,/, /g'
    gpu=0
    while [ "$gpu" -lt "$gpus" ]; do
        separator=
        for word in $(echo "$fields" | tr , ' '); do
            printf %s "$separator"
            field "$word" "$gpu"
            separator=', '
        done
        echo
        gpu=$((gpu + 1))
    done
}

list() {
    gpu=0
    while [ "$gpu" -lt "$gpus" ]; do
        echo "GPU $gpu: $name (UUID: $(uuid "$gpu"))"
        gpu=$((gpu + 1))
    done
}

fields=
header=yes
for word in "$@"; do
    case $word in
        -L | --list-gpus) list; exit ;;
        --query-gpu=*) fields=${word#*=} ;;
        *noheader*) header=no ;;
    esac
done
if [ -n "$fields" ]; then
    query
else
    list
fi
