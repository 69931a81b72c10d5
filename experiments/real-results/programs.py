"""The programs: what each does, how it is started, what it reads and what it leaves."""

import hashlib
import math
import random
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
#: What is left of a program that left nothing.
NOTHING = "nothing"
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")


@dataclass
class Real:
    """`command(inputs, threads)` is run in an empty folder. What it computed lies in the files `leaves` (patterns)
    there, or is what it prints (`leaves` empty); `stable` takes out of the bytes what names the time or the machine.
    `regions` says what its public source does in parallel regions, as far as that matters when a team changes."""

    name: str
    package: str
    does: str
    regions: str
    own_state: bool  # bare regions, or state for each thread
    command: Callable
    leaves: list = field(default_factory=list)
    stable: Callable = lambda bytes_: bytes_
    quick: bool = False

    def digest(self, folder, printed):
        files = [path for pattern in self.leaves for path in sorted(folder.glob(pattern))]
        texts = [self.stable(path.read_bytes()) for path in files] if self.leaves else [self.stable(printed)]
        if not texts or not all(texts):
            return NOTHING
        return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def without(pattern):
    return lambda text: re.sub(pattern, b"", text, flags=re.M)


def only(pattern):
    return lambda text: b"\n".join(re.findall(pattern, text, flags=re.M))


PROGRAMS = [
    Real("gm", "graphicsmagick", "median of an image",
         "loops over rows that work in a histogram of their thread, found by omp_get_thread_num()", True,
         lambda i, t: ["gm", "convert", i / "image.ppm", "-median", "4", "out.ppm"], ["out.ppm"], quick=True),
    Real("fasttree", "fasttree", "tree of 110 DNA sequences",
         "loops with schedule(dynamic), sums of floating-point numbers", False,
         lambda i, t: ["fasttreeMP", "-nt", "-quiet", i / "related.fa"]),
    Real("clustalo", "clustalo", "alignment of 90 proteins",
         "loops over pairs with schedule(dynamic), omp_get_thread_num() for a shared counter of progress", True,
         lambda i, t: ["clustalo", "-i", i / "proteins90.fa", "-o", "out.fa"], ["out.fa"]),
    Real("cd-hit", "cd-hit", "clusters of 60000 reads",
         "loops with schedule(dynamic) whose iterations work in buffers that omp_get_thread_num() chooses", True,
         lambda i, t: ["cd-hit-est", "-i", i / "reads.fa", "-o", "out", "-c", "0.95", "-T", "0", "-M", "0"],
         ["out", "out.clstr"]),
    Real("muscle", "muscle", "alignment of 26 proteins",
         "loops with num_threads whose iterations take objects by omp_get_thread_num() and assert it", True,
         lambda i, t: ["muscle", "-align", i / "proteins26.fa", "-output", "out.fa"], ["out.fa"]),
    Real("par2", "par2", "recovery data of 8 MiB",
         "loops over blocks, critical sections around files", False,
         lambda i, t: ["sh", "-c",
                       f"cp {i / 'random.bin'} . && exec par2 create -q -q -s16384 -r40 -n1 p.par2 random.bin"],
         ["p.par2", "p.vol*.par2"]),
    Real("sumaclust", "sumaclust", "clusters of 6000 DNA sequences",
         "loops with schedule(dynamic) in buffers for omp_get_max_threads() threads, chosen by number", True,
         lambda i, t: ["sumaclust", "-p", str(t), i / "related6000.fa"]),
    Real("andi", "andi", "distances of 8 genomes of 0.5 million bases",
         "a loop over genomes, schedule(static)", False,
         lambda i, t: ["andi", i / "genomes.fa"], quick=True),
    Real("jpegqs", "jpegqs", "smoothing of an image",
         "loops over rows of blocks with schedule(dynamic)", False,
         lambda i, t: ["jpegqs", "-n", "60", i / "image.jpg", "out.jpg"], ["out.jpg"], quick=True),
    Real("primecount", "primecount-bin", "number of primes below 4e14",
         "bare regions that fetch work from a balancer, which goes by the clock and the number of threads", True,
         lambda i, t: ["primecount", "400000000000000"], quick=True),
    Real("megahit", "megahit", "contigs of 60000 reads",
         "loops with schedule(dynamic), sorting in buffers that omp_get_thread_num() chooses", True,
         lambda i, t: ["megahit", "-r", i / "reads.fa", "-o", "out", "-t", str(t)], ["out/final.contigs.fa"]),
    Real("xtb", "xtb", "electronic energy of 60 water molecules",
         "bare regions with private arrays that are added up in critical sections; OpenBLAS with OpenMP below", True,
         lambda i, t: ["xtb", i / "water.xyz", "--gfn", "2"], ["charges", "wbo"]),
    Real("mopac", "mopac", "formation energy of 64 water molecules",
         "OpenBLAS with OpenMP", True,
         lambda i, t: ["sh", "-c", f"cp {i / 'water.mop'} . && exec mopac water.mop"], ["water.out"],
         only(rb"^ *(?:FINAL HEAT|TOTAL ENERGY|ELECTRONIC ENERGY|IONIZATION|COSMO|DIPOLE).*$")),
    Real("msgmerge", "gettext", "3500 messages merged by likeness",
         "a loop over messages with schedule(dynamic)", False,
         lambda i, t: ["msgmerge", "-q", "-o", "out.po", i / "old.po", i / "new.pot"], ["out.po"], quick=True),
    Real("sox", "sox", "another sample rate and reverberation for two channels",
         "a loop over channels", False,
         lambda i, t: ["sox", "-R", "--multi-threaded", i / "noise.wav", "out.wav", "rate", "-v", "48000", "reverb"],
         ["out.wav"]),
    Real("fftw", "libfftw3-double3", "Fourier transforms of 96 × 96 × 96 numbers, in place",
         "loops of one iteration for each part of a plan made for a number of threads", True,
         lambda i, t: [i / "fftw", "70"], quick=True),
    Real("openblas", "libopenblas0-openmp", "matrix products and Cholesky factors",
         "loops of one iteration for each thread, buffers for each, threads that wait for each other's flags", True,
         lambda i, t: [i / "openblas", "40"]),
]


