# SPDX-License-Identifier: BSD-3-Clause
"""Exchanges numpy arrays and pickled objects between all ranks and checks every one of them.

Run under mpirun with Debian's python3-mpi4py, which asks for MPI_THREAD_MULTIPLE. Prints one line and exits non-zero on
any difference. usage: mpi4py_exchange.py [ROUNDS]
"""
import random
import sys
import threading

import numpy
from mpi4py import MPI

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
SIZES = [0, 1, 3, 100, 1024, 1536, 1537, 8192, 8193, 32768, 65537, 131072, 300001]  # doubles
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
peers = [p for p in range(size) if p != rank] or [rank]
errors = []
checked = 0


def expect(good, what):
    global checked
    checked += 1
    if not good:
        errors.append(what)
        if len(errors) < 10:
            print(f"mpi4py_exchange: rank {rank}: {what}", file=sys.stderr, flush=True)


def array(source, dest, count, key):
    """The array that `source` sends to `dest`: every element depends on all four."""
    generator = numpy.random.default_rng([source, dest, count, key])
    return generator.random(count)


def thing(source, dest, key):
    """A picklable object, from a few bytes to some hundred thousand."""
    generator = random.Random(f"{source} {dest} {key}")
    length = generator.choice([0, 1, 10, 1000, 30000])
    return {"from": source, "to": dest, "key": key, "text": "x" * length,
            "list": [generator.random() for _ in range(length // 10)], 7: (None, True, b"\x00\xff")}


def arrays(key):
    """All receives posted, then all sends, then waited for in random order."""
    receives, sends, keep = [], [], []
    for peer in peers:
        for tag, count in enumerate(SIZES):
            target = numpy.full(count, numpy.nan)
            receives.append((comm.Irecv(target, source=peer, tag=tag), target, peer, count))
    for peer in random.sample(peers, len(peers)):
        for tag, count in enumerate(SIZES):
            source = array(rank, peer, count, key)
            keep.append(source)
            sends.append(comm.Isend(source, dest=peer, tag=tag))
    random.shuffle(receives)
    for request, target, peer, count in receives:
        status = MPI.Status()
        request.Wait(status)
        expect(status.Get_count(MPI.DOUBLE) == count, f"count of an array of {count} from {peer}")
        expect(numpy.array_equal(target, array(peer, rank, count, key)), f"content of an array of {count} from {peer}")
    MPI.Request.Waitall(sends)


def unexpected(key):
    """Sends first; sizes are learned from a probe."""
    sends, keep = [], []
    for peer in peers:
        for count in SIZES:
            keep.append(array(rank, peer, count, key))
            sends.append(comm.Isend(keep[-1], dest=peer, tag=50))
    due = {peer: list(SIZES) for peer in peers}
    while any(due.values()):
        status = MPI.Status()
        comm.Probe(MPI.ANY_SOURCE, 50, status)
        peer, count = status.Get_source(), status.Get_count(MPI.DOUBLE)
        wanted = due[peer].pop(0)
        expect(count == wanted, f"a probe says {count} elements from {peer}, due are {wanted}")
        target = numpy.full(count, numpy.nan)
        comm.Recv(target, source=peer, tag=50)
        expect(numpy.array_equal(target, array(peer, rank, count, key)), f"content of a probed array from {peer}")
    MPI.Request.Waitall(sends)


def objects(key):
    sends = [comm.isend(thing(rank, peer, key + i), dest=peer, tag=60) for peer in peers for i in range(8)]
    for peer in peers:
        for i in range(8):
            got = comm.recv(source=peer, tag=60)
            expect(got == thing(peer, rank, key + i), f"object {i} from {peer}")
    MPI.Request.waitall(sends)
    everyone = comm.allgather(thing(rank, -1, key))
    expect(everyone == [thing(p, -1, key) for p in range(size)], "allgather of objects")
    matched = comm.isend(thing(rank, (rank + 1) % size, key), dest=(rank + 1) % size, tag=61)
    message = comm.mprobe(source=(rank - 1) % size, tag=61)
    expect(message.recv() == thing((rank - 1) % size, rank, key), "matched object")
    matched.wait()


def threads(key, count=3):
    """Each thread talks on a communicator of its own."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        return
    comms = [comm.Dup() for _ in range(count)]

    def work(number):
        mine = comms[number]
        to, source = (rank + 1) % size, (rank - 1) % size
        for length in SIZES:
            target = numpy.full(length, numpy.nan)
            mine.Sendrecv(array(rank, to, length, key + number), dest=to, recvbuf=target, source=source)
            expect(numpy.array_equal(target, array(source, rank, length, key + number)), f"thread {number}: array of {length}")
            got = mine.sendrecv(thing(rank, to, key + number), dest=to, source=source)
            expect(got == thing(source, rank, key + number), f"thread {number}: object")

    running = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for one in comms:
        one.Free()


for number in range(ROUNDS):
    arrays(1000 * number)
    unexpected(1000 * number + 100)
    objects(1000 * number + 200)
    threads(1000 * number + 300)
total = comm.allreduce(len(errors))
checks = comm.allreduce(checked)
if rank == 0:
    print(f"mpi4py_exchange: {'FAILED' if total else 'ok'}: ranks {size} thread level {MPI.Query_thread()} "
          f"checks {checks} errors {total}", flush=True)
sys.exit(1 if total else 0)
