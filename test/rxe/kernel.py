# SPDX-License-Identifier: BSD-3-Clause
"""A Linux kernel with rdma_rxe to boot in a virtual machine: where it is, how to get one, the initramfs it starts from.

The kernel is Debian's, downloaded with apt and unpacked in a folder of the user's; nothing is installed. A kernel of
this machine does as well when its image can be read and rdma_rxe is among its modules.
Environment: BFO_KERNEL_ROOT, a folder with boot/ and lib/modules/ to use instead.
"""
import glob
import lzma
import os
import re
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "openmpi-bfo", "kernel")
# In the order they are loaded, each after what it depends on. crc32_generic: rxe asks for it by name.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm", "veth", "sch_netem",
           "sch_prio", "cls_u32")


class Missing(Exception):
    """What is not there; the text says so and names the remedy."""


class Kernel:
    """An image and its modules."""

    def __init__(self, image, modules):
        self.image = image
        self.modules = modules
        self.version = os.path.basename(modules)
        self.files = {}
        for folder, _, names in os.walk(os.path.join(modules, "kernel")):
            for name in names:
                found = re.match(r"(.+)\.ko(\.xz)?$", name)
                if found:
                    self.files[found.group(1).replace("-", "_")] = os.path.join(folder, name)

    def read(self, module):
        with open(self.files[module], "rb") as f:
            data = f.read()
        return lzma.decompress(data) if self.files[module].endswith(".xz") else data

    def load_order(self):
        """MODULES and what they depend on. A module that is not there is built in (rdma_rxe never is)."""
        order, data = [], {}

        def visit(module):
            if module in data or module not in self.files:
                return
            data[module] = self.read(module)
            found = re.search(rb"\0depends=([^\0]*)\0", data[module])
            for needed in (found.group(1).decode().split(",") if found else []):
                visit(needed.replace("-", "_"))
            order.append(module)

        for module in MODULES:
            visit(module)
        return order, data


def find():
    """The kernel to use. Raises Missing."""
    own = os.environ.get("BFO_KERNEL_ROOT")
    for root in [own] if own else [CACHE, "/"]:
        for image in sorted(glob.glob(os.path.join(root, "boot", "vmlinuz-*")), reverse=True):
            modules = os.path.join(root, "lib", "modules", os.path.basename(image)[len("vmlinuz-"):])
            if os.access(image, os.R_OK) and glob.glob(os.path.join(modules, "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*")):
                return Kernel(image, modules)
    raise Missing(f"no kernel with rdma_rxe below {own or CACHE + ' or /'}; contrib/check --kernel gets one")


def fetch():
    """Downloads Debian's kernel and unpacks it in CACHE. Raises Missing with the reason when it cannot."""
    if os.uname().machine != "x86_64":
        raise Missing(f"the lab's kernel is x86_64, this machine is {os.uname().machine}")
    depends = tool("apt-cache", "depends", "--important", "linux-image-amd64")
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    if not found:
        raise Missing("apt knows no package linux-image-amd64; set BFO_KERNEL_ROOT to a folder with boot/ and lib/modules/")
    os.makedirs(CACHE, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetch-") as folder:
        os.chmod(folder, 0o755)
        tool("apt-get", "-o", "APT::Sandbox::User=root", "download", found.group(1), cwd=folder)
        package = glob.glob(os.path.join(folder, "*.deb"))[0]
        tool("dpkg", "-x", package, os.path.join(folder, "root"))
        image = glob.glob(os.path.join(folder, "root/boot/vmlinuz-*"))[0]
        version = os.path.basename(image)[len("vmlinuz-"):]
        for part in (f"lib/modules/{version}", f"boot/vmlinuz-{version}"):  # find() wants both: the image comes last
            target = os.path.join(CACHE, part)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.isdir(target):
                shutil.rmtree(target)
            os.rename(os.path.join(folder, "root", part), target)
    return find()


def tool(*command, cwd=None):
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", timeout=600, check=False, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from None
    if run.returncode:
        raise Missing(f"{' '.join(command)} failed: {run.stdout.strip().splitlines()[-1:] or 'no output'}")
    return run.stdout


def initramfs(kernel, path):
    """Writes the initramfs: busybox, the modules in their order, and init."""
    busybox = shutil.which("busybox")
    if not busybox:
        raise Missing("busybox is not installed; contrib/check --kernel installs it")
    order, data = kernel.load_order()
    with open(busybox, "rb") as f:
        program = f.read()
    if b"/ld-linux" in program[:4096]:
        raise Missing("busybox here needs shared libraries; install the package busybox-static")
    with open(os.path.join(HERE, "init"), "rb") as f:
        init = f.read()
    with open(path, "wb") as out:
        for folder in ("bin", "dev", "modules"):
            entry(out, folder, 0o040755, b"")
        entry(out, "bin/busybox", 0o100755, program)
        entry(out, "init", 0o100755, init)
        entry(out, "modules/order", 0o100644, "".join(name + ".ko\n" for name in order).encode())
        for name in order:
            entry(out, f"modules/{name}.ko", 0o100644, data[name])
        entry(out, "TRAILER!!!", 0, b"")


def entry(out, name, mode, data):
    """One file of a cpio archive in the format "newc"."""
    encoded = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    out.write(header + b"\0" * (-len(header) % 4) + data + b"\0" * (-len(data) % 4))
