"""How much memory of torch's an action takes on a CPU."""

from torch.profiler import ProfilerActivity, profile


def memory_of(action):
    """Bytes held at the worst moment and at the end, by torch's record of its allocator."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        result = action()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak, held, result
