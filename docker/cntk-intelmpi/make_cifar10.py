"""Write a synthetic data set of CIFAR-10's shape in CNTK's text format: make_cifar10.py DIR [TRAIN [TEST]].

Ten patterns of 3 x 32 x 32 pixels with noise, so that a network learns them in a few steps. DIR gets
Train_cntk_text.txt and Test_cntk_text.txt, under the names that CNTK's own install_cifar10.py gives the real images.
"""

import os
import sys

import numpy as np

PIXELS, CLASSES = 3 * 32 * 32, 10


def main(directory, train="2000", test="400"):
    os.makedirs(directory, exist_ok=True)
    random = np.random.RandomState(0)
    patterns = np.kron(random.randint(40, 216, (CLASSES, 3 * 8, 8)), np.ones((4, 4)))
    patterns = patterns.reshape(CLASSES, PIXELS)
    for name, count in (("Train", int(train)), ("Test", int(test))):
        with open(os.path.join(directory, name + "_cntk_text.txt"), "w") as file:
            for label in random.randint(CLASSES, size=count):
                pixels = np.clip(patterns[label] + random.normal(0, 32, PIXELS), 0, 255).astype(int)
                labels = " ".join("1" if number == label else "0" for number in range(CLASSES))
                file.write("|labels {} |features {}\n".format(labels, " ".join(map(str, pixels))))


if __name__ == "__main__":
    main(*sys.argv[1:])
