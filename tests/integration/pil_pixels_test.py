#!/usr/bin/env python3
"""Decodes and resizes real JPEG files as PIL does. Catches a scaled decode, another inverse transform
or chroma upsampling, and a resampling with other weights or another place.

    python3 pil_pixels_test.py LOCKSTEP [--data DIR]       needs numpy and pillow, else skipped

`lockstep data pack --decode` goes the way of evaluation. Prints the largest difference in levels of
255 at each size; resized pixels may differ by one: PIL rounds between columns and rows.
"""
import argparse
import io
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile

SKIPPED = 77
SIZES = (36, 100, 256)


def records(path):
    """Pixels (height, width, 3) of each record; the format is in runtime/data/images/record_file.h."""
    import numpy
    file = pathlib.Path(path).read_bytes()
    assert file[:8] == b"LKSTPREC"
    count, _, at = struct.unpack_from("<QQQ", file, 16)
    for i in range(count):
        offset, size, _, height, width, _ = struct.unpack_from("<QIiIIQ", file, at + 32 * i)
        assert size == height * width * 3, (size, height, width)
        yield numpy.frombuffer(file, numpy.uint8, size, offset).reshape(height, width, 3)


def files_in(path):
    with tarfile.open(path) as tar:
        return [tar.extractfile(member).read() for member in tar
                if member.name.lower().endswith((".jpg", ".jpeg"))]


def images(data):
    """Sets of JPEG files, as (name, contents)."""
    for name in ("flowers-jpeg/flowers-5x500-128px.tar", "imagenet-samples/imagenet-100.tar"):
        if (data / name).exists():
            yield name, files_in(data / name)
    photos = sorted((data / "jpeg-cc-by").glob("*.jpg"))
    if photos:
        yield "jpeg-cc-by", [photo.read_bytes() for photo in photos]


def write_tar(path, files):
    """With a class beside each, as the program wants it."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i, content in enumerate(files):
            for name, text in ((f"{i:06}.jpg", content), (f"{i:06}.cls", b"0")):
                member = tarfile.TarInfo(name)
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text))


def by_pil(file, shorter):
    import numpy
    from PIL import Image
    image = Image.open(io.BytesIO(file)).convert("RGB")
    width, height = image.size
    longer = max(width, height) * shorter // min(width, height)
    size = (shorter, longer) if width <= height else (longer, shorter)
    return numpy.asarray(image.resize(size, Image.BILINEAR))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--data", type=pathlib.Path,
                        default=pathlib.Path(__file__).parents[2] / "../shared/data")
    options = parser.parse_args()
    try:
        import numpy
        import PIL  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}")
        return SKIPPED
    compared, failed = 0, False
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, files in images(options.data):
            files = files[::1 + len(files) // 300]  # enough of them
            path = folder / "images.tar"
            write_tar(path, files)
            for size in SIZES:
                packed = folder / "packed.rec"
                subprocess.run([options.lockstep, "data", "pack", str(path), "--decode", "--size",
                                str(size), "--out", str(packed), "--threads", "1"], check=True,
                               stdout=subprocess.DEVNULL)
                found = list(records(packed))
                assert len(found) == len(files), (len(found), len(files))
                differences = [numpy.abs(ours.astype(int) - by_pil(file, size)).ravel()
                               for ours, file in zip(found, files)]
                largest = max(int(d.max()) for d in differences)
                mean = sum(float(d.mean()) for d in differences) / len(differences)
                print(f"{name} at {size}: largest difference {largest}, mean {mean:.4f}")
                failed |= largest > 1
                compared += 1
    if compared == 0:
        print(f"skipped: no JPEG files under {options.data}")
        return SKIPPED
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
