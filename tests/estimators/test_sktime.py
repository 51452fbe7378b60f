"""sktime's own checks of the adapter; skipped where sktime is not installed."""

from __future__ import annotations

import pytest

pytest.importorskip("sktime", reason="sktime pins pandas and has an environment of its own")


@pytest.mark.contract
@pytest.mark.filterwarnings("ignore")
def test_sktime_checks():
    from sktime.utils.estimator_checks import check_estimator

    from momostream.sktime import MOMoGPForecaster

    found = check_estimator(MOMoGPForecaster, raise_exceptions=False, verbose=False)
    assert len(found) > 500 and {name: result for name, result in found.items() if result != "PASSED"} == {}
