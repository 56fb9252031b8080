"""What a session does here: the patch, what watches its runs, the native hook and XLA clusters."""
