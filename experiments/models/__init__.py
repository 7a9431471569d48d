"""The models that the studies explain: classifiers, private ones, fair ones."""
