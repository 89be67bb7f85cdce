"""The networks that train_imagenet.py names, as symbols: MXNet's model zoo, and its two smallest by hand."""

import mxnet as mx
from mxnet.gluon.model_zoo import vision

ZOO = {
    "resnet": "resnet{}_v2",
    "resnet-v1": "resnet{}_v1",
    "resnet18": "resnet18_v1",  # DLBS's names
    "resnet34": "resnet34_v1",
    "resnet50": "resnet50_v1",
    "resnet101": "resnet101_v1",
    "resnet152": "resnet152_v1",
    "vgg": "vgg{}",
    "densenet": "densenet{}",
    "inception-v3": "inceptionv3",
    "inception3": "inceptionv3",
    "mobilenet": "mobilenet1.0",
    "mobilenetv2": "mobilenetv2_1.0",
    "squeezenet": "squeezenet1.0",
}


def symbol(name, layers, classes, dtype):
    """From `data` to `softmax`. In half precision everything between is cast, the loss is not."""
    data = mx.sym.Variable("data")
    if dtype == "float16":
        data = mx.sym.Cast(data, dtype=dtype)
    scores = SMALL[name](data, classes) if name in SMALL else of_zoo(name, layers, classes, dtype)(data)
    if dtype == "float16":
        scores = mx.sym.Cast(scores, dtype="float32")
    return mx.sym.SoftmaxOutput(scores, name="softmax")


def of_zoo(name, layers, classes, dtype):
    wanted = ZOO.get(name, name).format(layers)
    try:
        net = vision.get_model(wanted, classes=classes)
    except ValueError as error:
        names = ", ".join(sorted([*SMALL, *ZOO]))
        raise SystemExit("--network {} --num-layers {}: {}\nother names: {}".format(name, layers, error, names))
    net.cast(dtype)
    return net


def mlp(data, classes):
    for number, width in enumerate((128, 64), 1):
        data = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=width, name="fc%d" % number), "relu")
    return mx.sym.FullyConnected(data, num_hidden=classes)


def lenet(data, classes):
    for number, filters in enumerate((20, 50), 1):
        data = mx.sym.Convolution(data, kernel=(5, 5), num_filter=filters, name="conv%d" % number)
        data = mx.sym.Pooling(mx.sym.Activation(data, "tanh"), pool_type="max", kernel=(2, 2), stride=(2, 2))
    data = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=500), "tanh")
    return mx.sym.FullyConnected(data, num_hidden=classes)


SMALL = {"mlp": mlp, "lenet": lenet}
