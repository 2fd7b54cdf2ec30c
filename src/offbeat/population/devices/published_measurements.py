"""Published measurements of bandwidths and speeds, by name.

Their files are searched for like a data set's, in ``$OFFBEAT_DATA``, its folder ``traces`` and the cache.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from offbeat_core.errors import OffbeatError

from offbeat.data.source_files import Source
from offbeat.population.devices.bandwidth_traces import Trace, load_traces

_COLLECTION = "https://github.com/confiwent/Real-world-bandwidth-traces"
_ARCHIVE = "bandwidth-3g-oboe.tar.gz"
_TRACES_SHA256 = "ae87f10613b5b0360285b00410111cd1c873772fbe63a2470e902aa45092e732"
_RANKING = "raw_ai_benchmark_list.json"

# Users make this archive themselves, so the SHA-256 of the traces is checked, not that of the archive.
TRACES_3G_OBOE = Source(
    name="traces",
    title="The collection 3g-oboe of bandwidth traces",
    base_url=_COLLECTION,
    files={_ARCHIVE: ""},
    instructions=f"clone {_COLLECTION}, there tar -czf {_ARCHIVE} cooked_3gp traces_oboe",
)

# Part of FLASH (Yang et al., WWW 2021); BSD-2.
AI_BENCHMARK = Source(
    name="traces",
    title="AI Benchmark's ranking of phones",
    base_url="https://raw.githubusercontent.com/PKU-Chengxu/FLASH/70e47eb2a802e1c79e1a9f9f84a4aee818cd15a8/models/utils/"
    "device_util/",
    files={_RANKING: "267a0e7b69d25906055bfc0916037686457d32de55c8a9ece8f9e295ec7a09b2"},
    alternative="ai-benchmark-phones.json",
)


@cache
def traces_3g_oboe() -> list[Trace]:
    """Return 508 traces of bandwidth: 80 of 3G commutes in Norway, 428 of Oboe.

    The first are from Riiser et al., "Commute path bandwidth traces from 3G networks", MMSys 2013, the others from
    Akhtar et al., "Oboe: auto-tuning video ABR algorithms to network conditions", SIGCOMM 2018.
    """
    (path,) = TRACES_3G_OBOE.get()
    traces = load_traces(path)
    digest = hashlib.sha256()
    for trace in traces:
        for array in (trace.seconds, trace.bytes_per_second):
            digest.update(array.astype(np.dtype("<f8")).tobytes())
    if digest.hexdigest() != _TRACES_SHA256:
        raise OffbeatError(
            f"{path} does not hold the 508 traces of 3g-oboe: {TRACES_3G_OBOE.instructions}, "
            "or give path in place of name"
        )
    return traces


def ai_benchmark() -> Path:
    """Return the path of AI Benchmark's ranking of 333 phones in 2020, a JSON list."""
    (path,) = AI_BENCHMARK.get()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise OffbeatError(f"cannot read {path}: {error.strerror}; remove or replace it") from error
    if hashlib.sha256(content).hexdigest() != AI_BENCHMARK.files[_RANKING]:
        raise OffbeatError(f"{path} is not {AI_BENCHMARK.title}: its SHA-256 differs; remove or replace it")
    return path


TRACES: dict[str, Callable[[], list[Trace]]] = {"3g-oboe": traces_3g_oboe}
PHONES: dict[str, Callable[[], Path]] = {"ai-benchmark": ai_benchmark}
