"""How options come in: configs, NPURunConfig, plugin functions, amp levels, and what goes before all of them."""
