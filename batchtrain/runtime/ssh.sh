#!/bin/sh
# Stands before ssh on the primary's PATH, for the MPI launcher and the first look at every host.
#
# The nodes of a pool come and go and take over each other's addresses: a host key that is new, or that another node
# had, must not stop a launch inside the pool's own network. Nobody is there to answer a question either.
# BATCHTRAIN_SSH_PORT is set where batchtrain started the sshd: 23, in a container (22 is the host's).

set -- -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"
[ -z "${BATCHTRAIN_SSH_PORT-}" ] || set -- -p "$BATCHTRAIN_SSH_PORT" "$@"
exec "${BATCHTRAIN_SSH:-/usr/bin/ssh}" "$@"
