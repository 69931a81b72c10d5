"""Packs the module and a static binary into a wheel: wheel.py DIRECTORY BINARY MACHINE. Prints its path.

The format is that of PEP 427; a compiled command needs nothing of a build backend.
"""

import base64
import hashlib
import os
import re
import sys
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main():
    directory, binary, machine = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    version = re.search(r'^version = "(.+)"', (TOP / "Cargo.toml").read_text(), re.M)[1]
    # What the preload library in the binary needs; the binary itself runs beside musl as well.
    tags = [f"py3-none-manylinux2014_{machine}", f"py3-none-manylinux_2_17_{machine}", f"py3-none-musllinux_1_1_{machine}"]
    platforms = ".".join(tag.rsplit("-", 1)[1] for tag in tags)
    info = f"coplace-{version}.dist-info"
    readme = (HERE / "README.md").read_text()
    metadata = f"""Metadata-Version: 2.1
Name: coplace
Version: {version}
Summary: Lets several parallel programs share a machine without slowing each other down
License: Apache-2.0 OR MIT
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: System :: Distributed Computing
Classifier: Typing :: Typed
Requires-Python: >=3.8
Provides-Extra: frames
Requires-Dist: pandas; extra == "frames"
Description-Content-Type: text/markdown

{readme}"""
    wheel = "Wheel-Version: 1.0\nGenerator: coplace\nRoot-Is-Purelib: false\n" + "".join(f"Tag: {tag}\n" for tag in tags)
    files = {f"coplace/{path.name}": (path.read_bytes(), 0o644) for path in sorted((HERE / "coplace").iterdir())
             if path.suffix in [".py", ".typed"] or path.name == "py.typed"}
    files[f"coplace-{version}.data/scripts/coplace"] = (binary.read_bytes(), 0o755)
    for name in ["LICENSE-APACHE", "LICENSE-MIT"]:
        files[f"{info}/{name}"] = ((TOP / name).read_bytes(), 0o644)
    files[f"{info}/METADATA"] = (metadata.encode(), 0o644)
    files[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    record = "".join(f"{name},{digest(data)},{len(data)}\n" for name, (data, _) in files.items())
    files[f"{info}/RECORD"] = ((record + f"{info}/RECORD,,\n").encode(), 0o644)
    made = directory / f"coplace-{version}-py3-none-{platforms}.whl"
    at = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name, at)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    print(made)


if __name__ == "__main__":
    main()
