"""A plan as one HTML file that needs no network: what runs in low precision, what does not, and why."""