def version(package):
    """Of an installed package; None where it is not."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Status} ${Version}", package], capture_output=True, text=True)
    words = done.stdout.split()
    return words[-1] if done.returncode == 0 and "installed" in words else None


def make_inputs(folder):
    """Everything that the programs read, from a fixed seed, and the programs of this folder, built. Returns what could
    not be built: {name: why}."""
    rng = random.Random(1)
    _sequences(folder, rng)
    _image_and_sound(folder, rng)
    _molecules(folder, rng)
    _messages(folder, rng)
    (folder / "random.bin").write_bytes(rng.randbytes(8 << 20))
    return {name: why for name, why in ((name, _build(folder, name, *libraries)) for name, libraries in (
        ("fftw", ("libfftw3_omp.so.3", "libfftw3.so.3", "libgomp.so.1")),
        ("openblas", ("openblas-openmp/libopenblas.so.0",)))) if why}


def _build(folder, name, *libraries):
    """Packages of libraries without headers and links are enough."""
    missing = [str(LIBRARIES / library) for library in libraries if not (LIBRARIES / library).exists()]
    if missing and "gomp" not in missing[0]:
        return f"{missing[0]} is missing"
    paths = [LIBRARIES / library for library in libraries]
    words = ["cc", "-O2", "-std=gnu11", "-o", folder / name, HERE / f"{name}.c", *paths, "-lm",
             f"-Wl,-rpath,{paths[0].parent}"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    return done.stderr.strip()[-300:] if done.returncode else None


def _sequences(folder, rng):
    bases, residues = "ACGT", "ACDEFGHIKLMNPQRSTVWY"
    sequence = lambda letters, length: "".join(rng.choices(letters, k=length))

    def mutated(text, share, letters):
        changed = list(text)
        for _ in range(round(share * len(text))):
            changed[rng.randrange(len(text))] = rng.choice(letters)
        return "".join(changed)

    def family(letters, length, count, share):
        members = [sequence(letters, length)]
        while len(members) < count:
            members.append(mutated(rng.choice(members), share, letters))
        return members

    def write(name, texts):
        (folder / name).write_text("".join(f">s{number}\n{text}\n" for number, text in enumerate(texts)))

    write("related.fa", family(bases, 500, 110, 0.05))
    write("related6000.fa", family(bases, 300, 6000, 0.03))
    write("proteins90.fa", family(residues, 220, 90, 0.15))
    write("proteins26.fa", family(residues, 220, 26, 0.15))
    genome = sequence(bases, 500000)
    genomes = [mutated(genome, 0.01 * (1 + number), bases) for number in range(8)]
    write("genomes.fa", genomes)
    starts = [rng.randrange(120000 - 100) for _ in range(60000)]
    write("reads.fa", [mutated(genome[at:at + 100], 0.01 * (at % 5 == 0), bases) for at in starts])


def _image_and_sound(folder, rng):
    width, height = 640, 480
    noise = rng.randbytes(width * height * 3)
    shade = lambda at: (noise[at] >> 2) + at // 3 % width * 90 // width + at // 3 // width * 90 // height
    picture = bytes(shade(at) for at in range(len(noise)))
    (folder / "image.ppm").write_bytes(b"P6 %d %d 255\n" % (width, height) + picture)
    # Encoders of pictures and sounds are all the same here: what is wanted is something to work on.
    if shutil.which("gm"):
        subprocess.run(["gm", "convert", folder / "image.ppm", "-quality", "40", folder / "image.jpg"], check=True)
    samples = rng.randbytes(4 * 44100 * 100)
    header = (b"RIFF" + (36 + len(samples)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
              + (1).to_bytes(2, "little") + (2).to_bytes(2, "little") + (44100).to_bytes(4, "little")
              + (4 * 44100).to_bytes(4, "little") + (4).to_bytes(2, "little") + (16).to_bytes(2, "little")
              + b"data" + len(samples).to_bytes(4, "little"))
    (folder / "noise.wav").write_bytes(header + samples)


def _molecules(folder, rng):
    def water(edge, most):
        atoms = []
        for number in range(most):
            cell = (number % edge, number // edge % edge, number // edge // edge)
            x, y, z = (3.1 * at + rng.uniform(-0.1, 0.1) for at in cell)
            turn = rng.uniform(0, 2 * math.pi)
            atoms.append(("O", x, y, z))
            atoms += [("H", x + 0.96 * math.cos(a), y + 0.96 * math.sin(a), z) for a in (turn, turn + 1.82)]
        return atoms

    atoms = water(4, 60)
    lines = (f"{e} {x:.4f} {y:.4f} {z:.4f}\n" for e, x, y, z in atoms)
    (folder / "water.xyz").write_text(f"{len(atoms)}\n\n" + "".join(lines))
    lines = (f"{e} {x:.4f} 1 {y:.4f} 1 {z:.4f} 1\n" for e, x, y, z in water(4, 64))
    (folder / "water.mop").write_text("PM7 1SCF\nwater\n\n" + "".join(lines))


def _messages(folder, rng):
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(3, 8))) for _ in range(300)]
    old = dict.fromkeys(" ".join(rng.choices(words, k=12)) for _ in range(3500))
    head = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'

    def alike(text):
        parts = text.split()
        parts[rng.randrange(len(parts))] = rng.choice(words)
        return " ".join(parts)

    (folder / "old.po").write_text(head + "".join(f'msgid "{text}"\nmsgstr "x {text}"\n\n' for text in old))
    new = dict.fromkeys(map(alike, old))
    (folder / "new.pot").write_text(head + "".join(f'msgid "{text}"\nmsgstr ""\n\n' for text in new))
