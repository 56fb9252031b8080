"""Which part of a run is the program on the device, and what stays in the session around it."""
