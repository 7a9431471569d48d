"""What goes in: rows, labels and models, checked; groups; stand-ins for models without gradients.

The rest of the package imports from here, not from the files inside.
"""

from bifkit.inputs.answers import function_of
from bifkit.inputs.checks import check_classes, check_X, check_y, warn
from bifkit.inputs.distilling import Distilled, NotFaithful, distill, numbers
from bifkit.inputs.groups import resolve_groups, windows
from bifkit.inputs.masked import (
    MaskedNetwork,
    MaskedSurrogate,
    blank_row,
    check_training,
    draw_masks,
    masked_surrogate,
    train_masked,
)
from bifkit.inputs.models import (
    check_model,
    chosen,
    frozen,
    like,
    outputs,
    predict_proba,
    view,
    why_not_finite,
)
from bifkit.inputs.rows import flat_model, flat_rows, is_loader, rows_of, score, source
from bifkit.inputs.several import Layout
from bifkit.inputs.stored import check_explainer, check_posterior, pack_index, stored_networks, unpack_index
from bifkit.inputs.tables import in_order

__all__ = ["Distilled", "Layout", "MaskedNetwork", "MaskedSurrogate", "NotFaithful", "blank_row", "check_X",
           "check_classes", "check_explainer", "check_model", "check_posterior", "check_training", "check_y", "chosen",
           "distill", "draw_masks", "flat_model", "flat_rows", "frozen", "function_of", "in_order", "is_loader", "like",
           "masked_surrogate", "numbers", "outputs", "pack_index", "predict_proba", "resolve_groups", "rows_of",
           "score", "source", "stored_networks", "train_masked", "unpack_index", "view", "warn", "why_not_finite",
           "windows"]
