#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training step of GPT-2 124M in PyTorch, eager, as fast as its CPU path goes: fused attention where the version has
it, one-pass AdamW where it has that, autocast for bfloat16."""

import gpt2_file
import torch
from torch.nn import functional as F


class Model(torch.nn.Module):
    def __init__(self, heads, vocabulary, parameters):
        super().__init__()
        self.heads, self.vocabulary = heads, vocabulary
        self.layers = parameters["qkv.weight"].shape[0]
        for name, value in parameters.items():
            tensor = torch.from_numpy(value)
            key = name.replace(".", "_")
            if name in gpt2_file.BLOCK:  # a parameter for each layer, as models are written
                setattr(self, key, torch.nn.ParameterList([torch.nn.Parameter(layer.clone()) for layer in tensor]))
            else:
                setattr(self, key, torch.nn.Parameter(tensor))

    def attention(self, qkv):
        batch, length, channels = qkv.shape
        size = channels // 3 // self.heads
        q, k, v = (x.view(batch, length, self.heads, size).transpose(1, 2) for x in qkv.split(channels // 3, 2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * size ** -0.5
            hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
            y = F.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ v
        return y.transpose(1, 2).reshape(batch, length, channels // 3)

    def forward(self, tokens, targets):
        x = self.wte[tokens] + self.wpe[: tokens.shape[1]]
        norm = lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5)
        for i in range(self.layers):
            h = F.linear(norm(x, self.ln_1_weight[i], self.ln_1_bias[i]), self.qkv_weight[i], self.qkv_bias[i])
            x = x + F.linear(self.attention(h), self.proj_weight[i], self.proj_bias[i])
            h = F.linear(norm(x, self.ln_2_weight[i], self.ln_2_bias[i]), self.fc_weight[i], self.fc_bias[i])
            x = x + F.linear(F.gelu(h, approximate="tanh"), self.out_weight[i], self.out_bias[i])
        logits = F.linear(norm(x, self.ln_f_weight, self.ln_f_bias), self.wte[: self.vocabulary])
        return F.cross_entropy(logits.view(-1, self.vocabulary).float(), targets.view(-1))


def main():
    args = gpt2_file.arguments()
    torch.set_num_threads(args.threads)
    heads, vocabulary, parameters, tokens, targets = gpt2_file.read(args)
    model = Model(heads, vocabulary, parameters)
    tokens, targets = torch.from_numpy(tokens), torch.from_numpy(targets)
    settings = dict(lr=gpt2_file.RATE, betas=gpt2_file.BETAS, eps=gpt2_file.EPSILON, weight_decay=gpt2_file.DECAY)
    try:
        optimizer = torch.optim.AdamW(model.parameters(), fused=True, **settings)
    except (RuntimeError, TypeError):  # not on processors in older versions
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True, **settings)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    gpt2_file.report("PyTorch " + torch.__version__, args, step)


main()
