"""Tables about models on the terminal."""

from __future__ import annotations

import numpy as np

from momostream.show import inspection


def test_inspection_has_room_for_many_columns():
    import pandas as pd

    table = inspection._table("wide", pd.DataFrame(np.zeros((2, 30))))
    assert len(table.columns) == inspection.MAX_COLUMNS + 1 and "18 more" in str(table.caption)
