import deepspeed
import torch

model = torch.nn.Linear(8, 1)
config = {
    "train_micro_batch_size_per_gpu": 16,
    "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
x = torch.randn(16, 8)
for step in range(3):
    loss = ((engine(x) - x.sum(1, keepdim=True)) ** 2).mean()
    engine.backward(loss)
    engine.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
if engine.global_rank == 0:
    torch.save(model.state_dict(), "model.pt")
