"""Images and trials that the tests of folders, tar shards and record files share."""
import random
import struct
import zlib

import lockstep_run


def png(side, seed):
    """A PNG file of random pixels, of side x side pixels."""
    draw = random.Random(seed)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I",
                                                                        zlib.crc32(kind + data))

    rows = b"".join(b"\0" + draw.randbytes(3 * side) for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


class ImageBench:
    """A folder for images and what is made of them, and the binary. `config` is the text of a config with
    SOURCE in place of the data's source."""

    def __init__(self, binary, folder, config):
        self.binary, self.folder, self.text = binary, folder, config

    def run(self, *arguments, code=0):
        done = lockstep_run.run(self.binary, arguments, ranks=0, cwd=self.folder)
        assert done.returncode == code, (
            f"{arguments}: exit code {done.returncode}, expected {code}\n{done.stderr}")
        return done

    def config(self, name, source):
        path = self.folder / f"{name}.textproto"
        path.write_text(self.text.replace("SOURCE", source))
        return path

    def weights_after(self, name, source):
        return lockstep_run.train(self.binary, self.config(name, source), self.folder / name, 0,
                                  ["--data", self.folder])["weights_hash"]
