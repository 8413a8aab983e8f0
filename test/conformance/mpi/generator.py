# SPDX-License-Identifier: BSD-3-Clause
"""Programs of point-to-point messages: what can vary, how one is drawn from a seed, and how a sample covers all pairs.

A message is a dict of dimensions (DIMENSIONS); a program is a list of batches, each with messages that are under way
together. text() writes programs as player/program.h reads them.
"""
import itertools
import random

PARENTS = 3
CHILDREN = 1

SIZES = {"byte": 1, "short": 2, "int": 4, "double": 8, "complex": 16, "longdouble": 16, "2int": 8, "shortint": 6,
         "doubleint": 12, "longdoubleint": 20, "mixed": 13}
LAYOUTS = ["contiguous", "vector", "hvector", "indexed", "hindexed", "block", "struct", "subarray", "darray", "resized",
           "negative", "zero", "bottom", "nested"]
# Limits of every BTL and of the PML, in bytes (limits() asks Open MPI); sizes are drawn around each.
USUAL_LIMITS = {"inline": 128, "short": 256, "slot": 512, "self eager": 1024, "vader eager": 4096, "verbs eager": 12288,
                "blocking": 17408, "self max send": 16384, "vader max send": 32768, "verbs max send, rdma": 65536, "tcp max send": 131072,
                "tcp pipeline": 196608, "verbs pipeline": 1048576, "verbs min pipeline": 1060864}
HEADERS = (14, 20, 32, 88, 160, 304)
PREPOSTED = ("irecv", "recv_init")
LATER = ("recv", "probe", "iprobe", "mprobe", "imrecv", "improbe")
BLOCKING = ("send", "ssend", "rsend", "bsend")
STARTED = ("isend", "issend", "irsend", "ibsend", "send_init", "ssend_init", "rsend_init", "bsend_init")
READY = ("rsend", "irsend", "rsend_init")
BOTH_WAYS = ("sendrecv", "replace")

DIMENSIONS = {
    "send": BLOCKING + STARTED + BOTH_WAYS + ("none",),
    "receive": PREPOSTED + LATER + BOTH_WAYS + ("cancel",),
    "finish": ("wait", "reverse", "waitall", "waitany", "waitsome", "test", "testall", "testany", "testsome"),
    "comm": ("world", "dup", "split", "inter", "merged", "spawned", "freed"),
    "peer": ("other", "self"),
    "fit": ("exact", "room", "short"),
    "wild": ("none", "source", "tag", "both"),
    "sender": tuple(LAYOUTS),
    "receiver": tuple(LAYOUTS),
    "base": tuple(SIZES),
    "limit": ("tiny", *USUAL_LIMITS, "large"),
    "offset": ("-1", "0", "+1", "-header", "+header"),
}


def allowed(message):
    """Whether MPI permits such a message, and whether what it does is determined. Unknown dimensions permit."""
    m = message
    send, receive = m.get("send"), m.get("receive")
    if send and receive:
        if (send in BOTH_WAYS or receive in BOTH_WAYS) and send != receive:
            return False
        if (send == "none") != (receive == "cancel"):
            return False
        if send in READY and receive not in PREPOSTED:
            return False
        if m.get("peer") == "self" and send in BLOCKING and receive in LATER:
            return False
        if m.get("comm") == "freed" and send in BLOCKING and receive not in PREPOSTED:
            return False
    if m.get("comm") == "freed":
        if send and (send in BOTH_WAYS or send in READY or send.endswith("_init")):
            return False
        if receive and receive not in ("irecv", "mprobe", "imrecv", "improbe", "cancel"):
            return False
        if send == "ssend":
            return False  # may wait for a receive that is started when the communicator is gone
        if m.get("wild") == "both":
            return False
    if m.get("comm") in ("inter", "spawned") and m.get("peer") == "self":
        return False
    if (send in BOTH_WAYS or receive in BOTH_WAYS) and m.get("wild", "none") != "none":
        return False
    if send == "replace" or receive == "replace":
        if m.get("fit", "exact") != "exact":
            return False
        if "sender" in m and "receiver" in m and m["sender"] != m["receiver"]:
            return False
    if receive == "cancel" or send == "none":
        # A receive that takes any tag may take a message that comes.
        return m.get("fit", "exact") == "exact" and m.get("wild", "none") in ("none", "source")
    # Open MPI 4.1 ends the job, with any PML, when a receive fails whose communicator was freed: no error handler is left.
    if m.get("fit") == "short" and m.get("comm") == "freed":
        return False
    # The calls for several requests say nothing of a persistent receive that failed, with any PML.
    if m.get("fit") == "short" and receive == "recv_init" and m.get("finish", "wait") not in ("wait", "reverse", "test"):
        return False
    # With MPI_THREAD_MULTIPLE the calls for several requests hang when one has failed, with any PML.
    if m.get("threads") == "multiple" and m.get("fit") == "short" and m.get("finish", "wait") not in ("wait", "reverse", "test"):
        return False
    # Communicators that several threads make at the same time are left out.
    if m.get("threads") == "multiple" and m.get("comm") == "freed":
        return False
    return True


