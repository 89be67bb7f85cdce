import numpy as np
import tensorflow as tf
from tensorflow import keras

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rng = np.random.default_rng(0)
x = rng.normal(size=(512, 8)).astype("float32")
y = (x.sum(axis=1) > 0).astype("int32")
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
model.fit(data, epochs=3, verbose=2)
chief = strategy.cluster_resolver.task_id == 0
model.save("model.keras" if chief else "/tmp/ignored.keras")
