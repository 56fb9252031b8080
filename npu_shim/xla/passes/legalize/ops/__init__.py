"""What ops without a kernel of XLA are lowered to; table.py of the package above maps each op to a function here."""
