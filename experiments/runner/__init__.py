"""Runs the studies and notebooks, keeps and shows their results."""
