"""Where operations run: one matrix product placed on each device by tf.device, logged by TensorFlow itself.

CUDA_VISIBLE_DEVICES chooses GPUs; TensorFlow numbers those it sees from 0. Where there is no GPU, the CPU is cut into as
many devices as the variable names (or --devices), so that the placement can be tried.

What it prints: TensorFlow's log of each operation (stderr), then a line for each device:

    device 2 of 4 is GPU 4 of the node: MatMul ran on /job:localhost/replica:0/task:0/device:CPU:2
"""

from __future__ import annotations

import argparse
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"  # the log of placements has the level INFO

import tensorflow as tf


def main() -> None:
    parser = argparse.ArgumentParser(description="Places an operation on each device.")
    parser.add_argument("--devices", type=int, default=2, help="without a GPU and without CUDA_VISIBLE_DEVICES")
    options = parser.parse_args()
    tf.debugging.set_log_device_placement(True)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = visible.split(",") if visible else [str(number) for number in range(options.devices)]
    names = devices(len(numbers))
    for place, (name, number) in enumerate(zip(names, numbers)):
        with tf.device(name):
            product = tf.matmul(tf.ones([64, 64]), tf.ones([64, 64]))
        line = f"device {place} of {len(names)} is GPU {number} of the node: MatMul ran on {product.device}"
        print(line, flush=True)


def devices(wanted: int) -> list[str]:
    """`/gpu:0`, `/gpu:1`, ... or parts of the CPU in their place."""
    if gpus := tf.config.list_physical_devices("GPU"):
        return [f"/gpu:{number}" for number in range(len(gpus))]
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * wanted)
    return [f"/cpu:{number}" for number in range(wanted)]


if __name__ == "__main__":
    main()
