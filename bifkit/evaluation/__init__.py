"""Is an explanation right? Convergence, calibration, scores against truth, faithfulness to the model."""

from bifkit.evaluation.calibration import calibrated, check_refits, coverage, held_out, temperature
from bifkit.evaluation.comparing import Comparison, compare
from bifkit.evaluation.diagnostics import Diagnostics, FitWarning, diagnose
from bifkit.evaluation.directions import Direction, check_direction, direction
from bifkit.evaluation.faithfulness import deletion_curve, deletion_score, insertion_curve, insertion_score
from bifkit.evaluation.metrics import keep_features, mcc, mcc_of_masks, post_hoc_accuracy, top_k_mask
from bifkit.evaluation.refitting import refits
from bifkit.evaluation.relevance import Relevant, relevant
from bifkit.evaluation.selections import Encoding, Evaluator, encoding, evalx, fixed_set, mask_only

__all__ = ["Comparison", "Diagnostics", "Direction", "Encoding", "Evaluator", "FitWarning", "Relevant", "calibrated",
           "check_direction", "check_refits", "compare", "coverage", "deletion_curve", "deletion_score", "diagnose",
           "direction", "encoding", "evalx", "fixed_set", "held_out", "insertion_curve", "insertion_score",
           "keep_features", "mask_only", "mcc", "mcc_of_masks", "post_hoc_accuracy", "refits", "relevant",
           "temperature", "top_k_mask"]
