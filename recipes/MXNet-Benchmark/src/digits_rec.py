"""Write scikit-learn's handwritten digits as RecordIO files, to try `train_imagenet.py --data-train` without ImageNet.

    python digits_rec.py train.rec val.rec
    python train_imagenet.py --data-train train.rec --data-val val.rec --image-shape 3,32,32 --num-classes 10 \
        --num-examples 1536 --network lenet

The second file gets the last 261 digits; without it, the first gets all. --size is the width of an image in pixels.
Beside each FILE.rec lies its index, FILE.idx.
"""

import argparse
import os
import struct
import zlib

import numpy as np
from mxnet import recordio

TEST_IMAGES = 261


def main():
    parser = argparse.ArgumentParser(description="Handwritten digits as RecordIO files.")
    parser.add_argument("train")
    parser.add_argument("val", nargs="?")
    parser.add_argument("--size", type=int, default=32, help="a multiple of 8 (default: %(default)s)")
    options = parser.parse_args()
    from sklearn.datasets import load_digits

    digits = load_digits()
    pairs = list(zip(digits.images, digits.target))
    border = len(pairs) - TEST_IMAGES if options.val else len(pairs)
    write(options.train, pairs[:border], options.size)
    if options.val:
        write(options.val, pairs[border:], options.size)


def write(path, pairs, size):
    records = recordio.MXIndexedRecordIO(os.path.splitext(path)[0] + ".idx", path, "w")
    for number, (pixels, label) in enumerate(pairs):
        large = np.kron(pixels * 255 / 16, np.ones((size // 8, size // 8))).astype("uint8")
        records.write_idx(number, recordio.pack(recordio.IRHeader(0, float(label), number, 0), png(large)))
    records.close()


def png(grey):
    """A grey picture as PNG: three chunks, each with its length and checksum; every row begins with filter 0."""
    height, width = grey.shape
    rows = b"".join(b"\0" + row.tobytes() for row in grey)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


if __name__ == "__main__":
    main()
