"""Features as scikit-learn transformers."""
