"""The inside of a trial training of `npu-shim tune`: its losses are recorded, and a step of it can be replayed.

NPU_SHIM_TRIAL=FOLDER makes a process a trial. FOLDER/asked.json says what is asked of it (`protocol.Asked`); what it
finds goes into files there, each process its own. Nothing of the script changes but its seeds, where it sets none.
"""
