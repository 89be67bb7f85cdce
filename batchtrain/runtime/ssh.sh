#!/bin/sh
# Precedes ssh on the PATH of the primary, for the MPI launcher and the first contact with every host.
#
# Nodes of a pool reuse each other's addresses: a host key that is new, or that another node had, must not stop a launch
# inside the network of the pool. No user is there to answer a question.
# BATCHTRAIN_SSH_PORT is set where batchtrain started the sshd: 23, in a container (22 is the host's).

set -- -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"
[ -z "${BATCHTRAIN_SSH_PORT-}" ] || set -- -p "$BATCHTRAIN_SSH_PORT" "$@"
exec "${BATCHTRAIN_SSH:-/usr/bin/ssh}" "$@"
