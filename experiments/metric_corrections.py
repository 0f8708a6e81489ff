#!/usr/bin/env python3
"""Measures the corrections of docs/metric_attention.md: the published scores against p M p', and the gradient
of a distance's metric with and without the row sums that are 0 in exact arithmetic.

  .deps/venv/bin/python experiments/metric_corrections.py
"""
import torch

SEEDS = range(5)


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def published_scores(p, metric):
    """2 M_kk' p_ck p_c'k' for k > k', twice for c != c'; written for c >= c' and mirrored."""
    once = torch.diag(metric.diag()) + 2 * metric.tril(-1)
    offset = torch.arange(len(p))[None, :] - torch.arange(len(p))[:, None]
    scores = torch.where(offset <= 0, p @ once @ p.T, p @ once.T @ p.T)
    return torch.where(offset == 0, scores, 2 * scores), scores


def score_differences(seed, context=64, width=32):
    generator = torch.Generator().manual_seed(seed)
    p = torch.randn(context, width, generator=generator, dtype=torch.float64)
    lower = torch.randn(width, width, generator=generator, dtype=torch.float64).tril()
    metric = lower + lower.tril(-1).T
    published, without_further_factor = published_scores(p, metric)
    right = p @ metric @ p.T
    return relative(published, right), relative(without_further_factor, right)


def metric_gradient_errors(seed, context, width, narrow=torch.bfloat16):
    """Errors of dM for a causal distance, with products rounded to `narrow` and summed in float32: (without rho, with rho)."""
    generator = torch.Generator().manual_seed(seed)
    p = (torch.randn(context, width, generator=generator) / 2).to(narrow).double().requires_grad_()
    factor = torch.randn(width, width, generator=generator, dtype=torch.float64) / width**0.5
    metric = (factor @ factor.T + 0.1 * torch.eye(width)).to(narrow).double()
    metric = ((metric + metric.T) / 2).requires_grad_()
    dt = torch.randn(context, width, generator=generator).to(narrow).double()
    scale, visible = width**-0.5, torch.ones(context, context).tril().bool()
    difference = p[:, None] - p[None]
    scores = -scale * torch.einsum("ijk,kl,ijl->ij", difference, metric, difference)
    (scores.masked_fill(~visible, -torch.inf).softmax(-1) @ p * dt).sum().backward()
    exact = metric.grad + metric.grad.T

    p, metric, dt = p.detach().float(), metric.detach().float(), dt.float()
    rounded = lambda x: x.to(narrow).float()
    q = rounded(p @ metric)
    scores = 2 * scale * (q @ p.T - (q * p).sum(-1) / 2)
    weight = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    delta = (rounded(rounded(weight) @ p) * dt).sum(-1, keepdim=True)
    dscore = weight * (dt @ p.T - delta)
    dscore.fill_diagonal_(0)
    rows, columns = scale * dscore.sum(1, keepdim=True), scale * dscore.sum(0)[:, None]

    def error(sums):
        dq = rounded(2 * scale * (rounded(dscore) @ p) - sums * p)
        dmetric = p.T @ dq
        return relative((dmetric + dmetric.T).double(), exact)

    return error(columns), error(rows + columns)


def main():
    published, without = zip(*(score_differences(seed) for seed in SEEDS))
    print(f"published scores: relative difference {mean(published):.3f}; without the factor for c != c': {mean(without):.3f}")
    print("relative error of dM of a distance in bf16, without and with rho:")
    for context, width in ((64, 16), (64, 32), (128, 64), (256, 64)):
        errors = [metric_gradient_errors(seed, context, width) for seed in SEEDS]
        print(f"  context {context:3}, width {width}: {mean(e[0] for e in errors):.3f} {mean(e[1] for e in errors):.4f}")


if __name__ == "__main__":
    main()
