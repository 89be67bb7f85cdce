"""Counters of the kernel of processes that it killed because memory was full: of versions 1 and 2 of cgroups."""

from __future__ import annotations

VERSION_2 = {
    "/proc/self/cgroup": "0::/system.slice/docker-7f",
    "/sys/fs/cgroup/system.slice/memory.events": "low 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 1",
    "/sys/fs/cgroup/system.slice/docker-7f/memory.events": "low 0\nmax 9\noom 1\noom_kill 1",
    "/proc/vmstat": "pgfault 3\noom_kill 5\ndrop_pagecache 0",
}
VERSION_1 = {
    "/proc/self/cgroup": "9:name=systemd:/a\n4:cpu,memory:/a\n0::/",
    "/sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1",
    "/sys/fs/cgroup/memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2",
    "/proc/vmstat": "oom_kill 5",
}
KILLS = [(VERSION_2, 3), (VERSION_1, 3), ({"/proc/vmstat": "oom_kill 5"}, 0)]
"""Files, and the number for our cgroup and those above it; the number of the node is 5."""
