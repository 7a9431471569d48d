"""Scores of explanations by a short name: ``bifkit.metrics.evalx``; they live in :mod:`bifkit.evaluation`."""

from bifkit.evaluation import (
    Encoding,
    Evaluator,
    deletion_score,
    encoding,
    evalx,
    fixed_set,
    insertion_score,
    mask_only,
    mcc,
    post_hoc_accuracy,
    top_k_mask,
)

__all__ = ["Encoding", "Evaluator", "deletion_score", "encoding", "evalx", "fixed_set", "insertion_score", "mask_only",
           "mcc", "post_hoc_accuracy", "top_k_mask"]
