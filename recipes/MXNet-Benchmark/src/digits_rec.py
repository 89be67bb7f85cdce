"""Write scikit-learn's handwritten digits as a RecordIO file, to try `benchmark.py --data-train` without ImageNet.

    python digits_rec.py digits.rec
    python benchmark.py --data-train digits.rec --image-shape 3,32,32 --num-classes 10 --network resnet18_v1
"""

import struct
import sys
import zlib

import numpy as np
from mxnet import recordio


def main():
    from sklearn.datasets import load_digits

    digits = load_digits()
    records = recordio.MXRecordIO(sys.argv[1], "w")
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target)):
        large = np.kron(pixels * 255 / 16, np.ones((4, 4))).astype("uint8")  # 8x8 -> 32x32
        records.write(recordio.pack(recordio.IRHeader(0, float(label), number, 0), png(large)))
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
