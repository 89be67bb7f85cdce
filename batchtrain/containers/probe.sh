# shellcheck shell=sh
# probe.sh: what an image has of the contract; run by its own sh, as its own user, in a container without a network.
# Prints NAME, a tab and a value, a line each; a name may come more than once.

tell() { printf '%s\t%s\n' "$1" "$2"; }
first() { head -n 1 2>/dev/null || sed 1q; }
last() { tail -n 1 2>/dev/null || sed -n '$p'; }

tell user "$(id -u 2>/dev/null)"
for name in ssh ssh-keygen mpirun python3 tee grep sort; do
  path=$(command -v "$name") && tell "$name" "$path"
done
tell bash "$(bash -c 'printf %s.%s "${BASH_VERSINFO[0]}" "${BASH_VERSINFO[1]}"' 2>/dev/null </dev/null)"
tell python "$(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null </dev/null)"
tell mpi "$(mpirun --version 2>&1 </dev/null | first)"
tell library_path "$LD_LIBRARY_PATH"

# Looked for before anything is made here.
find / -xdev \( -path /proc -o -path /sys -o -path /dev \) -prune -o -type f \( \
  -name 'libmpi.so*' -o -name 'libcuda.so*' -o -name 'libcudart.so*' -o -name 'libnccl.so*' -o \
  -name 'libibverbs.so*' -o -name 'ssh_host_*_key' -o -name 'id_rsa' -o -name 'id_dsa' -o -name 'id_ecdsa' -o \
  -name 'id_ed25519' -o -path '*/.ssh/*' -o -path '/root/*.pem' -o -path '/home/*.pem' -o -path '/etc/*.pem' -o \
  -path '/etc/*.key' \) -print 2>/dev/null </dev/null | while read -r file; do
  case $file in
    *.so | *.so.*) tell library "$file" ;;
    *) ! grep -q -e '-----BEGIN .*PRIVATE KEY-----' "$file" 2>/dev/null || tell key "$file" ;;
  esac
done

[ -x /usr/sbin/sshd ] || exit 0
tell sshd /usr/sbin/sshd

# As the coordination command of a task does it.
mkdir -p /run/sshd
ls /etc/ssh/ssh_host_*_key >/dev/null 2>&1 || ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key </dev/null
if ! said=$(/usr/sbin/sshd -p 23 2>&1 </dev/null); then
  tell refuses "${said:-no word of why}"
  exit 0
fi
tell listens yes

# The way the primary comes in: as root, by a key.
scratch=$(mktemp -d) && ssh-keygen -q -t ed25519 -N '' -f "$scratch/key" </dev/null || exit 0
mkdir -p ~/.ssh && chmod 700 ~/.ssh && cat "$scratch/key.pub" >>~/.ssh/authorized_keys && chmod 600 ~/.ssh/authorized_keys
for _ in 1 2 3 4 5; do
  if said=$(ssh -F /dev/null -p 23 -i "$scratch/key" -o BatchMode=yes -o StrictHostKeyChecking=no \
    -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=5 127.0.0.1 \
    'echo in; command -v mpirun; command -v python3; exit 0' 2>&1 </dev/null); then
    break
  fi
  sleep 1
done
case $said in
  in*) printf '%s\n' "$said" | while read -r path; do tell login "$path"; done ;;
  *) tell locked "$(printf '%s\n' "$said" | last)" ;;
esac
