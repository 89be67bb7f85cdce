import ray

ray.init(address="auto")


@ray.remote
def work(number):
    return sum(range(number))


assert len(ray.nodes()) == 2
for step in range(3):
    total = sum(ray.get([work.remote(step) for _ in range(4)]))
    print(f"step {step} loss {1 / (1 + total):.3f}", flush=True)
with open("done.txt", "w") as file:
    file.write("done")
