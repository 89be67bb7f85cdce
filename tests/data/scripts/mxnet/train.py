import mxnet as mx


def main():
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((2,)))
    out = mx.nd.zeros((2,))
    for step in range(3):
        kv.push("w", mx.nd.ones((2,)) * (kv.rank + 1))
        kv.pull("w", out=out)
        print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    if kv.rank == 0:
        mx.nd.save("w.nd", out)


main()
