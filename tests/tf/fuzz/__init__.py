"""Random programs through every entrance, against plain TensorFlow: results, and the whole state after every run.

    words.py      what a line of a program can say; each program is a script that Python can run
    drawing.py    draws a program from a seed
    wider.py      draws more, for the seeds from 1000 on
    playing.py    runs a program in sessions and writes down what every line gave
    entrances.py  the ways to run one that must give what plain TensorFlow gives
    scaling.py    programs with loss scaling and accumulation, which have an entrance of their own
    shrinking.py  drops lines from a program for as long as it still shows a difference

`python scripts/fuzz.py ENTRANCE SEED` runs one seed at one entrance and shrinks it.
"""
