"""What every test shares: offline and headless settings, GPU deselection, the no-skip rule."""

import gc
import os
import sys

import pytest

import specdec_lab  # noqa: F401  prepares torch's threads, so before torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")
# nbformat loads jsonschema, which would build a grammar of addresses for 3 s in every process.
sys.modules.setdefault("rfc3987_syntax", None)  # optional there, and no notebook needs it


def skips_are_failures() -> bool:
    """CI sets SPECDEC_REQUIRE_ALL: there a test that should run must not be skipped."""
    return os.environ.get("SPECDEC_REQUIRE_ALL", "") not in ("", "0")


def cuda_at_hand() -> bool:
    """Whether torch sees a CUDA device."""
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def default_model():
    """The real default model, loaded and packed once."""
    from specdec_lab.decoding.checkpoint import load_target

    return load_target()


@pytest.fixture
def whole_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafters multiply whole weights, for tests that compare them closely with their modules."""
    from specdec_lab.decoding import low_bit

    monkeypatch.setattr(low_bit, "low_bit_works", lambda bits: False)


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, ...]]]:
    """Captures of CUDA graphs work on the CPU; the list says of which shapes they were."""
    from recorded_graphs import record_captures

    return record_captures(monkeypatch)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Imports leave a million objects that stay: the collector need not walk them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """GPU tests are deselected, not skipped, where there is no GPU."""
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu and not cuda_at_hand():
        config.hook.pytest_deselected(items=gpu)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]


def _forbid_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and skips_are_failures():
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} must run here (SPECDEC_REQUIRE_ALL), but: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Turns a skipped test into a failed one where skips are failures."""
    report = yield
    _forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    """Turns a skipped module into a failed one where skips are failures."""
    report = yield
    _forbid_skip(report)
    return report
