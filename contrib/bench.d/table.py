# SPDX-License-Identifier: BSD-3-Clause
"""The results of contrib/bench: a list of entries, printed as a table and kept as results.json.

An entry has name, value, unit, against (what `value` is compared with), ratio (value / against), interval (95 %, of the
ratio when there is one, else of the value), goal (a text such as "<= 1.01"), met (null without a goal, false also when
nothing could be measured), kind (hard or stretch), note.
"""
import json
import operator
import os
import re

KINDS = ("hard", "stretch")
COMPARE = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt}


def meets(goal, figure):
    word, limit = re.match(r"^([<>]=?) *([0-9.]+)", goal).groups()
    return COMPARE[word](figure, float(limit))


def uncertain(entry):
    """The goal is missed, but the interval reaches it."""
    return entry["met"] is False and bool(entry["interval"]) and \
        any(x is not None and meets(entry["goal"], x) for x in entry["interval"])


class Table:
    def __init__(self, folder):
        self.folder = folder
        self.entries = []
        os.makedirs(folder, exist_ok=True)

    def add(self, name, value, unit, against=None, ratio=None, interval=None, goal=None, kind="hard", note=""):
        """Adds an entry, prints and returns it. The goal judges the ratio if there is one, else the value."""
        assert kind in KINDS
        judged = ratio if ratio is not None else value
        met = None if goal is None else False
        if goal is not None and judged is not None:
            met = meets(goal, judged)
        entry = {"name": name, "value": value, "unit": unit, "against": against, "ratio": ratio, "interval": interval,
                 "goal": goal, "met": met, "kind": kind, "note": note}
        self.entries.append(entry)
        print(self.line(entry), flush=True)
        self.save()
        return entry

    def missing(self, name, unit, goal, why, kind="hard"):
        """A figure that could not be taken: not met, with the reason."""
        self.add(name, None, unit, goal=goal, kind=kind, note="not measured: " + why)

    @staticmethod
    def line(e):
        def number(x):
            return "-" if x is None else f"{x:.4g}" if abs(x) < 1e5 else f"{x:.0f}"

        interval = "" if not e["interval"] or e["interval"][0] is None else \
            f" [{number(e['interval'][0])}, {number(e['interval'][1])}]"
        if e["goal"] is None:
            verdict = ""
        elif e["value"] is None:
            verdict = f"  goal {e['goal']}: NOT MEASURED"
        else:
            verdict = f"  goal {e['goal']}: " + ("met" if e["met"] else "missed (stretch)" if e["kind"] != "hard" else
                                                 "missed (the interval reaches it)" if uncertain(e) else "MISSED")
        middle = f" against {number(e['against'])}" if e["against"] is not None else ""
        ratio = f", ratio {e['ratio']:.4f}" if e["ratio"] is not None else ""
        note = f"  ({e['note']})" if e["note"] else ""
        return f"{e['name']:<52} {number(e['value']):>9} {e['unit']}{middle}{ratio}{interval}{verdict}{note}"

    def save(self):
        path = os.path.join(self.folder, "results.json")
        with open(path + ".new", "w") as f:
            json.dump(self.entries, f, indent=1)
            f.write("\n")
        os.replace(path + ".new", path)

    def hard_goals_missed(self):
        return [e for e in self.entries if e["goal"] and e["kind"] == "hard" and e["met"] is not True]
