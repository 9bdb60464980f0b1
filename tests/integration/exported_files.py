"""Files that exports are tested with: what ONNX and safetensors files have in their metadata, and data
that are written byte by byte."""
import json
import struct
import zlib


def fields(message):
    """(number, value) of each field of a protobuf message; the value is an int or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
            continue
        size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        yield number, message[at:at + size]
        at += size


def metadata_of(path):
    """The metadata of an ONNX file; JSON is parsed, files of tokenizers are texts."""
    pairs = [dict(fields(value)) for number, value in fields(path.read_bytes()) if number == 14]
    found = {pair[1].decode(): pair[2].decode() for pair in pairs}
    return {key: value if "." in key else json.loads(value) for key, value in found.items()}


def inputs_of(path):
    """Names of the graph's inputs."""
    graph = next(value for number, value in fields(path.read_bytes()) if number == 7)
    return [dict(fields(value))[1].decode() for number, value in fields(graph) if number == 11]


def safetensors(path):
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + o for o in entry["data_offsets"])
        tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", content[begin:end])
    return tensors, metadata


def session_of(path):
    try:
        import numpy  # noqa: F401
        import onnxruntime
    except ImportError as error:
        print(f"skipped for {path.name}: {error}")
        return None
    return onnxruntime.InferenceSession(path)


def idx(path, extents, values):
    path.write_bytes(struct.pack(f">HBB{len(extents)}I", 0, 8, len(extents), *extents) + bytes(values))


def png(path, width, height, pixels):
    def chunk(name, content):
        return (struct.pack(">I", len(content)) + name + content +
                struct.pack(">I", zlib.crc32(name + content)))

    lines = b"".join(b"\0" + bytes(pixels[3 * width * y:3 * width * (y + 1)]) for y in range(height))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def by_metadata(found, path):
    """A picture as the metadata of an ONNX file describe it."""
    import numpy
    from PIL import Image
    picture = Image.open(path).convert("RGB")
    edge = found["size"]["shortest_edge"]
    width, height = (max(edge, side * edge // min(picture.size)) for side in picture.size)
    picture = picture.resize((width, height), found["resample"])
    crop = found["crop_size"]
    left, top = round((width - crop["width"]) / 2), round((height - crop["height"]) / 2)
    picture = picture.crop((left, top, left + crop["width"], top + crop["height"]))
    pixels = numpy.asarray(picture)
    if not found["do_normalize"]:
        return pixels
    x = (pixels * found["rescale_factor"] - found["image_mean"]) / found["image_std"]
    return x.transpose(2, 0, 1).astype(numpy.float32)
