"""An emulated engine: speaks like vLLM or SGLang, keeps time to the millisecond, fails on request by name.

`python -m launch.engines.emulator --port N --model NAME`; `docs/emulator.md` describes it.
"""
