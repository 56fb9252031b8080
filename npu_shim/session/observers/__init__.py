"""What watches a session's runs: dumps, calibration, profiling, watched scalars."""
