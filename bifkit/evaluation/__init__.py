"""Is an explanation right? Convergence, calibration, scores against truth, faithfulness."""
