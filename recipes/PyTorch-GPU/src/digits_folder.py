"""Write scikit-learn's handwritten digits as a folder of images, to try imagenet.py without ImageNet.

digits_folder.py DIR [COUNT]: DIR/train/DIGIT/NUMBER.ppm, and every seventh image in DIR/val.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def main(directory: str, count: str = "1797") -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number in range(int(count)):
        grey = np.kron(digits.images[number] * 255 / 16, np.ones((4, 4))).astype("uint8")
        folder = Path(directory, "val" if number % 7 == 0 else "train", str(digits.target[number]))
        folder.mkdir(parents=True, exist_ok=True)
        height, width = grey.shape
        colours = np.repeat(grey[:, :, None], 3, 2).tobytes()
        (folder / f"{number:04}.ppm").write_bytes(f"P6\n{width} {height}\n255\n".encode() + colours)


if __name__ == "__main__":
    main(*sys.argv[1:])
