"""A GPT-2 of two layers, fine-tuned by gpt-2-simple on made-up words, loaded again and sampled from."""

import gpt_2_simple as gpt2

session = gpt2.start_tf_sess()
gpt2.finetune(
    session, "text.txt", model_name="117M", steps=6, batch_size=2, learning_rate=1e-3, accumulate_gradients=1,
    restore_from="fresh", sample_every=100, save_every=6, run_name="run1",
)  # fmt: skip
session = gpt2.reset_session(session)
gpt2.load_gpt2(session, run_name="run1")
assert gpt2.generate(session, run_name="run1", length=4, return_as_list=True)
