"""What only the paper's recipe needs."""