def element_count(message, generator, limits):
    size = SIZES[message["base"]]
    if message["limit"] == "tiny":
        return generator.randrange(0, 24)
    if message["limit"] == "large":
        return int(2 ** generator.uniform(21, 22)) // size
    offset = message["offset"]
    header = generator.choice(HEADERS)
    shift = {"-1": -1, "0": 0, "+1": 1, "-header": -header + generator.choice((-1, 0, 1)),
             "+header": header + generator.choice((-1, 0, 1))}[offset]
    return max(0, (limits[message["limit"]] + shift) // size)


def draw(generator, dimensions, weights=None):
    """A message that is allowed, of the values given."""
    while True:
        message = {name: generator.choice(values) for name, values in dimensions.items()}
        if weights and generator.random() > weights(message):
            continue
        if message["send"] == "none" or message["receive"] == "cancel":
            message["send"], message["receive"], message["fit"] = "none", "cancel", "exact"
            message["wild"] = generator.choice(("none", "source"))
        elif message["send"] in BOTH_WAYS or message["receive"] in BOTH_WAYS:
            which = message["send"] if message["send"] in BOTH_WAYS else message["receive"]
            message["send"] = message["receive"] = which
            message["wild"] = "none"
            if which == "replace":
                message["receiver"], message["fit"] = message["sender"], "exact"
        elif message["send"] in READY:
            message["receive"] = generator.choice(PREPOSTED)
        if message["comm"] in ("inter", "spawned"):
            message["peer"] = "other"
        if allowed(message):
            return message


def place(message, generator, children):
    """Who sends to whom."""
    parents = range(PARENTS)
    if message["comm"] == "spawned":
        ends = [generator.choice(parents), PARENTS + generator.randrange(children)]
        generator.shuffle(ends)
    elif message["comm"] == "inter":
        ends = [generator.choice([p for p in parents if p % 2 == 0]), generator.choice([p for p in parents if p % 2])]
        generator.shuffle(ends)
    elif message["peer"] == "self":
        ends = [generator.choice(parents)] * 2
    else:
        ends = generator.sample(parents, 2)
    return ends


def clashes(message, batch):
    """Whether the receive of `message`, or of one that is there, could take the other's message."""
    for other in batch["messages"]:
        if other["comm"] != message["comm"]:
            continue
        pair = {(message["from"], message["to"]), (message["to"], message["from"])}
        same = (other["from"], other["to"]) in pair
        for one in (message, other):
            if one["wild"] == "tag" and same:
                return True
            if one["wild"] == "both" and {message["from"], message["to"]} & {other["from"], other["to"]}:
                return True
    return False


def complete(message, generator, number, children, limits):
    """Adds what is no dimension."""
    m = message
    m["id"] = number
    m["from"], m["to"] = place(m, generator, children)
    m["n"] = element_count(m, generator, limits)
    m["room"] = m["n"]
    if m["fit"] == "room":
        m["room"] += generator.choice((1, 7, 1000))
    elif m["fit"] == "short":
        m["n"] = max(1, m["n"])
        m["room"] = m["n"] - min(m["n"], generator.choice((1, 3, m["n"] // 2 + 1)))
    m["sseed"], m["rseed"] = generator.randrange(1 << 31), generator.randrange(1 << 31)
    m["freed"] = int(generator.random() < 0.5)
    m["tag"] = number
    return m


def close(batch, generator):
    """Adds what follows from the messages of a batch, and messages with equal tags, which may not overtake."""
    messages = batch["messages"]
    batch["ready"] = int(any(m["send"] in READY for m in messages))
    batch["end"] = int(any(m["wild"] == "both" for m in messages))
    freed = any(m["comm"] == "freed" for m in messages)
    again = any(m["send"].endswith("_init") or m["receive"].endswith("_init") for m in messages)
    batch["waves"] = generator.choice((2, 3)) if again and not freed else 1
    batch["finish"] = [m["finish"] for m in messages][:1] * (PARENTS + CHILDREN)
    for m in messages:
        if batch["waves"] > 1:
            m["freed"] = m["freed"] if m["send"].endswith("_init") and m["receive"].endswith("_init") else 0
    for first, second in itertools.combinations(messages, 2):
        alike = all(first[k] == second[k] for k in ("comm", "from", "to"))
        both = [m["receive"] in PREPOSTED for m in (first, second)]
        plain = all(m["send"] not in BOTH_WAYS + BLOCKING + ("none",) and m["wild"] == "none" and m["comm"] != "freed"
                    for m in (first, second))
        if alike and plain and both[0] == both[1] and generator.random() < 0.5:
            second["tag"] = first["tag"]
    return batch


def program(name, seed, messages, generator, children, limits):
    """Puts drawn messages into batches, in order; those of a batch share the way their requests complete."""
    batches = []
    room = 0
    for number, message in enumerate(messages):
        complete(message, generator, number, children, limits)
        if not batches or len(batches[-1]["messages"]) >= room or \
                batches[-1]["messages"][0]["finish"] != message["finish"] or clashes(message, batches[-1]) or \
                (message["comm"] == "freed" and any(m["comm"] == "freed" and m["send"] in BLOCKING
                                                    for m in batches[-1]["messages"])):
            batches.append({"id": len(batches), "messages": []})
            room = generator.choice((1, 2, 4, 8))
        batches[-1]["messages"].append(message)
    return {"name": name, "seed": seed, "batches": [close(b, generator) for b in batches]}


def text(programs):
    """The programs as the player reads them."""
    lines = []
    keys = ("id", "comm", "from", "to", "tag", "send", "receive", "wild", "base", "sender", "n", "sseed", "receiver", "room",
            "rseed", "freed")
    for p in programs:
        lines.append(f"program name={p['name']} seed={p['seed']}")
        for b in p["batches"]:
            lines.append(f"batch id={b['id']} waves={b['waves']} ready={b['ready']} end={b['end']} "
                         f"finish={','.join(b['finish'])}")
            for m in b["messages"]:
                lines.append("message " + " ".join(f"{key}={m[key]}" for key in keys))
    return "\n".join(lines) + "\n"


def dimensions_of(children, threads="single"):
    """The dimensions of messages in a job with or without spawned processes."""
    without = {"freed" if threads == "multiple" else "", "" if children else "spawned"}
    return {**DIMENSIONS, "threads": (threads,), "comm": tuple(c for c in DIMENSIONS["comm"] if c not in without)}


def usual(message):
    """Keeps random programs short: large and rare things are drawn less often."""
    weight = 0.25 if message["limit"] in ("large", "verbs pipeline", "verbs min pipeline") else 1
    weight *= 0.4 if message["fit"] == "short" else 1
    return weight * (0.3 if message["send"] == "none" or message["receive"] == "cancel" else 1)


def random_program(seed, children, limits, threads="single", count=24):
    """One seed is one program."""
    generator = random.Random(seed)
    dimensions = dimensions_of(children, threads)
    messages = []
    while len(messages) < count:
        alike = dict(dimensions, finish=(generator.choice(dimensions["finish"]),))
        messages += [draw(generator, alike, usual) for _ in range(generator.choice((1, 3, 6)))]
    return program(f"s{seed}", seed, messages, generator, children, limits)


class Coverage:
    """Pairs of values of two dimensions, those of the job included."""

    def __init__(self, dimensions, possible):
        self.names = list(dimensions)
        self.wanted = {((a, x), (b, y)) for a, b in itertools.combinations(self.names, 2)
                       for x in dimensions[a] for y in dimensions[b] if possible({a: x, b: y})}
        self.left = set(self.wanted)

    def pairs(self, point):
        items = [(name, point[name]) for name in self.names]
        return set(itertools.combinations(items, 2))

    def take(self, point):
        self.left -= self.pairs(point)

    def gain(self, point):
        return len(self.pairs(point) & self.left)

    def line(self):
        return f"{len(self.wanted) - len(self.left)} of {len(self.wanted)} pairs of dimensions"
