import csv
import os

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
rows = list(csv.reader(open("numbers.csv")))[rank::world]
loss = 1.0
for epoch in range(3):
    loss /= 2
    print(f"epoch {epoch} loss {loss:.3f} on rank {rank} of {world}", flush=True)
open(f"sum-{rank}.txt", "w").write(str(sum(int(row[0]) for row in rows)))
