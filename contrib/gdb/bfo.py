# SPDX-License-Identifier: BSD-3-Clause
"""Pretty printers for gdb: names, rails, ranges, requests. gdb -x contrib/gdb/bfo.py PROGRAM, or: source contrib/gdb/bfo.py"""
import gdb
import gdb.printing

SEND_PENDING = {1: "start", 2: "data", 4: "notify", 8: "restart-ack"}


def integer(value):
    return int(value) & 0xFFFFFFFFFFFFFFFF


def name_text(value):
    """slot 24 | generation 24 | round 16, from the low bits up (common/ids.h)."""
    if value == 0:
        return "none"
    return f"slot {value & 0xffffff} generation {value >> 24 & 0xffffff} round {value >> 48}"


def pending_text(value):
    bits = [word for bit, word in SEND_PENDING.items() if value & bit]
    return "|".join(bits) if bits else "nothing"


class NamePrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        return name_text(integer(self.value["value"]))


class RailNamePrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        return f"connection {integer(self.value['conn']):#x} epoch {integer(self.value['epoch'])}"


class RangePrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        return f"[{integer(self.value['begin'])}, {integer(self.value['end'])})"


class RangeSetPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        data = self.value["data_"]
        ranges = [data[i] for i in range(integer(self.value["n_"]))]
        return "{" + ", ".join(RangePrinter(r).to_string() for r in ranges) + "}"


class RequestPrinter:
    """SendState and RecvState: what is being done for the request, and what has to be sent for it."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        v = self.value
        text = f"{v['phase']}, {v['protocol']}, {integer(v['length'])} bytes, to be sent: {pending_text(integer(v['pending']))}"
        rndv = v["rndv"]
        if integer(rndv) == 0:
            return text
        return f"{text}, {name_text(integer(rndv['name']['value']))}, {integer(rndv['in_flight'])} in flight"


def printers():
    collection = gdb.printing.RegexpCollectionPrettyPrinter("openmpi-bfo")
    for word, pattern, printer in [
            ("Name", r"^bfo::Name$", NamePrinter),
            ("RailName", r"^bfo::RailName$", RailNamePrinter),
            ("Range", r"^bfo::Range$", RangePrinter),
            ("RangeSet", r"^bfo::RangeSet$", RangeSetPrinter),
            ("SendState", r"^bfo::xfer::SendState<.*>$", RequestPrinter),
            ("RecvState", r"^bfo::xfer::RecvState<.*>$", RequestPrinter)]:
        collection.add_printer(word, pattern, printer)
    return collection


gdb.printing.register_pretty_printer(gdb.current_objfile(), printers(), replace=True)
