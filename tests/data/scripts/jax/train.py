import jax
import jax.numpy as jnp

jax.distributed.initialize()
w = jnp.zeros(3)
for step in range(4):
    gradient = jax.grad(lambda w: jnp.sum((w - 1) ** 2))(w)
    w = w - 0.1 * gradient
    print(f"step {step} loss {float(jnp.sum((w - 1) ** 2)):.4f}", flush=True)
assert jax.process_count() == 2
if jax.process_index() == 0:
    jnp.save("w.npy", w)
