from torch import nn


class Bigram(nn.Module):
    def __init__(self, vocabulary, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.embed(tokens))
