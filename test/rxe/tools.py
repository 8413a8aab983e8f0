# SPDX-License-Identifier: BSD-3-Clause
"""What the lab needs of this machine, and stock verbs programs between the two ends of a cable: what fails there is the
lab's or the kernel's fault."""
import os
import shutil
import time

import conformance
import kernel
import lab
import machine

PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "ip": "iproute2", "tc": "iproute2", "rdma": "iproute2",
            "setpriv": "util-linux"}
# The address of a network interface, for the connection manager.
ADDRESS = "address() { ip -6 -o addr show dev $1 scope link | sed -n 's|.*inet6 \\([^/]*\\)/.*|\\1%'$1'|p'; }\n"
# The client fails as long as the server does not listen, and perftest when it cannot make out the speed of the processor, as on
# a machine whose host is busy with other things.
PAIR = """for _ in 1 2 3; do
  server & server=$!
  for _ in 1 2 3; do sleep 1; client && wait $server && exit 0; kill -0 $server || break; done
  kill $server
  wait $server
done
exit 1"""


def need():
    """Raises kernel.Missing when a program is not here, with the line that installs it."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    packages = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program, path=path)})
    if packages:
        raise kernel.Missing(f"apt-get install --no-install-recommends {' '.join(packages)}, or contrib/check --kernel, which does it")
    for program in (lab.CHECKER, lab.ROUNDS, conformance.PROGRAM):
        if not os.path.exists(program):
            raise kernel.Missing(f"{program} is not built: make rxe builds it")


def sanity(the_lab):
    """Each pair of programs: a server on ra0, a client on ra1."""
    notes = []
    for name, server, client in (
            ("ibv_rc_pingpong", "ibv_rc_pingpong -d ra0 -g 0 -n 50 -c", "ibv_rc_pingpong -d ra1 -g 0 -n 50 -c 127.0.0.1"),
            ("ib_write_lat", "ib_write_lat -d ra0 -x 0 -n 50", "ib_write_lat -d ra1 -x 0 -n 50 127.0.0.1"),
            ("ib_read_bw", "ib_read_bw -d ra0 -x 0 -n 20", "ib_read_bw -d ra1 -x 0 -n 20 127.0.0.1"),
            ("ib_send_bw", "ib_send_bw -d rb0 -x 0 -n 20", "ib_send_bw -d rb1 -x 0 -n 20 127.0.0.1"),
            ("rping", "rping -s -a $(address b0) -C 20 -V", "rping -c -I $(address b1) -a $(address b0) -C 20 -V")):
        if not shutil.which(name):
            notes.append(name + " is not installed")
            continue
        started = time.monotonic()
        try:
            the_lab.vm.run(f"{ADDRESS}server() {{ exec timeout 40 {server}; }}\nclient() {{ timeout 30 {client}; }}\n{PAIR}", 150)
            notes.append(f"{name} {time.monotonic() - started:.0f} s")
        except machine.Broken as broken:
            raise machine.Broken(f"{name}: {broken}") from None
    return ", ".join(notes)
