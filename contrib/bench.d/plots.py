# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of contrib/bench, drawn by gnuplot from the data files beside them."""
import os
import shutil
import subprocess


def plot(table, name, commands, height=500):
    """Draws table.folder/name, a PNG, with gnuplot `commands` run in that folder. Says so when that is not possible."""
    if not shutil.which("gnuplot"):
        print(f"{name} not drawn: gnuplot is not installed (Debian: gnuplot-nox)")
        return
    script = "\n".join([f"set terminal pngcairo noenhanced size 900,{height}", f"set output '{name}'", "set grid", *commands]) + "\n"
    run = subprocess.run(["gnuplot"], input=script, text=True, cwd=table.folder, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, check=False, timeout=60)
    if run.returncode:
        print(f"{name} not drawn: gnuplot says {run.stdout.strip()[:200]}")
    else:
        print(f"drawn: {os.path.join(table.folder, name)}")
