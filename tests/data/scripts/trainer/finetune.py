import numpy as np
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

rng = np.random.default_rng(0)
tokens = rng.integers(5, 90, size=(128, 16))
data = Dataset.from_dict({"input_ids": tokens.tolist(), "labels": (tokens[:, 0] > 45).astype(int).tolist()})
config = BertConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
arguments = TrainingArguments(
    "checkpoints",
    num_train_epochs=3,
    per_device_train_batch_size=16,
    logging_steps=2,
    learning_rate=1e-3,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=data)
trainer.train()
trainer.save_model("model")
